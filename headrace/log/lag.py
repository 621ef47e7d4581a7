"""How far behind a reader is: in records, and in seconds as the log itself tells them.

The lag in seconds of a partition is the age of its next unread record. That record's log time is read from
the log, never guessed from rates, so it is also right while a topic is quiet and while nobody reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from headrace.errors import ServiceError

_OPTIONS: dict[str, Any] = {
    "group.id": "headrace.lag",  # nothing is ever committed under it
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    # One record of each partition is wanted: the usual prefetch would read megabytes for it.
    "queued.min.messages": 1,
    "max.partition.fetch.bytes": 16_384,
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 10,
}
Place = tuple[str, int]  # topic, partition
Positions = Mapping[int, int | None]  # by partition: the next offset to read; None is the beginning


@dataclass(frozen=True)
class PartitionLag:
    """`seconds` is None where the log has not told in time; `position` is where the reader goes on."""

    partition: int
    position: int
    oldest: int
    end: int
    records: int
    seconds: float | None


@dataclass(frozen=True)
class Unread:
    """The first record at or after a position; `offset` is None if there was none below `end`."""

    position: int
    end: int
    offset: int | None
    log_time: float | None  # seconds since 1970

    def holds(self, position: int, end: int) -> bool:
        """A record stays the next unread one until it is read; nothing is nothing until the end moves."""
        if self.offset is None:
            return self.position <= position <= self.end == end
        return self.position <= position <= self.offset


class LagReader:
    """Asks a broker for ends and for the log times of single records; keep one while watching."""

    def __init__(self, options: Mapping[str, str], wait_seconds: float = 5.0) -> None:
        self._options, self._wait = dict(options), wait_seconds
        self._admin = AdminClient({**self._options})
        self._consumer: Consumer | None = None
        self._known: dict[Place, Unread] = {}
        self._lock = threading.Lock()

    def lags(
        self, readers: Mapping[str, Positions], now: datetime | None = None
    ) -> dict[str, dict[int, PartitionLag]]:
        """For every topic and partition of `readers`. Raises ServiceError when the broker does not answer."""
        with self._lock:
            places = [(topic, p) for topic, positions in readers.items() for p in positions]
            spans = self._spans(places)
            starts = {place: _start(readers[place[0]][place[1]], spans[place]) for place in places}
            self._look(starts, spans)
            at = (now or datetime.now(UTC)).timestamp()
            found: dict[str, dict[int, PartitionLag]] = {topic: {} for topic in readers}
            for place in places:
                found[place[0]][place[1]] = self._lag(place, starts[place], spans[place], at)
            return found

    def close(self) -> None:
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None

    def _lag(self, place: Place, start: int, span: tuple[int, int], now: float) -> PartitionLag:
        oldest, end = span
        if start >= end:
            return PartitionLag(place[1], start, oldest, end, 0, 0.0)
        unread = self._known.get(place)
        if unread is None or not unread.holds(start, end):
            return PartitionLag(place[1], start, oldest, end, end - start, None)
        if unread.offset is None:  # only markers of transactions, or records of aborted ones
            return PartitionLag(place[1], start, oldest, end, 0, 0.0)
        age = None if unread.log_time is None else max(0.0, now - unread.log_time)
        return PartitionLag(place[1], start, oldest, end, end - unread.offset, age)

    def _spans(self, places: list[Place]) -> dict[Place, tuple[int, int]]:
        """The oldest offset and the end that a reader of committed records sees."""
        first = self._offsets(places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        last = self._offsets(places, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        until = time.monotonic() + self._wait
        return {place: (_offset(place, first, until), _offset(place, last, until)) for place in places}

    def _offsets(self, places: list[Place], spec: OffsetSpec) -> dict[Place, Future[Any]]:
        if not places:
            return {}
        asked = {TopicPartition(*place): spec for place in places}
        answers = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._wait
        )
        return {(where.topic, where.partition): answer for where, answer in answers.items()}

    def _look(self, starts: Mapping[Place, int], spans: Mapping[Place, tuple[int, int]]) -> None:
        """Read the next record of every partition whose next record is not known yet."""
        wanted = {}
        for place, start in starts.items():
            end, known = spans[place][1], self._known.get(place)
            if start < end and (known is None or not known.holds(start, end)):
                wanted[place] = (start, end)
        if not wanted:
            return
        consumer = self._connected()
        try:
            consumer.assign([TopicPartition(*place, start) for place, (start, _) in wanted.items()])
            until = time.monotonic() + self._wait
            while wanted and time.monotonic() < until:
                for message in consumer.consume(len(wanted) * 10, 0.05):
                    self._take(message, wanted)
        except KafkaException as error:
            raise _silent(error) from error
        finally:
            consumer.unassign()

    def _take(self, message: Message, wanted: dict[Place, tuple[int, int]]) -> None:
        error = message.error()
        topic, partition = message.topic(), message.partition()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            if error.fatal():
                raise KafkaException(error)
            return  # what librdkafka tries again by itself; the deadline ends it
        if topic is None or partition is None or (topic, partition) not in wanted:
            return
        place = (topic, partition)
        start, end = wanted.pop(place)
        if error is not None:
            self._known[place] = Unread(start, end, None, None)
            return
        kind, millis = message.timestamp()
        at = None if kind == TIMESTAMP_NOT_AVAILABLE else millis / 1000
        self._known[place] = Unread(start, end, message.offset(), at)

    def _connected(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer({**self._options, **_OPTIONS})
        return self._consumer


def _start(position: int | None, span: tuple[int, int]) -> int:
    """Retention may have removed what was never read."""
    return span[0] if position is None else max(position, span[0])


def _offset(place: Place, answers: Mapping[Place, Future[Any]], until: float) -> int:
    try:
        return int(answers[place].result(max(0.1, until - time.monotonic())).offset)
    except KafkaException as error:
        raise _silent(error, place[0]) from error
    except TimeoutError as error:
        raise ServiceError(
            f"the broker does not answer for {place[0]}", hint="headrace status tells what is running"
        ) from error


def _silent(error: KafkaException, topic: str = "") -> ServiceError:
    if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return ServiceError(
            f"topic {topic} is not there yet", hint="`headrace up` makes the topics of an app"
        )
    place = f" for {topic}" if topic else ""
    return ServiceError(
        f"the broker does not answer{place}: {error.args[0].str()}",
        hint="headrace status tells what is running",
    )
