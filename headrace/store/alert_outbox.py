"""The outbox of alerts: what waits for a topic, what waits for a webhook."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from headrace.log.outbox import Lane, OutboxRecord
from headrace.store.connection import Connection


class Delivery(NamedTuple):
    """An event that waits for its webhook."""

    position: int
    webhook: str
    event_id: str
    payload: str
    attempts: int


class AlertOutbox:
    """What the publisher of topics asks of an outbox."""

    def lanes(self, connection: Connection, queries: Sequence[str]) -> list[Lane]:
        rows = connection.execute(
            "SELECT query, topic, epoch::text, published FROM headrace.alert_lanes WHERE query = ANY(%s)"
            " ORDER BY query, topic",
            (list(queries),),
        )
        return [Lane(*row) for row in rows]

    def unpublished(self, connection: Connection, lane: Lane, after: int, limit: int) -> list[OutboxRecord]:
        """In the order in which they were committed: a query has one writer, which holds a lock."""
        rows = connection.execute(
            "SELECT position, app, alert, id, seq, payload::text FROM headrace.alert_events"
            " WHERE query = %s AND topic = %s AND position > %s ORDER BY position LIMIT %s",
            (lane.query, lane.topic, after, limit),
        )
        return [_record(lane, *row) for row in rows]

    def note_published(self, connection: Connection, lane: Lane, position: int) -> None:
        connection.execute(
            "UPDATE headrace.alert_lanes l SET published = greatest(published, %(position)s),"
            " published_at = now(), sent = sent + (SELECT count(*) FROM headrace.alert_events e"
            " WHERE e.query = l.query AND e.topic = l.topic AND e.position > l.published"
            " AND e.position <= %(position)s) WHERE query = %(query)s AND topic = %(topic)s",
            {"position": position, "query": lane.query, "topic": lane.topic},
        )


def _record(
    lane: Lane, position: int, app: str, alert: str, id_: str, seq: int, payload: str
) -> OutboxRecord:
    headers = {
        "headrace-alert": f"{app}.{alert}",
        "headrace-event": f"{id_}-{seq}",
        "headrace-query": lane.query,
        "headrace-position": str(position),
    }
    about = [(name, value.encode()) for name, value in headers.items()]
    return OutboxRecord(position, id_.encode(), payload.encode(), about)


def due_deliveries(connection: Connection, queries: Sequence[str], limit: int) -> list[Delivery]:
    """Those whose turn has come; an event waits for the earlier ones of its alert."""
    rows = connection.execute(
        "SELECT position, webhook, id || '-' || seq, payload::text, attempts FROM headrace.alert_events e"
        " WHERE query = ANY(%s) AND delivery = 'waiting' AND next_attempt_at <= now() AND NOT EXISTS"
        " (SELECT 1 FROM headrace.alert_events b WHERE b.id = e.id AND b.seq < e.seq"
        " AND b.delivery = 'waiting') ORDER BY position LIMIT %s",
        (list(queries), limit),
    )
    return [Delivery(*row) for row in rows]


def note_delivered(connection: Connection, position: int) -> None:
    connection.execute(
        "UPDATE headrace.alert_events SET delivery = 'delivered', attempts = attempts + 1, last_error = ''"
        " WHERE position = %s",
        (position,),
    )


def note_failed(
    connection: Connection, position: int, error: str, pause: timedelta, *, give_up: bool
) -> None:
    connection.execute(
        "UPDATE headrace.alert_events SET attempts = attempts + 1, last_error = %s,"
        " next_attempt_at = now() + %s, delivery = CASE WHEN %s THEN 'dead' ELSE delivery END"
        " WHERE position = %s",
        (error, pause, give_up, position),
    )
