"""Records of an outbox to a topic, exactly once: the position goes into the transaction of the records.

The position is an offset commit, as the marker of a batch is. After a crash it says what was published,
whatever the store had noted; the next producer takes over the transactional id first, so that nothing of an
earlier process can still be committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import confluent_kafka as kafka

from headrace.crash import crash_point
from headrace.errors import ServiceError
from headrace.log.markers import (
    Contact,
    committed,
    confirm,
    group_metadata,
    marker_reader,
    take_over,
    within,
)

COMMIT_SECONDS = 30.0
ANY_PARTITION = -1  # the one of its key
MORE_SECONDS = 5.0  # until a call that has not kept its own deadline is given up
PRODUCER = {
    "enable.idempotence": "true",
    "acks": "all",
    "linger.ms": "5",
    "message.max.bytes": "2000000",
    "transaction.timeout.ms": "60000",
    "reconnect.backoff.max.ms": "1000",
}


@dataclass(frozen=True)
class Lane:
    """What one query writes to one topic."""

    query: str
    topic: str
    epoch: str
    published: int  # the last position, as far as the store knows


class OutboxRecord(NamedTuple):
    position: int
    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes | None]]
    partition: int = ANY_PARTITION


class OutboxTopic:
    """A lane of one kind of outbox. Its epoch names the store that counts the positions."""

    def __init__(
        self, kind: str, lane: Lane, options: dict[str, str], seconds: float = COMMIT_SECONDS
    ) -> None:
        self.topic, self._epoch, self._options = lane.topic, lane.epoch, options
        self._seconds, self._limit = seconds, seconds + MORE_SECONDS
        self._transactional_id = f"{lane.query}.{kind}.{lane.topic}"
        self._group = f"{lane.query}.{kind}.marker"
        self._producer: kafka.Producer | None = None
        self._contact = Contact()

    @property
    def is_lost(self) -> bool:
        """Whether it has to be replaced before anything is published."""
        return self._producer is not None and self._contact.is_lost(self._producer)

    def open(self) -> int:
        """Take over; returns the last position that was published, 0 if none or of another store."""
        self.close()
        # Nothing hangs on for good: a producer that does not answer is left behind and fenced by the next.
        own: dict[str, Any] = {"transactional.id": self._transactional_id, "error_cb": self._contact.note}
        producer = kafka.Producer({**PRODUCER, **self._options, **own})
        take_over(producer, self._options, [self.topic], [self._group], self._seconds)
        marker = committed(self._options, self._group, kafka.TopicPartition(self.topic, 0))
        self._producer = producer
        self._contact.begin(producer)
        return marker.offset - 1 if marker.offset >= 0 and marker.metadata == self._epoch else 0

    def publish(self, records: Sequence[OutboxRecord]) -> None:
        """All or nothing. After an error nobody knows which: `open` again, and it tells."""
        producer = self._producer
        assert producer is not None, "open comes first"
        crash_point("before_outbox_publish")
        try:
            producer.begin_transaction()
            for record in records:
                about: Any = list(record.headers)
                producer.produce(self.topic, record.value, record.key, record.partition, headers=about)
            place = kafka.TopicPartition(self.topic, 0, records[-1].position + 1, metadata=self._epoch)
            marker = ([place], group_metadata(self._options, self._group), self._seconds)
            within(self._limit, lambda: producer.send_offsets_to_transaction(*marker))
            crash_point("before_outbox_commit")
            within(self._limit, lambda: producer.commit_transaction(self._seconds))
            self._confirm(place)
            crash_point("after_outbox_commit")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(kafka.KafkaException, ServiceError):
                within(self._limit, lambda: producer.abort_transaction(5.0))

    def _confirm(self, place: kafka.TopicPartition) -> None:
        reader = marker_reader(self._options, self._group)
        try:
            within(self._limit, lambda: confirm(reader, place, self._seconds))
        finally:
            reader.close()
