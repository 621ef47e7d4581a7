"""The outboxes of flows: what was put into one was published, or waits. A recount asks the topic itself."""

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
_JOINS = "SELECT flow FROM headrace.flow_sides WHERE query = %s AND side = 'left'"


def outbox_audits(connection: Connection, query: str) -> tuple[OutboxAudit, ...]:
    """Of the flows of a query; a join goes with its left side."""
    found = connection.execute("SELECT to_regclass('headrace.outbox_handed')").fetchone()
    if found is None or found[0] is None:
        return ()
    app = query.rpartition(".")[0]
    lanes = [query, *(lane_name(app, join) for (join,) in connection.execute(_JOINS, (query,)))]
    return tuple(_audit(*row) for row in connection.execute(_LANES, (lanes,)))


def outbox_findings(audits: Iterable[OutboxAudit]) -> Iterator[Finding]:
    for audit in audits:
        if audit.unaccounted:
            yield Finding("outbox", audit.topic, -1, audit.unaccounted, note=audit.note)


def _audit(topic: str, lane: str, handed: int, published: int, waiting: int) -> OutboxAudit:
    off = abs(handed - published - waiting)
    note = f"{lane}: {handed} put into the outbox, {published} published, {waiting} wait" if off else ""
    return OutboxAudit(topic, lane, handed, published, waiting, off, None, note)
