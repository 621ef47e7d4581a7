"""Lag in records and true seconds, against a broker whose truth the delivery reports tell."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.errors import ServiceError
from headrace.local.connect import connections_of
from headrace.local.services import Services
from headrace.log.lag import LagReader, PartitionLag

TOPIC, OTHER = "lag.truth", "lag.transactions"
RIGHT_WITHIN = 1.0


@pytest.fixture(scope="module")
def options(services: Services) -> dict[str, str]:
    options = connections_of(services).librdkafka
    stamped = {"message.timestamp.type": "LogAppendTime"}
    admin = AdminClient({**options})
    for made in admin.create_topics([NewTopic(t, 2, -1, config=stamped) for t in (TOPIC, OTHER)]).values():
        made.result(30)
    return options


@pytest.fixture
def reader(options: dict[str, str]) -> Iterator[LagReader]:
    reader = LagReader(options)
    yield reader
    reader.close()


def send(producer: Producer, topic: str, partition: int, count: int) -> list[float]:
    """The log times that the broker gave to the records."""
    times: list[float] = []

    def delivered(_error: object, message: Message) -> None:
        times.append(message.timestamp()[1] / 1000)

    for _ in range(count):
        producer.produce(topic, b"x" * 300, partition=partition, on_delivery=delivered)
    assert producer.flush(20) == 0
    return times


def wait_until(moment: float) -> None:
    while time.time() < moment:
        time.sleep(0.01)


def lag_at_end(reader: LagReader, end: int) -> PartitionLag:
    """The lag of a reader at offset 3, once the broker has written the marker: commits return before."""
    until = time.monotonic() + 20
    while (lag := reader.lags({OTHER: {0: 3}})[OTHER][0]).end < end:
        assert time.monotonic() < until
    return lag


def test_seconds_are_the_age_of_the_next_unread_record(options: dict[str, str], reader: LagReader) -> None:
    producer = Producer({**options})
    times = send(producer, TOPIC, 0, 3)
    wait_until(times[-1] + 1.5)
    times += send(producer, TOPIC, 0, 4)

    for position in (None, 0, 2, 3, 6):
        lag = reader.lags({TOPIC: {0: position, 1: None}})[TOPIC]
        true = time.time() - times[position or 0]
        assert lag[0].records == 7 - (position or 0)
        assert lag[0].seconds == pytest.approx(true, abs=RIGHT_WITHIN)
        assert (lag[1].records, lag[1].seconds) == (0, 0.0)

    # The topic goes quiet: the record that waits grows older, and no new record is needed to see it.
    wait_until(times[3] + 3.0)
    quiet = reader.lags({TOPIC: {0: 3}})[TOPIC][0]
    assert quiet.seconds == pytest.approx(time.time() - times[3], abs=RIGHT_WITHIN)
    assert quiet.seconds is not None and quiet.seconds >= 3.0

    read = reader.lags({TOPIC: {0: 7}})[TOPIC][0]
    assert (read.records, read.seconds, read.end) == (0, 0.0, 7)


def test_a_record_is_fetched_once_while_the_position_stays(
    options: dict[str, str], reader: LagReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(Producer({**options}), TOPIC, 1, 5)
    first = reader.lags({TOPIC: {1: 2}})[TOPIC][1]

    def refuse() -> None:
        raise AssertionError("the log was asked again")

    monkeypatch.setattr(reader, "_connected", refuse)
    again = reader.lags({TOPIC: {1: 2}})[TOPIC][1]
    assert first.seconds is not None and again.seconds is not None
    assert (again.records, again.seconds >= first.seconds) == (3, True)
    with pytest.raises(AssertionError):
        reader.lags({TOPIC: {1: 3}})


def test_markers_of_transactions_are_no_unread_records(options: dict[str, str], reader: LagReader) -> None:
    producer = Producer({**options, "transactional.id": "lag-test"})
    producer.init_transactions(30)
    producer.begin_transaction()
    send(producer, OTHER, 0, 3)
    producer.commit_transaction(30)
    after_commit = lag_at_end(reader, 4)  # the marker has an offset of its own
    assert (after_commit.records, after_commit.seconds) == (0, 0.0)

    producer.begin_transaction()
    send(producer, OTHER, 0, 2)
    producer.abort_transaction(30)
    aborted = lag_at_end(reader, 7)
    assert (aborted.records, aborted.seconds) == (0, 0.0)

    producer.begin_transaction()
    [written, *_] = send(producer, OTHER, 0, 1)
    producer.commit_transaction(30)
    behind = lag_at_end(reader, 9)
    assert behind.records == 2, "what lies between the record and the end counts, its marker too"
    assert behind.seconds == pytest.approx(time.time() - written, abs=RIGHT_WITHIN)


def test_a_broker_that_is_away_is_an_error_within_the_deadline() -> None:
    reader = LagReader({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, wait_seconds=1.0)
    began = time.monotonic()
    with pytest.raises(ServiceError, match="does not answer"):
        reader.lags({TOPIC: {0: 0}})
    assert time.monotonic() - began < 5
