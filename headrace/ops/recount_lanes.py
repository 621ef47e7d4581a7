"""The topics of a real-time lane, read once more and held against the table and the raw topic.

The gate writes the rows, the lane the records, at least once and with the same ids. So a row must be in the
topic, and a record must be about a sound event of the raw topic. How often it is there is counted, no leak.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from headrace.contracts.model import Contract
from headrace.errors import ServiceError
from headrace.log.scan import LogRecord, Range, TopicReader
from headrace.ops.audit_report import Finding, LaneAudit, shown_ranges
from headrace.ops.claims import Claims, Step
from headrace.ops.pipeline_lanes import LaneNotes, lane_part
from headrace.signals import Signals

NAMED_IDS = 5
APART_SECONDS = 10.0
_ALWAYS = float("inf")


class Row(NamedTuple):
    """A row of the table that must have a signal."""

    id: str
    partition: int
    offset: int
    log_time: datetime | None
    scored_at: datetime
    version: str

    @property
    def logged(self) -> float:
        """In seconds."""
        return self.log_time.timestamp() if self.log_time is not None else 0.0


class Place(NamedTuple):
    partition: int
    offset: int


@dataclass
class Told:
    """What a topic holds of one declaration of signals, about events of the audited range."""

    records: int = 0
    ids: set[str] = field(default_factory=set)
    unproven: dict[Place, dict[str, Place]] = field(default_factory=dict)  # event to ids and their records
    versions: dict[int, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    foreign: list[tuple[Place, str]] = field(default_factory=list)
    _in_order: dict[int, list[int]] = field(default_factory=dict)  # the offsets of the versions

    def add(self, event: Place, name: str, version: str, at: Place) -> None:
        self.records += 1
        self.ids.add(name)
        self.unproven.setdefault(event, {}).setdefault(name, at)
        self.versions[event.partition][event.offset] = version

    def others_decided(self, row: Row) -> bool:
        """Whether the lane ran with another rule right before or after the row's event."""
        found = self.versions.get(row.partition, {})
        if row.partition not in self._in_order:
            self._in_order[row.partition] = sorted(found)
        offsets = self._in_order[row.partition]
        here = bisect_left(offsets, row.offset)
        return any(found[offset] != row.version for offset in offsets[max(0, here - 1) : here + 1])


class LaneRecount:
    """`read` comes before the raw topic, `prove` with each of its sound records, `audit` at the end.

    `notes` are older than all of these. What the lane has noted to have passed, it had sent by then.
    """

    def __init__(
        self,
        reader: TopicReader,
        claims: Claims,
        contract: Contract,
        lane: Sequence[Signals],
        notes: LaneNotes,
    ) -> None:
        self._reader, self._claims, self._contract = reader, claims, contract
        self._notes = notes
        self._lane = {signals.name: signals for signals in lane}
        self._told = {name: Told() for name in self._lane}
        self._ends = {topic: self._ends_of(topic) for topic in {signals.topic for signals in lane}}
        self._raw_ends = reader.ends(contract.topics.raw) if lane else {}
        self._cut = dict.fromkeys(self._ends, -1.0)  # what was sent before this (milliseconds) may be gone

    @property
    def total(self) -> int:
        return sum(end - first for spans in self._ends.values() for first, end in spans.values())

    def read(self, step: Step) -> None:
        for topic, spans in self._ends.items():
            oldest: dict[int, int] = {}
            for record in self._reader.records(topic, spans):
                step()
                oldest.setdefault(record.partition, record.log_time)
                self._take(topic, record)
            cut = [partition for partition, (low, _) in spans.items() if low > 0]
            self._cut[topic] = max((float(oldest.get(p, _ALWAYS)) for p in cut), default=-1.0)

    def prove(self, partition: int, offset: int, event_id: str | None) -> None:
        """The raw topic has this sound event."""
        event = Place(partition, offset)
        for name, told in self._told.items():
            found = told.unproven.pop(event, {})
            told.foreign += [
                (at, id_) for id_, at in found.items() if event_id is not None and id_ != f"{name}:{event_id}"
            ]

    def audit(self, name: str, rows: Iterable[Row]) -> tuple[LaneAudit, list[Finding]]:
        """`rows` are those of the audited range that must be in the topic."""
        signals, told = self._lane[name], self._told[name]
        counts = {"in_topic": 0, "pending": 0, "unjudged": 0, "lost": 0}
        lost: dict[int, list[Row]] = defaultdict(list)
        for row in rows:
            fate = self._fate(signals, told, row)
            counts[fate] += 1
            if fate == "lost":
                lost[row.partition].append(row)
        foreign = [*told.foreign, *self._unproven(told)]
        audit = LaneAudit(
            *(name, signals.topic, sum(counts.values()), counts["in_topic"], counts["pending"]),
            *(counts["unjudged"], told.records, told.records - len(told.ids)),
            counts["lost"] + len(foreign),
        )
        return audit, [*self._lost(signals, lost), *_foreign(signals, foreign)]

    def _take(self, topic: str, record: LogRecord) -> None:
        """Records of others, who may write to the topic too, are left alone."""
        value = _object(record.value)
        at = Place(record.partition, record.offset)
        name, id_ = str(value.get("signals")), str(value.get("id"))
        told = self._told.get(name)
        if told is None or self._lane[name].topic != topic:
            return
        event = self._event(value)
        if event is None:
            told.foreign.append((at, id_))
            return
        first, end = self._claims.ranges.get(event.partition, (0, 0))
        if first <= event.offset < end:
            told.add(event, id_, str(value.get("version")), at)

    def _event(self, value: Mapping[str, Any]) -> Place | None:
        """The raw record that a signal names, or None where there can be no such record."""
        source = value.get("source")
        if not isinstance(source, dict) or source.get("stream") != self._contract.name:
            return None
        partition, offset = source.get("partition"), source.get("offset")
        if not isinstance(partition, int) or not isinstance(offset, int):
            return None
        return Place(partition, offset) if 0 <= offset < self._raw_ends.get(partition, (0, 0))[1] else None

    def _fate(self, signals: Signals, told: Told, row: Row) -> str:
        if row.id in told.ids:
            return "in_topic"
        begun = self._notes.begun.get(lane_part(signals))
        if begun is None or row.offset >= self._notes.offsets.get(row.partition, 0):
            return "pending"
        if (
            row.offset < begun.get(row.partition, 0)
            or row.logged * 1000 <= self._cut[signals.topic]
            or told.others_decided(row)
            or self._tables_changed(signals, row)
        ):
            return "unjudged"
        return "lost"

    def _tables_changed(self, signals: Signals, row: Row) -> bool:
        """Whether lane and gate may have looked into different versions: both take them up within seconds."""
        first, last = row.logged - APART_SECONDS, row.scored_at.timestamp() + APART_SECONDS
        return bool(signals.tables) and any(first <= at <= last for at in self._notes.changes)

    def _unproven(self, told: Told) -> Iterator[tuple[Place, str]]:
        """Signals of raw records that break the contract, or are not there."""
        if self._contract.compacted:
            return
        for event, found in told.unproven.items():
            if event.offset >= self._claims.floors.get(event.partition, 0):
                yield from ((at, id_) for id_, at in found.items())

    def _lost(self, signals: Signals, lost: Mapping[int, Sequence[Row]]) -> Iterator[Finding]:
        for partition, rows in sorted(lost.items()):
            note = f"rows of {signals.name} whose signals are not in {signals.topic}: "
            yield Finding(
                *("lost", self._contract.topics.raw, partition, len(rows)),
                shown_ranges(row.offset for row in rows),
                note + _named(row.id for row in rows),
            )

    def _ends_of(self, topic: str) -> dict[int, Range]:
        """A topic that is not there holds nothing, as long as no lane has noted anything."""
        try:
            return self._reader.ends(topic)
        except ServiceError:
            if self._notes.offsets:
                raise
            return {}


def _foreign(signals: Signals, found: Sequence[tuple[Place, str]]) -> Iterator[Finding]:
    by_partition: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for at, id_ in found:
        by_partition[at.partition].append((at.offset, id_))
    for partition, records in sorted(by_partition.items()):
        note = f"signals {signals.name} of no sound event of {signals.of}: "
        yield Finding(
            *("foreign", signals.topic, partition, len(records)),
            shown_ranges(offset for offset, _ in records),
            note + _named(id_ for _, id_ in sorted(records)),
        )


def _named(ids: Iterable[str]) -> str:
    found = list(dict.fromkeys(ids))
    return ", ".join(found[:NAMED_IDS]) + (", …" if len(found) > NAMED_IDS else "")


def _object(value: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(value or b"")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
