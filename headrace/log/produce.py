"""Send records to Kafka: idempotent, keyed, paced, and every record accounted for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headrace.errors import ServiceError, UsageError
from headrace.log.record import Record

SLICE = 0.02  # seconds; records of a slice go out together
_TICK = 0.25  # seconds between two reports of progress
_NEW_TOPIC = 3.0  # seconds
_OPTIONS: dict[str, object] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",  # as in Java: every client agrees on the partition of a key
    "compression.type": "lz4",
    "linger.ms": 20,
    "batch.num.messages": 20_000,
    "queue.buffering.max.messages": 200_000,
    "delivery.timeout.ms": 30_000,
    "log_level": 2,  # what matters comes back in the delivery reports
}


@dataclass(frozen=True)
class Idle:
    """A partition that gets nothing for a while, counted from the first record."""

    partition: int
    after: float = 0.0
    seconds: float = float("inf")


@dataclass
class Produced:
    """How many records went where. `skipped` would have gone to the idle partition."""

    sent: int = 0
    delivered: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    streams: dict[str, int] = field(default_factory=dict)
    first_error: str = ""


def produce(
    records: Iterable[Record],
    options: Mapping[str, object],
    topic_of: Callable[[str], str],
    *,
    rate: float | None = None,
    idle: Idle | None = None,
    on_progress: Callable[[Produced], None] | None = None,
    flush_seconds: float = 60.0,
) -> Produced:
    """Send all records and wait until the brokers have them.

    `options` are librdkafka's, with the bootstrap servers.

    Raises ServiceError with the count if a single record was not delivered.
    """
    producer = Producer(_OPTIONS | dict(options))
    outcome = Produced()
    began = time.monotonic()
    if rate is not None:
        records = at_rate(records, rate)
    topics = _Topics(producer, topic_of)
    if idle is not None:
        records = _around(records, idle, topics, outcome)
    try:
        _send(producer, records, topics, outcome, on_progress)
    except KeyboardInterrupt:
        _flush(producer, outcome, began, flush_seconds)
        raise
    _flush(producer, outcome, began, flush_seconds)
    if on_progress:
        on_progress(outcome)
    return outcome


def at_rate(records: Iterable[Record], rate: float) -> Iterator[Record]:
    """Let the records through at a steady rate, in small slices; time lost in one is made up in the next."""
    if rate <= 0:
        raise UsageError(f"rate must be above 0, not {rate:g}")
    began, step = time.monotonic(), max(1, int(rate * SLICE))
    for number, record in enumerate(records):
        if number % step == 0:
            _sleep_until(began + number / rate)
        yield record


def on_time(records: Iterable[Record]) -> Iterator[Record]:
    """Let each record through when the wall clock has gone as far as the simulated one."""
    began, first, due = time.monotonic(), None, float("-inf")
    for record in records:
        if first is None:
            first = record.at
        if record.at > due:
            _sleep_until(began + record.at - first)
            due = record.at + SLICE
        yield record


@lru_cache(maxsize=200_000)
def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Kafka's default partitioner gives to a key (murmur2, as in Java)."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    length = len(key)
    hashed = 0x9747B28C ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * multiplier & mask
        k = (k ^ k >> 24) * multiplier & mask
        hashed = hashed * multiplier & mask ^ k
    if length > whole:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * multiplier & mask
    hashed = (hashed ^ hashed >> 13) * multiplier & mask
    hashed ^= hashed >> 15
    return (hashed & 0x7FFFFFFF) % partitions


def _send(
    producer: Producer,
    records: Iterable[Record],
    topics: _Topics,
    outcome: Produced,
    on_progress: Callable[[Produced], None] | None,
) -> None:
    names: dict[str, str] = {}
    streams = outcome.streams
    send, poll = producer.produce, producer.poll

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            outcome.delivered += 1
        else:
            outcome.failed += 1
            outcome.first_error = outcome.first_error or f"{message.topic()}: {error.str()}"

    tick = time.monotonic() + _TICK
    for stream, key, value, _ in records:
        topic = names.get(stream)
        if topic is None:
            topic = names[stream] = topics.of(stream)
            streams[stream] = 0
        while True:
            try:
                send(topic, value, key, on_delivery=delivered)
                break
            except BufferError:  # the local queue is full: let deliveries make room
                poll(0.05)
            except KafkaException as error:
                raise ServiceError(f"cannot send to {topic}: {error.args[0].str()}") from error
        outcome.sent += 1
        streams[stream] += 1
        if outcome.sent & 127 == 0:
            poll(0)
            if time.monotonic() > tick:
                tick = time.monotonic() + _TICK
                if on_progress:
                    on_progress(outcome)
                if outcome.failed:
                    return


def _flush(producer: Producer, outcome: Produced, began: float, deadline: float) -> None:
    unanswered = producer.flush(deadline)
    outcome.seconds = time.monotonic() - began
    if unanswered or outcome.failed:
        raise ServiceError(
            f"{outcome.failed + unanswered} of {outcome.sent} records were not delivered"
            + (f" ({unanswered} without an answer)" if unanswered else ""),
            hint=outcome.first_error or "is the broker up? `headrace status` says so",
        )


def _around(records: Iterable[Record], idle: Idle, topics: _Topics, outcome: Produced) -> Iterator[Record]:
    """Leave out the records of the idle partition, and those without a key: they could land there."""
    sizes: dict[str, int] = {}
    first: float | None = None
    for record in records:
        if first is None:
            first = record.at
        if record.stream not in sizes:
            topic = topics.of(record.stream)
            sizes[record.stream] = topics.sizes[topic]
            if not 0 <= idle.partition < topics.sizes[topic]:
                raise UsageError(
                    f"{topic} has partitions 0 to {topics.sizes[topic] - 1}, not {idle.partition}"
                )
        silent = idle.after <= record.at - first < idle.after + idle.seconds
        if silent and (
            record.key is None or partition_of(record.key, sizes[record.stream]) == idle.partition
        ):
            outcome.skipped += 1
        else:
            yield record


class _Topics:
    """Topic names and sizes. A missing topic is an error: the broker would make it with its defaults."""

    def __init__(self, producer: Producer, topic_of: Callable[[str], str]) -> None:
        self._topic_of = topic_of
        self._producer = producer
        self.sizes = self._found()

    def of(self, stream: str) -> str:
        topic = self._topic_of(stream)
        # A topic that was made a moment ago may not be known to every broker yet.
        until = time.monotonic() + _NEW_TOPIC
        while topic not in self.sizes and time.monotonic() < until:
            time.sleep(0.05)
            self.sizes = self._found()
        if topic not in self.sizes:
            raise ServiceError(
                f"topic {topic} does not exist", hint="`headrace up` makes the topics of an app"
            )
        return topic

    def _found(self) -> dict[str, int]:
        try:
            found = self._producer.list_topics(timeout=30).topics
        except KafkaException as error:
            raise ServiceError(f"cannot ask Kafka for its topics: {error.args[0].str()}") from error
        return {name: len(topic.partitions) for name, topic in found.items()}


def _sleep_until(moment: float) -> None:
    wait = moment - time.monotonic()
    if wait > 0:
        time.sleep(wait)
