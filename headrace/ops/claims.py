"""What the output topics say about every raw record: one byte for each, whatever the topics hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from headrace.contracts.model import Topics
from headrace.fates import ACCEPTED, LATE, REJECTED
from headrace.log.scan import LogRecord, Range, TopicReader
from headrace.ops.audit_report import Offenders

NOTHING = -1
_SEEN = 8
_UNSEEN = re.compile(rb"[\x01-\x03]+")
FATES = (ACCEPTED, REJECTED, LATE)  # in the order of Topics.outputs

Step = Callable[[], None]


class Claims:
    """The fates that the outputs claim, by coordinate of the raw record."""

    def __init__(
        self,
        ranges: Mapping[int, Range],
        recorded: Mapping[int, int],
        raw_ends: Mapping[int, int],
        topics: Topics,
    ) -> None:
        self.ranges, self._recorded, self._raw_ends, self._topics = ranges, recorded, raw_ends, topics
        self._fates = {p: bytearray(max(0, end - first)) for p, (first, end) in ranges.items()}
        self.offenders = Offenders()
        self.published = dict.fromkeys(topics.outputs, 0)
        self.in_flight = 0
        self.floors: dict[int, int] = {}  # below these, outputs have left the log already

    def read(self, reader: TopicReader, ends: Mapping[str, Mapping[int, Range]], step: Step) -> None:
        for topic, fate in zip(self._topics.outputs, FATES, strict=True):
            oldest: dict[int, int] = {}
            for record in reader.records(topic, ends[topic]):
                step()
                place = self.coordinate(record)
                if place is None:
                    self.offenders.add("foreign", topic, record.partition, record.offset)
                    continue
                partition, offset = place
                oldest[partition] = min(offset, oldest.get(partition, offset))
                self._claim(topic, fate, partition, offset)
            self._raise_floors(ends[topic], oldest)

    def of(self, partition: int, offset: int) -> int:
        """The claimed fate, or NOTHING."""
        first, end = self.ranges.get(partition, (0, 0))
        return (self._fates[partition][offset - first] & 3) - 1 if first <= offset < end else NOTHING

    def take(self, partition: int, offset: int) -> int:
        """The claimed fate of a record that the raw topic really has."""
        first = self.ranges[partition][0]
        mark = self._fates[partition][offset - first]
        self._fates[partition][offset - first] = mark | _SEEN
        return (mark & 3) - 1

    def untaken(self) -> Iterator[tuple[int, int]]:
        """Coordinates that an output names and the raw topic does not have."""
        for partition, marks in self._fates.items():
            first = self.ranges[partition][0]
            for found in _UNSEEN.finditer(marks):
                yield from ((partition, first + n) for n in range(*found.span()))

    def _claim(self, topic: str, fate: int, partition: int, offset: int) -> None:
        first, end = self.ranges.get(partition, (0, 0))
        if not first <= offset < end:
            self.in_flight += offset >= self._recorded.get(partition, 0)
            return
        self.published[topic] += 1
        if self._fates[partition][offset - first]:
            self.offenders.add("repeated", self._topics.raw, partition, offset)
        else:
            self._fates[partition][offset - first] = fate + 1

    def coordinate(self, record: LogRecord) -> tuple[int, int] | None:
        """The raw record that a published one names, or None where there can be no such record."""
        topic, *numbers = (record.header("headrace-source") or b"").decode(errors="replace").split("/")
        if topic != self._topics.raw or len(numbers) != 3 or not all(n.isdecimal() for n in numbers[:2]):
            return None
        partition, offset = int(numbers[0]), int(numbers[1])
        return (partition, offset) if offset < self._raw_ends.get(partition, 0) else None

    def _raise_floors(self, ends: Mapping[int, Range], oldest: Mapping[int, int]) -> None:
        for partition, (low, end) in ends.items():
            if low > 0:
                floor = oldest.get(partition, self._raw_ends.get(partition, end))
                self.floors[partition] = max(floor, self.floors.get(partition, 0))
