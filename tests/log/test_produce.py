"""Sending: every record arrives once, where Java would put it, at the asked pace, or there is an error."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from random import Random
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.errors import ServiceError, UsageError
from headrace.local.services import Services
from headrace.log.produce import Idle, at_rate, on_time, partition_of, produce
from headrace.log.record import Record

PARTITIONS = 4


def some(count: int, gap: float = 0.001) -> list[Record]:
    return [Record("s", b"c-%d" % (n % 97), b"value %d" % n, 1000.0 + n * gap) for n in range(count)]


@pytest.mark.parametrize(
    ("key", "hashed"),
    [  # from Kafka's own UtilsTest
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_are_hashed_as_in_java(key: bytes, hashed: int) -> None:
    assert partition_of(key, 1 << 31) == hashed & 0x7FFFFFFF
    assert partition_of(key, 7) == (hashed & 0x7FFFFFFF) % 7


def test_a_rate_is_kept_without_drift() -> None:
    began = time.monotonic()
    count = sum(1 for _ in at_rate(some(1000), 5000))
    assert count == 1000
    assert 0.18 < time.monotonic() - began < 2


def test_on_time_follows_the_simulated_clock_and_catches_up() -> None:
    began = time.monotonic()
    for number, _ in enumerate(on_time(some(200, gap=0.002))):
        if number == 50:
            time.sleep(0.15)
    assert 0.38 < time.monotonic() - began < 0.55


def test_a_rate_of_zero_is_refused() -> None:
    with pytest.raises(UsageError, match="rate"):
        next(at_rate(some(1), 0))


@pytest.fixture
def topic(services: Services) -> Iterator[str]:
    admin = AdminClient({"bootstrap.servers": services.bootstrap})
    name = f"produce-{uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    yield name
    admin.delete_topics([name])[name].result(30)


def read(services: Services, topic: str, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    consumer = Consumer(
        {"bootstrap.servers": services.bootstrap, "group.id": "t", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    found: list[tuple[int, bytes | None, bytes | None]] = []
    until = time.monotonic() + 30
    while len(found) < count and time.monotonic() < until:
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None
            found.append((message.partition() or 0, message.key(), message.value()))
    consumer.close()
    return found


def test_every_record_arrives_once_in_its_partition(services: Services, topic: str) -> None:
    records = some(3000)
    seen: list[int] = []
    done = produce(
        records,
        {"bootstrap.servers": services.bootstrap},
        lambda _: topic,
        on_progress=lambda p: seen.append(p.sent),
    )
    assert (done.sent, done.delivered, done.failed, done.streams) == (3000, 3000, 0, {"s": 3000})
    found = read(services, topic, 3000)
    assert Counter(value for _, _, value in found) == Counter(record.value for record in records)
    assert all(partition == partition_of(key or b"", PARTITIONS) for partition, key, _ in found)
    assert seen[-1] == 3000


def test_a_full_queue_is_waited_for(services: Services, topic: str) -> None:
    tight = {
        "bootstrap.servers": services.bootstrap,
        "queue.buffering.max.messages": 50,
        "batch.num.messages": 10,
    }
    assert produce(some(2000), tight, lambda _: topic).delivered == 2000


def test_an_idle_partition_gets_nothing_for_its_while(services: Services, topic: str) -> None:
    records = [*some(1000), Record("s", None, b"no key", 1000.5)]
    records.sort(key=lambda record: record.at)
    options = {"bootstrap.servers": services.bootstrap}
    idle = Idle(partition=1, after=0.2, seconds=0.5)
    done = produce(records, options, lambda _: topic, idle=idle)
    expected = [
        r
        for r in records
        if not (0.2 <= r.at - 1000 < 0.7 and (not r.key or partition_of(r.key, PARTITIONS) == 1))
    ]
    assert done.skipped == 1001 - len(expected) > 50
    found = read(services, topic, done.sent)
    assert Counter(value for _, _, value in found) == Counter(record.value for record in expected)


def test_an_idle_partition_must_exist(services: Services, topic: str) -> None:
    with pytest.raises(UsageError, match="partitions 0 to 3, not 4"):
        produce(some(1), {"bootstrap.servers": services.bootstrap}, lambda _: topic, idle=Idle(4))


def test_a_missing_topic_is_an_error_and_is_not_made(services: Services) -> None:
    options = {"bootstrap.servers": services.bootstrap}
    with pytest.raises(ServiceError, match="nowhere does not exist"):
        produce(some(1), options, lambda _: "nowhere")
    assert "nowhere" not in AdminClient({**options}).list_topics(timeout=30).topics


def test_a_record_that_cannot_be_delivered_is_counted_and_raised(services: Services, topic: str) -> None:
    options = {"bootstrap.servers": services.bootstrap, "message.max.bytes": 10_000_000}
    records = [Record("s", b"k", Random(1).randbytes(5_000_000), 0.0), *some(10)]
    with pytest.raises(ServiceError, match="1 of 11 records were not delivered"):
        produce(records, options, lambda _: topic)
    assert len(read(services, topic, 10)) == 10
