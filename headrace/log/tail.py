"""The newest records of topics, without Spark: a bounded number of them, with one consumer that is kept."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headrace.errors import ServiceError

Place = tuple[str, int]  # topic, partition
Range = tuple[int, int]  # first offset, end offset (exclusive)

_OPTIONS: dict[str, object] = {
    "group.id": "headrace.tail",  # nothing is ever committed under it
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "queued.max.messages.kbytes": 8_192,
    "queued.min.messages": 500,
    "fetch.wait.max.ms": 50,
}
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class TailRecord(NamedTuple):
    """`value` is None where it was empty, or larger than wanted: `size` tells. `log_time` is in ms."""

    topic: str
    partition: int
    offset: int
    log_time: int
    key: bytes | None
    value: bytes | None
    size: int
    headers: tuple[tuple[str, bytes | None], ...]

    def header(self, name: str) -> bytes | None:
        """A name that was given more than once means its last value."""
        return next((value for given, value in reversed(self.headers) if given == name), None)


class TailReader:
    """For one thread at a time."""

    def __init__(self, options: Mapping[str, str], wait_seconds: float = 5.0) -> None:
        self._options, self._wait = options, wait_seconds
        self._consumer: Consumer | None = None

    def ends(self, topics: Mapping[str, int]) -> dict[Place, Range]:
        """Where the partitions of topics begin and end; a topic that does not exist has none."""
        until = time.monotonic() + self._wait
        found = {}
        for topic, partitions in topics.items():
            for partition in range(partitions):
                try:
                    left = max(0.1, until - time.monotonic())
                    place = TopicPartition(topic, partition)
                    found[topic, partition] = self._connected().get_watermark_offsets(place, timeout=left)
                except KafkaException as error:
                    if error.args[0].code() not in _GONE:
                        raise self._unreachable(topic, error) from error
        return found

    def read(self, ranges: Mapping[Place, Range], largest: int) -> list[TailRecord]:
        """Every record of the ranges; values larger than `largest` bytes are left out."""
        left = {place: end for place, (first, end) in ranges.items() if first < end}
        if not left:
            return []
        consumer, records = self._connected(), []
        until = time.monotonic() + self._wait
        try:
            consumer.assign([TopicPartition(*place, ranges[place][0]) for place in left])
            while left:
                if time.monotonic() > until:
                    raise ServiceError(
                        f"the broker has not sent everything within {self._wait:.0f} s", hint="try again"
                    )
                records += _within(consumer.consume(1000, 0.1), left, largest)
        except KafkaException as error:
            raise self._unreachable(next(iter(left), ("", 0))[0], error) from error
        finally:
            consumer.unassign()
        return records

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _connected(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer({**self._options, **_OPTIONS})
        return self._consumer

    def _unreachable(self, topic: str, error: KafkaException) -> ServiceError:
        return ServiceError(
            f"cannot read topic {topic}: {error.args[0].str()}",
            hint="is the broker up? headrace status tells",
        )


def newest_ranges(ends: Mapping[Place, Range], below: Mapping[Place, int], most: int) -> dict[Place, Range]:
    """The last offsets of each partition, below given ones; `most` of them altogether."""
    each = max(1, most // max(1, len(ends)))
    found = {}
    for place, (low, high) in ends.items():
        end = min(high, below.get(place, high))
        found[place] = (max(low, end - each), end)
    return found


def _within(messages: Collection[Message], left: dict[Place, int], largest: int) -> list[TailRecord]:
    """The records below the ends; a partition that has reached its end is taken off the list."""
    found = []
    for message in messages:
        error = message.error()
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        assert topic is not None and partition is not None and offset is not None
        place = (topic, partition)
        end = left.get(place)
        if end is None:
            continue
        if error is not None or offset >= end - 1:
            del left[place]
        if error is None and offset < end:
            found.append(_record(message, place, offset, largest))
    return found


def _record(message: Message, place: Place, offset: int, largest: int) -> TailRecord:
    value, key, headers = message.value(), message.key(), message.headers() or ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    raw = value.encode() if isinstance(value, str) else value
    return TailRecord(
        *place,
        offset,
        message.timestamp()[1],
        key.encode() if isinstance(key, str) else key,
        raw if raw is None or len(raw) <= largest else None,
        len(raw or b""),
        tuple((name, text.encode() if isinstance(text, str) else text) for name, text in pairs),
    )
