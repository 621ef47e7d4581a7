"""The accounts of flows: taken = matched + unmatched + pending + late, for each side, since its first batch.

The totals are kept in the transactions of the batches. They are held against what was written beside them:
the ledger of each batch, the rows that wait, and the rows of results and dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from psycopg import sql

from headrace.ops.audit_report import Finding, FlowAudit
from headrace.store.connection import Connection
from headrace.store.join_names import letter_table, result_table

_SIDES = """
    SELECT flow, side, first_batch, taken, matched, unmatched, late, pending_in
    FROM headrace.flow_sides WHERE query = %s ORDER BY flow, side
"""
# In every batch since its first a side has a row, which accepted what the gate did.
_LEDGER = """
    SELECT min(b.batch_id), coalesce(sum(f.taken), 0)::bigint, coalesce(sum(f.late), 0)::bigint,
           count(*) FILTER (WHERE f.batch_id IS NULL OR f.accepted <> g.accepted
               OR f.taken > f.accepted OR f.late > f.taken)
    FROM headrace.batches b
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(accepted), 0) AS accepted FROM headrace.ledger l
        WHERE l.query = b.query AND l.batch_id = b.batch_id
    ) g
    LEFT JOIN headrace.flow_ledger f
        ON f.query = b.query AND f.batch_id = b.batch_id AND f.flow = %(flow)s AND f.side = %(side)s
    WHERE b.query = %(query)s AND b.batch_id >= %(first)s
"""
_JOIN = "SELECT matches - old_matches, letters - old_letters FROM headrace.joins WHERE app = %s AND name = %s"


def flow_audits(connection: Connection, query: str) -> tuple[FlowAudit, ...]:
    """Of all sides of flows that take events of a query."""
    found = connection.execute("SELECT to_regclass('headrace.flow_sides')").fetchone()
    if found is None or found[0] is None:
        return ()
    rows = connection.execute(_SIDES, (query,)).fetchall()
    return tuple(_audit(connection, query, *row) for row in rows)


def flow_findings(topic: str, audits: Iterable[FlowAudit]) -> Iterator[Finding]:
    for audit in audits:
        if audit.unaccounted:
            note = f"flow {audit.flow}, {audit.side}: {'; '.join(audit.notes)}"
            yield Finding("flow", topic, -1, audit.unaccounted, note=note)


def _audit(
    connection: Connection,
    query: str,
    flow: str,
    side: str,
    first: int,
    taken: int,
    matched: int,
    unmatched: int,
    late: int,
    pending_in: list[str] | None,
) -> FlowAudit:
    pending = _pending(connection, pending_in)
    off = {
        f"{taken} taken, {matched + unmatched + pending + late} accounted for": abs(
            taken - matched - unmatched - pending - late
        )
    }
    place = {"query": query, "flow": flow, "side": side, "first": first}
    kept = connection.execute(_LEDGER, place).fetchone()
    oldest, in_ledger, late_in_ledger, wrong = kept or (None, 0, 0, 0)
    off[f"{wrong} batches differ from the ledger of the gate"] = wrong
    if oldest == first:  # nothing of it has been forgotten yet
        off[f"{taken} taken, {in_ledger} in its ledger"] = abs(taken - in_ledger)
        off[f"{late} late, {late_in_ledger} in its ledger"] = abs(late - late_in_ledger)
    if side == "left":
        off |= _tables(connection, query.rpartition(".")[0], flow)
    return FlowAudit(
        *(flow, side, taken, matched, unmatched, pending, late, sum(off.values())),
        tuple(note for note, count in off.items() if count),
    )


def _pending(connection: Connection, table: list[str] | None) -> int:
    if table is None:
        return 0
    found = connection.execute(
        sql.SQL("SELECT count(*) FROM {} WHERE NOT matched").format(sql.Identifier(*table))
    ).fetchone()
    return int(found[0]) if found else 0


def _tables(connection: Connection, app: str, flow: str) -> dict[str, int]:
    """Whether the rows of a join's tables are those that were written and are not too old."""
    written = connection.execute(_JOIN, (app, flow)).fetchone()
    if written is None:
        return {}  # a flow of another kind
    off = {}
    for what, wanted, table in (
        ("matches", written[0], result_table(app, flow)),
        ("dead letters", written[1], letter_table(app, flow)),
    ):
        found = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(table)).fetchone()
        there = found[0] if found else 0
        off[f"{wanted} {what} written, {there} there"] = abs(wanted - there)
    return off
