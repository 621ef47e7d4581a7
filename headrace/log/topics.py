"""Making the topics that contracts ask for, and checking the ones that exist."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import KafkaError, NewTopic

from headrace.contracts.model import Contract
from headrace.contracts.topics import topic_configs
from headrace.declared import FlowTopic
from headrace.errors import ServiceError

WAIT_SECONDS = 30.0


def ensure_topics(contract: Contract, options: dict[str, str]) -> list[str]:
    """Create the contract's topics where they are missing; returns the new ones."""
    admin = AdminClient({**options})
    wanted = topic_configs(contract)
    present = partition_counts(admin, list(wanted))
    for topic, count in present.items():
        if count != wanted[topic].partitions:
            raise ServiceError(
                f"topic {topic} has {count} partitions, the contract says {wanted[topic].partitions}",
                where=str(contract.file),
                hint="set 'partitions' in the contract to what the topic has",
            )
    missing = [
        NewTopic(topic, num_partitions=settings.partitions, replication_factor=-1, config=settings.config)
        for topic, settings in wanted.items()
        if topic not in present
    ]
    _create(admin, missing)
    return [topic.topic for topic in missing]


def ensure_outputs(contract: Contract, topics: Collection[str], options: dict[str, str]) -> list[str]:
    """Create topics that are like the contract's validated one; returns the new ones."""
    if not topics:
        return []
    admin = AdminClient({**options})
    wanted = topic_configs(contract)[contract.topics.validated]
    present = partition_counts(admin, list(topics))
    for topic, count in present.items():
        if count < wanted.partitions:
            raise ServiceError(
                f"topic {topic} has {count} partitions, and {contract.name} has {wanted.partitions}",
                hint="an event keeps its partition: give the topic as many",
            )
    missing = [
        NewTopic(topic, num_partitions=wanted.partitions, replication_factor=-1, config=wanted.config)
        for topic in topics
        if topic not in present
    ]
    _create(admin, missing)
    return [topic.topic for topic in missing]


def ensure_alert_topics(topics: Collection[str], keep: timedelta, options: dict[str, str]) -> list[str]:
    """Create the topics of alerts where they are missing; one partition keeps their order."""
    if not topics:
        return []
    admin = AdminClient({**options})
    present = partition_counts(admin, list(topics))
    config = {"cleanup.policy": "delete", "retention.ms": str(keep // timedelta(milliseconds=1))}
    missing = [
        NewTopic(topic, num_partitions=1, replication_factor=-1, config=config)
        for topic in sorted(topics)
        if topic not in present
    ]
    _create(admin, missing)
    return [topic.topic for topic in missing]


def ensure_flow_topics(topics: Collection[FlowTopic], options: dict[str, str]) -> list[str]:
    """Create the topics of flows where they are missing; one that is there stays as it is."""
    if not topics:
        return []
    admin = AdminClient({**options})
    present = partition_counts(admin, [topic.name for topic in topics])
    missing = [
        NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            replication_factor=-1,
            config={
                "cleanup.policy": "delete",
                "retention.ms": str(topic.keep // timedelta(milliseconds=1)),
            },
        )
        for topic in sorted(topics)
        if topic.name not in present
    ]
    _create(admin, missing)
    return [topic.topic for topic in missing]


def _create(admin: AdminClient, missing: list[NewTopic]) -> None:
    if not missing:
        return
    for topic, done in admin.create_topics(missing, operation_timeout=WAIT_SECONDS).items():
        try:
            done.result(WAIT_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise ServiceError(f"cannot create topic {topic}: {error.args[0].str()}") from error


def partition_counts(admin: AdminClient, topics: list[str]) -> dict[str, int]:
    try:
        known = admin.list_topics(timeout=WAIT_SECONDS).topics
    except KafkaException as error:
        raise ServiceError(
            f"the broker does not answer: {error.args[0].str()}", hint="headrace status tells what is running"
        ) from error
    return {topic: len(known[topic].partitions) for topic in topics if topic in known}
