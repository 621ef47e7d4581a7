"""Reading ranges of a topic without Spark: committed records only, and where the broker says they end."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headrace.errors import ServiceError

Headers = Sequence[tuple[str, str | bytes | None]]
Range = tuple[int, int]  # first offset, end offset (exclusive)

_AT_ONCE = 10_000
_WAIT_SECONDS = 30.0
_OPTIONS: dict[str, object] = {
    "group.id": "headrace.scan",  # nothing is ever committed under it
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "queued.max.messages.kbytes": 16_384,
}


class LogRecord(NamedTuple):
    """A record as it lies in the log; `log_time` is in milliseconds."""

    partition: int
    offset: int
    log_time: int
    value: bytes | None
    headers: Headers

    def header(self, name: str) -> bytes | None:
        """The value of a header; a name that was given more than once means its last value."""
        for given, value in reversed(self.headers):
            if given == name:
                return _bytes(value)
        return None


class TopicReader:
    """Scans topics of one cluster; offsets in, records out."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def ends(self, topic: str) -> dict[int, Range]:
        """For every partition the earliest offset and the end that a reader of committed records sees."""
        consumer = self._consumer()
        try:
            found = consumer.list_topics(topic, timeout=_WAIT_SECONDS).topics[topic]
            if found.error is not None:
                raise ServiceError(
                    f"topic {topic} does not exist", hint="`headrace up` makes the topics of an app"
                )
            return {
                partition: consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=_WAIT_SECONDS
                )
                for partition in sorted(found.partitions)
            }
        except KafkaException as error:
            raise _unreachable(topic, error) from error
        finally:
            consumer.close()

    def offsets_at(self, topic: str, moment: datetime, ends: Mapping[int, Range]) -> dict[int, int]:
        """For every partition the first offset whose log time is not before the moment."""
        consumer = self._consumer()
        at = int(moment.timestamp() * 1000)
        try:
            found = consumer.offsets_for_times(
                [TopicPartition(topic, partition, at) for partition in ends], timeout=_WAIT_SECONDS
            )
            return {p.partition: p.offset if p.offset >= 0 else ends[p.partition][1] for p in found}
        except KafkaException as error:
            raise _unreachable(topic, error) from error
        finally:
            consumer.close()

    def group_positions(self, topic: str, group: str, partitions: list[int]) -> dict[int, int]:
        """How far a consumer group says that it has read; partitions without a word are left out."""
        consumer = self._consumer(group)
        try:
            found = consumer.committed([TopicPartition(topic, p) for p in partitions], timeout=_WAIT_SECONDS)
            return {p.partition: p.offset for p in found if p.offset >= 0}
        except KafkaException as error:
            raise _unreachable(topic, error) from error
        finally:
            consumer.close()

    def records(self, topic: str, ranges: Mapping[int, Range]) -> Iterator[LogRecord]:
        """Every record of the ranges: in order within a partition, in no order between partitions."""
        left = {partition: end for partition, (first, end) in ranges.items() if first < end}
        if not left:
            return
        consumer = self._consumer()
        try:
            consumer.assign([TopicPartition(topic, p, ranges[p][0]) for p in left])
            until = time.monotonic() + _WAIT_SECONDS
            while left:
                messages = consumer.consume(_AT_ONCE, 0.05)
                if messages:
                    until = time.monotonic() + _WAIT_SECONDS
                elif time.monotonic() > until:
                    raise ServiceError(
                        f"topic {topic} has sent nothing for {_WAIT_SECONDS:.0f} s", hint="headrace status"
                    )
                yield from _within(messages, left)
        except KafkaException as error:
            raise _unreachable(topic, error) from error
        finally:
            consumer.close()

    def records_by_log_time(self, topic: str, ranges: Mapping[int, Range]) -> Iterator[LogRecord]:
        """Every record of the ranges, merged over the partitions by log time."""
        each = [self.records(topic, {partition: span}) for partition, span in ranges.items()]
        return heapq.merge(*each, key=lambda record: record.log_time)

    def _consumer(self, group: str = "") -> Consumer:
        return Consumer({**self._options, **_OPTIONS, **({"group.id": group} if group else {})})


def _within(messages: list[Message], left: dict[int, int]) -> Iterator[LogRecord]:
    """The records below the ends; a partition that has reached its end is taken off the list."""
    for message in messages:
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        assert partition is not None and offset is not None
        if error is not None:
            left.pop(partition, None)
            continue
        end = left.get(partition)
        if end is None:
            continue
        if offset >= end - 1:
            del left[partition]
        if offset < end:
            yield LogRecord(
                partition, offset, message.timestamp()[1], _bytes(message.value()), _pairs(message.headers())
            )


def _pairs(headers: Headers | dict[str, str | bytes | None] | None) -> Headers:
    return list(headers.items()) if isinstance(headers, dict) else headers or ()


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _unreachable(topic: str, error: KafkaException) -> ServiceError:
    return ServiceError(
        f"cannot read topic {topic}: {error.args[0].str()}", hint="is the broker up? headrace status tells"
    )
