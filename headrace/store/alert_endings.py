"""Alerts that end without a look at a metric: their time is over, or what they stood on is gone."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.store.connection import Connection


def withdraw(connection: Connection, app: str, alert: str) -> None:
    """End the open alerts of a declaration that is gone, or means something else now."""
    found = connection.execute(
        "SELECT id FROM headrace.alerts WHERE app = %s AND alert = %s AND state = 'open'", (app, alert)
    ).fetchall()
    end_alerts(connection, [id_ for (id_,) in found], "withdrawn")


def end_alerts(connection: Connection, ids: Sequence[str], resolution: str) -> None:
    """Resolve those that are open, and tell it where they were told."""
    if ids:
        connection.execute(_END, {"ids": list(ids), "resolution": resolution})


_END = """
WITH gone AS (
    UPDATE headrace.alerts SET state = 'resolved', resolution = %(resolution)s, seq = seq + 1,
        updated_at = now(), resolved_at = now()
    WHERE id = ANY(%(ids)s) AND state = 'open'
    RETURNING *
), told AS (
    SELECT DISTINCT ON (id) * FROM headrace.alert_events WHERE id = ANY(%(ids)s) ORDER BY id, seq DESC
)
INSERT INTO headrace.alert_events (query, app, alert, id, seq, kind, payload, topic, webhook, delivery)
SELECT told.query, gone.app, gone.alert, gone.id, gone.seq, 'resolved',
    (told.payload::jsonb || jsonb_build_object('event_id', gone.id || '-' || gone.seq, 'seq', gone.seq,
        'kind', 'resolved', 'state', 'resolved', 'resolution', %(resolution)s, 'values', gone."values",
        'at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))::json,
    told.topic, told.webhook, CASE WHEN told.webhook = '' THEN '' ELSE 'waiting' END
FROM gone JOIN told USING (id)
ORDER BY gone.window_start, gone.id
"""
