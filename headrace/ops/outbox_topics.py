"""Publishing what waits in an outbox of the store: to its topics, exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headrace.log.outbox import COMMIT_SECONDS, Lane, OutboxRecord, OutboxTopic
from headrace.store.connection import Connection, Store

AT_ONCE = 500


class Outbox(Protocol):
    def lanes(self, connection: Connection, queries: Sequence[str]) -> list[Lane]: ...
    def unpublished(
        self, connection: Connection, lane: Lane, after: int, limit: int
    ) -> list[OutboxRecord]: ...
    def note_published(self, connection: Connection, lane: Lane, position: int) -> None: ...


class OutboxTopics:
    """The topics of one kind of outbox, for some queries. Not for use by two threads."""

    def __init__(
        self,
        kind: str,
        outbox: Outbox,
        store: Store,
        queries: Sequence[str],
        options: dict[str, str],
        seconds: float = COMMIT_SECONDS,
    ) -> None:
        self._kind, self._outbox, self._seconds = kind, outbox, seconds
        self._store, self._queries, self._options = store, queries, options
        self._open: dict[tuple[str, str], tuple[OutboxTopic, int]] = {}  # and the last position

    def publish(self) -> int:
        """Publish what waits; returns how many events that were. After an error, call it again."""
        count = 0
        for lane in self._store.transact(lambda connection: self._outbox.lanes(connection, self._queries)):
            while published := self._publish(lane):
                count += published
        return count

    def close(self) -> None:
        for topic, _ in self._open.values():
            topic.close()
        self._open.clear()

    def _publish(self, lane: Lane) -> int:
        key = (lane.query, lane.topic)
        if key in self._open and self._open[key][0].is_lost:
            del self._open[key]
        if key not in self._open:
            if not self._waiting(lane, lane.published):
                return 0  # a producer is worth starting only for something
            topic = OutboxTopic(self._kind, lane, self._options, self._seconds)
            # The marker may be ahead of the store after a crash, and Kafka forgets old markers.
            self._open[key] = (topic, max(topic.open(), lane.published))
        topic, after = self._open[key]
        records = self._waiting(lane, after)
        if records:
            try:
                topic.publish(records)
            except BaseException:
                # A broker that went away has most likely left the producers of all lanes stuck: waiting for
                # the deadline of each, one after the other, would hold up everything for minutes.
                self._open.clear()
                raise
            after = records[-1].position
            self._open[key] = (topic, after)
        if after > lane.published:
            self._store.transact(lambda connection: self._outbox.note_published(connection, lane, after))
        return len(records)

    def _waiting(self, lane: Lane, after: int) -> list[OutboxRecord]:
        return self._store.transact(
            lambda connection: self._outbox.unpublished(connection, lane, after, AT_ONCE)
        )
