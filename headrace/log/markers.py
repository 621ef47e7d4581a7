"""Transactions with a marker: an offset commit inside each, that says how far a sink has published.

What a sink needs around its records: taking over from whoever had its transactional id before, the marker,
and being sure of a commit. Calls that librdkafka may never return from have a deadline of their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka as kafka

from headrace.errors import ServiceError

WAIT_SECONDS = 60.0
LOADING = (
    kafka.KafkaError.NOT_COORDINATOR,
    kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
    kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    kafka.KafkaError._WAIT_COORD,
)


class NoAnswer(ServiceError):
    """A call has not returned in time; it may still be under way."""


class Contact:
    """Whether a producer has lost its brokers since it was ready.

    It goes on with what it knew of them: it may wait for ever for a coordinator of before, though the broker
    has long come back. Between two transactions nothing is lost with it, and another one takes no time.
    """

    def __init__(self) -> None:
        self._is_lost = False

    def note(self, error: kafka.KafkaError) -> None:
        """librdkafka calls it; one broker of several that is away is none of its business."""
        self._is_lost = self._is_lost or error.code() == kafka.KafkaError._ALL_BROKERS_DOWN

    def begin(self, producer: kafka.Producer) -> None:
        """The producer is ready: whom it did not reach before does not matter."""
        producer.poll(0)
        self._is_lost = False

    def is_lost(self, producer: kafka.Producer) -> bool:
        producer.poll(0)
        return self._is_lost


def within(seconds: float, call: Callable[[], None]) -> None:
    """Make a call that librdkafka may never return from when the broker dies in the middle of it."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise NoAnswer(f"Kafka has not answered for {seconds:.0f} s")
    if failed:
        raise failed[0]


def take_over(
    producer: kafka.Producer,
    options: dict[str, str],
    topics: Sequence[str],
    groups: Sequence[str],
    seconds: float = WAIT_SECONDS,
) -> None:
    """Fence the earlier owner of the producer's id, and abort whatever of it is still open anywhere.

    A broker that dies between the two steps of a commit, and comes back before it knows its partitions, calls
    the transaction complete without having told them. There it stays open, and would be committed or aborted
    with the next one of this id: so one over all partitions is aborted here, before anything is read or sent.
    """
    limit = seconds + 5
    within(limit, lambda: producer.init_transactions(seconds))
    producer.begin_transaction()
    for topic in topics:
        for partition in producer.list_topics(topic, timeout=seconds).topics[topic].partitions:
            producer.produce(topic, b"", partition=partition)
    producer.flush(seconds)
    for group in groups:
        place, about = kafka.TopicPartition(topics[0], 0, 0), group_metadata(options, group)
        within(limit, lambda p=place, a=about: producer.send_offsets_to_transaction([p], a, seconds))  # type: ignore[misc]
    within(limit, lambda: producer.abort_transaction(seconds))


def group_metadata(options: dict[str, str], group: str) -> Any:
    consumer = kafka.Consumer({**options, "group.id": group})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


def marker_reader(options: dict[str, str], group: str) -> kafka.Consumer:
    return kafka.Consumer({**options, "group.id": group, "isolation.level": "read_committed"})


def committed(options: dict[str, str], group: str, place: kafka.TopicPartition) -> kafka.TopicPartition:
    """The group's marker, once no transaction that could change it is open."""
    reader = marker_reader(options, group)
    try:
        return read_marker(reader, place)
    except kafka.KafkaException as error:
        raise ServiceError(
            f"cannot read the publishing marker of {group}: {error.args[0].str()}",
            hint="is the broker up? headrace status tells",
        ) from error
    finally:
        reader.close()


def read_marker(
    reader: kafka.Consumer, place: kafka.TopicPartition, seconds: float = WAIT_SECONDS
) -> kafka.TopicPartition:
    until = time.monotonic() + seconds
    while True:
        try:
            [found] = reader.committed([kafka.TopicPartition(place.topic, place.partition)], timeout=seconds)
            return found
        except kafka.KafkaException as error:
            # A broker that has just started says so until its coordinator has loaded.
            if error.args[0].code() not in LOADING or time.monotonic() > until:
                raise
            time.sleep(0.1)


def confirm(reader: kafka.Consumer, marker: kafka.TopicPartition, seconds: float) -> None:
    """Wait until the commit of the marker can be read: until then a crash of the broker may still undo it."""
    if read_marker(reader, marker, seconds).offset != marker.offset:
        raise ServiceError(
            f"Kafka has acknowledged a commit to {marker.topic} and does not have it",
            hint="nothing is lost: it is published again",
        )
