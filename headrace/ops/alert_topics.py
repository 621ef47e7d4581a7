"""Publishing the events of alerts: from the outbox in the store to their topics, exactly once."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headrace.log.outbox import OutboxRecord, OutboxTopic
from headrace.store.alert_outbox import Lane, OutboxRow, lanes, note_published, unpublished
from headrace.store.connection import Store

logger = logging.getLogger(__name__)

AT_ONCE = 500


class AlertTopics:
    """The topics of the alerts of some queries. Not for use by two threads."""

    def __init__(self, store: Store, queries: Sequence[str], options: dict[str, str]) -> None:
        self._store, self._queries, self._options = store, queries, options
        self._open: dict[tuple[str, str], tuple[OutboxTopic, int]] = {}  # and the last position

    def publish(self) -> int:
        """Publish what waits; returns how many events that were. After an error, call it again."""
        count = 0
        for lane in self._store.transact(lambda connection: lanes(connection, self._queries)):
            while published := self._publish(lane):
                count += published
        return count

    def close(self) -> None:
        for topic, _ in self._open.values():
            topic.close()
        self._open.clear()

    def _publish(self, lane: Lane) -> int:
        key = (lane.query, lane.topic)
        if key not in self._open:
            if not self._waiting(lane, lane.published):
                return 0  # a producer is worth starting only for something
            topic = OutboxTopic(lane.query, lane.topic, lane.epoch, self._options)
            # The marker may be ahead of the store after a crash, and Kafka forgets old markers.
            self._open[key] = (topic, max(topic.open(), lane.published))
        topic, after = self._open[key]
        rows = self._waiting(lane, after)
        if rows:
            try:
                topic.publish([_record(lane, row) for row in rows])
            except BaseException:
                del self._open[key]
                raise
            after = rows[-1].position
            self._open[key] = (topic, after)
        if after > lane.published:
            self._store.transact(lambda connection: note_published(connection, lane, after))
        return len(rows)

    def _waiting(self, lane: Lane, after: int) -> list[OutboxRow]:
        return self._store.transact(lambda connection: unpublished(connection, lane, after, AT_ONCE))


def _record(lane: Lane, row: OutboxRow) -> OutboxRecord:
    headers = {
        "headrace-alert": f"{row.app}.{row.alert}",
        "headrace-event": f"{row.id}-{row.seq}",
        "headrace-query": lane.query,
        "headrace-position": str(row.position),
    }
    about = [(name, value.encode()) for name, value in headers.items()]
    return OutboxRecord(row.position, row.id.encode(), row.payload.encode(), about)
