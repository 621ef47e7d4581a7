"""Telling ordinary lag tools how far a query has read: its source offsets, as a consumer group's."""

from __future__ import annotations

import logging

from confluent_kafka import Consumer, KafkaException, TopicPartition

logger = logging.getLogger(__name__)


class ReadPosition:
    """Commits offsets for show; what decides is Spark's checkpoint, so a failure here is only logged."""

    def __init__(self, group: str, topic: str, options: dict[str, str]) -> None:
        self.group, self.topic = group, topic
        self._consumer = Consumer({**options, "group.id": group, "enable.auto.commit": "false"})

    def commit(self, end: dict[int, int]) -> None:
        places = [TopicPartition(self.topic, partition, offset) for partition, offset in end.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            logger.warning("group %s: offsets not committed: %s", self.group, error)

    def close(self) -> None:
        self._consumer.close()
