"""The fates once more, from the raw topic, one record at a time in plain Python.

It shares no code with the gate and needs no Spark. The records are read once, merged by log time; memory
holds one byte for each record and the event ids of two horizons. What the outputs claim is judged, not
trusted: a rejection follows from the record alone, lateness from the clock of the partition. Which copy of an
event is kept follows from the offsets inside a partition; between partitions either copy may be, but only one
within the horizon.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from headrace.contracts.model import Contract
from headrace.fates import ACCEPTED, LATE, REJECTED
from headrace.log.scan import LogRecord, Range, TopicReader
from headrace.ops.audit_report import Fates
from headrace.ops.claims import NOTHING, Claims, Step
from headrace.ops.recount_rules import MICROSECOND, Sound, examine, python_rules

_MOST_ORPHANS = 1_000_000
# Partition, offset and id of a record that keeps the contract; None where it is open which id counts.
OnEvent = Callable[[int, int, str | None], None]


@dataclass(frozen=True)
class Copy:
    partition: int
    offset: int
    log_time: int  # milliseconds


class Recount:
    """One pass over the raw records of the claims' ranges. `clocks` are those before the first record."""

    def __init__(
        self,
        contract: Contract,
        claims: Claims,
        clocks: Mapping[int, int | None],
        *,
        publish: bool,
        on_event: OnEvent | None = None,
    ) -> None:
        self._on_event = on_event
        self.contract, self.claims, self.publish = python_rules(contract), claims, publish
        self.fates = {partition: Fates() for partition in claims.ranges}
        self.unjudged = self.unproven = 0
        self._topic = contract.topics.raw
        self._clocks = {p: clock for p, clock in clocks.items() if clock is not None}
        self._lateness = contract.lateness // MICROSECOND
        self._horizon = contract.dedupe_horizon // timedelta(milliseconds=1)
        self._kept: OrderedDict[str, Copy] = OrderedDict()
        self._orphans: dict[str, list[Copy]] = {}
        self._counts = {p: [0, 0, 0, 0] for p in claims.ranges}  # accepted, rejected, late, duplicate

    def read(self, reader: TopicReader, earliest: Mapping[int, int], step: Step) -> None:
        """Judge every record; then look once more for the originals of duplicates that seem to have none."""
        for record in reader.records_by_log_time(self._topic, self.claims.ranges):
            step()
            self._judge(record)
        if not self.contract.compacted:
            for partition, offset in self.claims.untaken():
                self.claims.offenders.add("foreign", self._topic, partition, offset)
        if self._orphans:
            self._search_originals(reader, earliest)
        self.fates = {
            p: Fates(sum(counts), counts[ACCEPTED], counts[REJECTED], counts[LATE], counts[3])
            for p, counts in self._counts.items()
        }
        for orphans in self._orphans.values():
            for copy in orphans:
                self._lose(copy)

    def _judge(self, record: LogRecord) -> None:
        copy = Copy(record.partition, record.offset, record.log_time)
        claimed = self.claims.take(copy.partition, copy.offset)
        if copy.offset < self.claims.floors.get(copy.partition, 0):
            self.unjudged += 1
            return
        sound = examine(self.contract, record.value, copy.log_time)
        if sound is None or (sound.names_twice and claimed == REJECTED):
            self._settle(copy, claimed, REJECTED)
            return
        if self._on_event is not None:
            self._on_event(copy.partition, copy.offset, None if sound.names_twice else sound.event_id)
        if claimed == REJECTED:
            self._settle(copy, claimed, self._by_clock(copy, sound))
        elif claimed == NOTHING and not self._silently_accepted(copy, sound):
            self._repeat(copy, sound)
        else:
            self._keep(copy, sound, claimed)

    def _keep(self, copy: Copy, sound: Sound, claimed: int) -> None:
        before = self._kept.get(sound.event_id)
        if before is not None and abs(copy.log_time - before.log_time) <= self._horizon:
            self.claims.offenders.add("kept_twice", self._topic, copy.partition, copy.offset)
        for orphan in self._orphans.pop(sound.event_id, ()):
            if orphan.partition == copy.partition and copy.log_time - orphan.log_time <= self._horizon:
                self.claims.offenders.add("wrong_fate", self._topic, orphan.partition, orphan.offset)
        self._kept[sound.event_id] = copy
        self._kept.move_to_end(sound.event_id)
        while self._kept and next(iter(self._kept.values())).log_time < copy.log_time - 2 * self._horizon:
            self._kept.popitem(last=False)
        self._settle(copy, claimed, self._by_clock(copy, sound))

    def _repeat(self, copy: Copy, sound: Sound) -> None:
        self._counts[copy.partition][3] += 1
        if sound.event_id in self._kept or not self.publish:
            return
        if len(self._orphans) < _MOST_ORPHANS:
            self._orphans.setdefault(sound.event_id, []).append(copy)
        else:
            self._lose(copy)

    def _silently_accepted(self, copy: Copy, sound: Sound) -> bool:
        """Whether a record of a source that does not publish is the first of its event."""
        before = self._kept.get(sound.event_id)
        return not self.publish and (before is None or copy.log_time - before.log_time > self._horizon)

    def _by_clock(self, copy: Copy, sound: Sound) -> int:
        clock = self._clocks.get(copy.partition)
        if clock is not None and sound.at < clock - self._lateness:
            return LATE
        self._clocks[copy.partition] = sound.at if clock is None else max(clock, sound.at)
        return ACCEPTED

    def _settle(self, copy: Copy, claimed: int, fate: int) -> None:
        self._counts[copy.partition][fate] += 1
        if claimed == NOTHING and (fate != ACCEPTED or self.publish):
            self._lose(copy)
        elif claimed not in (NOTHING, fate):
            self.claims.offenders.add("wrong_fate", self._topic, copy.partition, copy.offset)

    def _lose(self, copy: Copy) -> None:
        self.claims.offenders.add("lost", self._topic, copy.partition, copy.offset)

    def _search_originals(self, reader: TopicReader, earliest: Mapping[int, int]) -> None:
        """The gate may remember an event for longer than this pass does, or since before its range."""
        whole: dict[int, Range] = {p: (earliest.get(p, 0), end) for p, (_, end) in self.claims.ranges.items()}
        oldest: int | None = None
        for record in reader.records(self._topic, whole):
            partition, offset, at = record.partition, record.offset, record.log_time
            oldest = at if oldest is None else min(oldest, at)
            before = offset < max(self.claims.ranges[partition][0], self.claims.floors.get(partition, 0))
            if before or self.claims.of(partition, offset) in (ACCEPTED, LATE):
                sound = examine(self.contract, record.value, at)
                if sound is not None:
                    self._orphans.pop(sound.event_id, None)
        if any(earliest.values()) and oldest is not None:
            self._excuse(oldest + 2 * self._horizon)

    def _excuse(self, until: int) -> None:
        """Near the beginning of a log that has been cut, the original may have been cut off."""
        for event_id, orphans in list(self._orphans.items()):
            left = [copy for copy in orphans if copy.log_time > until]
            self.unproven += len(orphans) - len(left)
            self._orphans[event_id] = left


def differences(ledger: Mapping[int, Fates], recount: Recount) -> Iterator[tuple[int, int, str]]:
    """Partition, number of records and words for each count in which ledger and recount differ."""
    for partition, said in ledger.items():
        found = recount.fates.get(partition, Fates())
        pairs = [("rejected", said.rejected, found.rejected), ("late", said.late, found.late)]
        if recount.publish:
            pairs += [("accepted", said.accepted, found.accepted)]
            pairs += [("duplicate", said.duplicate, found.duplicate)]
        else:
            both = said.accepted + said.duplicate, found.accepted + found.duplicate
            pairs.append(("accepted or duplicate", *both))
        pairs.append(("received", said.received, found.received))
        for name, a, b in pairs:
            if a != b:
                yield partition, abs(a - b), f"{name}: {a} in the ledger, {b} in the recount"
