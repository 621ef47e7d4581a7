"""The outboxes of flows and alerts: what was put into one was published, or waits.

A recount asks the topics themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.joins import lane_name
from headrace.ops.audit_report import Finding, OutboxAudit
from headrace.store.connection import Connection

# Lanes that were there before anything was counted have no `sent`.
_LANES = """
    SELECT l.topic, l.query, coalesce(h.handed, 0), l.sent, (
        SELECT count(*) FROM headrace.outbox o WHERE o.query = l.query AND o.topic = l.topic
    )
    FROM headrace.outbox_lanes l
    LEFT JOIN headrace.outbox_handed h ON h.query = l.query AND h.topic = l.topic
    WHERE l.query = ANY(%s) AND l.sent IS NOT NULL ORDER BY l.topic, l.query
"""
# The events of alerts stay in their outbox for a while: what has left it is known by its position.
_ALERT_LANES = """
    SELECT l.topic, l.query, l.sent + w.waiting, l.sent, w.waiting
    FROM headrace.alert_lanes l CROSS JOIN LATERAL (
        SELECT count(*) AS waiting FROM headrace.alert_events e
        WHERE e.query = l.query AND e.topic = l.topic AND e.position > l.published
    ) w
    WHERE l.query = %s AND l.sent IS NOT NULL ORDER BY l.topic
"""
_JOINS = "SELECT flow FROM headrace.flow_sides WHERE query = %s AND side = 'left'"


def outbox_audits(connection: Connection, query: str) -> tuple[OutboxAudit, ...]:
    """Of the flows and alerts of a query; a join goes with its left side."""
    found = connection.execute("SELECT to_regclass('headrace.outbox_handed')").fetchone()
    if found is None or found[0] is None:
        return ()
    app = query.rpartition(".")[0]
    lanes = [query, *(lane_name(app, join) for (join,) in connection.execute(_JOINS, (query,)))]
    results = connection.execute(_LANES, (lanes,)).fetchall()
    alerts = connection.execute(_ALERT_LANES, (query,)).fetchall()
    return tuple(_audit(*row) for row in [*results, *alerts])


def outbox_findings(audits: Iterable[OutboxAudit]) -> Iterator[Finding]:
    for audit in audits:
        if audit.unaccounted:
            yield Finding("outbox", audit.topic, -1, audit.unaccounted, note=audit.note)


def _audit(topic: str, lane: str, handed: int, published: int, waiting: int) -> OutboxAudit:
    off = abs(handed - published - waiting)
    note = f"{lane}: {handed} put into the outbox, {published} published, {waiting} wait" if off else ""
    return OutboxAudit(topic, lane, handed, published, waiting, off, None, note)
