"""The topics of flows, read once more: results that the outboxes sent, and enriched events.

A result names the lane that it came through, an enriched event the raw record that it was made of. So a
recount needs no copy of them: it counts the ones, and has a byte for each record of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from headrace.errors import ServiceError
from headrace.fates import ACCEPTED
from headrace.log.scan import LogRecord, Range, TopicReader
from headrace.ops.audit_report import Fates, Finding, Offenders, OutboxAudit
from headrace.ops.claims import NOTHING, Claims

Sums = Callable[[Mapping[int, Range]], Mapping[int, Fates]]
Again = Callable[[], Collection[OutboxAudit]]


class FlowRecount:
    """`claims` say what became of every raw record, after the output topics have been read."""

    def __init__(self, reader: TopicReader, claims: Claims) -> None:
        self._reader, self._claims = reader, claims

    def outboxes(
        self, audits: Collection[OutboxAudit], again: Again, apart: Collection[str]
    ) -> tuple[OutboxAudit, ...]:
        """With what their topics hold; `again` looks at them once more, as the engine may be running.

        A topic that retention has cut cannot be counted, nor one `apart`, which others write to as well.
        """
        counted: dict[str, dict[str, int] | None] = {}
        for topic in {audit.topic for audit in audits}:
            ends = self._whole(topic) if topic not in apart else None
            counted[topic] = None if ends is None else self._by_lane(topic, ends)
        later = {(audit.topic, audit.lane): audit for audit in again()}
        return tuple(
            _held_against(audit, found.get(audit.lane, 0), later.get((audit.topic, audit.lane), audit))
            if (found := counted[audit.topic]) is not None
            else audit
            for audit in audits
        )

    def enriched(
        self,
        raw: str,
        topics: Collection[str],
        first_offsets: Mapping[int, int],
        waiting: int,
        sums: Sums | None = None,
    ) -> Iterator[Finding]:
        """Every accepted record since the first offsets is in one of the topics, once; but for `waiting`.

        `sums` is given where no other topic tells which were accepted: then the ledger tells how many.
        """
        ends = {topic: self._whole(topic) for topic in topics}
        if None in ends.values():
            return
        offenders, possible = Offenders(), (ACCEPTED,) if sums is None else (ACCEPTED, NOTHING)
        seen = {p: bytearray(max(0, end - first)) for p, (first, end) in self._claims.ranges.items()}
        for topic, spans in ends.items():
            for record in self._reader.records(topic, spans or {}):
                place = self._claims.coordinate(record)
                if place is None:
                    offenders.add("foreign", topic, record.partition, record.offset)
                    continue
                partition, offset = place
                first, end = self._claims.ranges.get(partition, (0, 0))
                if not first <= offset < end:
                    continue
                if seen[partition][offset - first]:
                    offenders.add("repeated", topic, partition, offset)
                elif self._claims.of(partition, offset) not in possible:
                    offenders.add("foreign", topic, partition, offset)
                seen[partition][offset - first] = 1
        lost = list(self._missing(seen, first_offsets)) if sums is None else []
        if len(lost) > waiting:
            for partition, offset in lost:
                offenders.add("lost", raw, partition, offset)
        note = f"enriched events, as their topics have them: {', '.join(topics)}"
        yield from (replace(f, note=note) for f in offenders.findings())
        if sums is not None:
            fewer = self._fewer(seen, first_offsets, sums)
            if sum(fewer.values()) > waiting:
                yield from (Finding("lost", raw, p, count, note=note) for p, count in fewer.items())

    def _missing(
        self, seen: Mapping[int, bytearray], first_offsets: Mapping[int, int]
    ) -> Iterator[tuple[int, int]]:
        for partition, marks in seen.items():
            first, end = self._claims.ranges[partition]
            for offset in range(max(first, first_offsets.get(partition, end)), end):
                if not marks[offset - first] and self._claims.of(partition, offset) == ACCEPTED:
                    yield partition, offset

    def _fewer(
        self, seen: Mapping[int, bytearray], first_offsets: Mapping[int, int], sums: Sums
    ) -> dict[int, int]:
        """How many more were accepted than are there, in the partitions where it is so."""
        spans = {
            p: (max(low, first_offsets.get(p, end)), end) for p, (low, end) in self._claims.ranges.items()
        }
        accepted = {p: fates.accepted for p, fates in sums(spans).items()}
        there = {p: sum(seen[p][first - self._claims.ranges[p][0] :]) for p, (first, _) in spans.items()}
        return {p: accepted[p] - there[p] for p in spans if accepted[p] > there[p]}

    def _whole(self, topic: str) -> dict[int, Range] | None:
        """The ends of a topic from which nothing has been removed yet."""
        try:
            ends = self._reader.ends(topic)
        except ServiceError:
            return None
        return ends if all(low == 0 for low, _ in ends.values()) else None

    def _by_lane(self, topic: str, ends: Mapping[int, Range]) -> dict[str, int]:
        found: dict[str, int] = {}
        for record in self._reader.records(topic, ends):
            lane = _lane(record)
            found[lane] = found.get(lane, 0) + 1
        return found


def _lane(record: LogRecord) -> str:
    return (record.header("headrace-query") or b"").decode(errors="replace")


def _held_against(audit: OutboxAudit, found: int, later: OutboxAudit) -> OutboxAudit:
    """What the store called published before must be there, and nothing that was not put in by now."""
    off = max(0, audit.published - found) + max(0, found - later.handed)
    notes = [audit.note] if audit.note else []
    if off:
        notes.append(f"{audit.lane}: {audit.published} published, {found} in the topic")
    return replace(audit, in_topic=found, unaccounted=audit.unaccounted + off, note="; ".join(notes))
