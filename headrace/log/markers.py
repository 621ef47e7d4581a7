"""Markers: offset commits inside transactions, that say how far a sink has published."""

from __future__ import annotations

import time

import confluent_kafka as kafka

from headrace.errors import ServiceError

WAIT_SECONDS = 60.0
LOADING = (
    kafka.KafkaError.NOT_COORDINATOR,
    kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
    kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    kafka.KafkaError._WAIT_COORD,
)


def committed(options: dict[str, str], group: str, place: kafka.TopicPartition) -> kafka.TopicPartition:
    """The group's offset, once no transaction that could change it is open."""
    until = time.monotonic() + WAIT_SECONDS
    consumer = kafka.Consumer({**options, "group.id": group, "isolation.level": "read_committed"})
    try:
        while True:
            try:
                [found] = consumer.committed([place], timeout=WAIT_SECONDS)
                return found
            except kafka.KafkaException as error:
                # A broker that has just started says so until its coordinator has loaded.
                if error.args[0].code() in LOADING and time.monotonic() < until:
                    time.sleep(0.1)
                    continue
                raise ServiceError(
                    f"cannot read the publishing marker of {group}: {error.args[0].str()}",
                    hint="is the broker up? headrace status tells",
                ) from error
    finally:
        consumer.close()
