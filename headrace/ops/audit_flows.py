"""The accounts of flows: accepted = filtered + the outcomes, for every flow and side, since its first batch.

The sums are kept in the transactions of the batches. They are held against what was written beside them:
the ledger of each batch, the rows of the tables, and what is kept for later events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from headrace.ops.audit_flow_tables import table_differences
from headrace.ops.audit_report import Finding, FlowAudit, MetricAudit
from headrace.ops.pipeline_flows import FlowFacts, flow_facts
from headrace.store.connection import Connection

# From its first batch on a flow has a row in every one that accepted something: until its last, or to the end
# if it is declared. What it accepted must be what the gate did.
_LEDGER = """
    SELECT min(b.batch_id), coalesce(sum(f.taken), 0)::bigint, coalesce(sum(f.late), 0)::bigint,
           count(*) FILTER (WHERE coalesce(f.accepted, 0) <> g.accepted
               OR f.taken > f.accepted OR f.late > f.taken)
    FROM headrace.batches b
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(accepted), 0) AS accepted FROM headrace.ledger l
        WHERE l.query = b.query AND l.batch_id = b.batch_id
    ) g
    LEFT JOIN headrace.flow_ledger f
        ON f.query = b.query AND f.batch_id = b.batch_id AND f.flow = %(flow)s AND f.side = %(side)s
    WHERE b.query = %(query)s AND b.batch_id >= %(first)s AND (%(declared)s OR b.batch_id <= (
        SELECT max(batch_id) FROM headrace.flow_ledger
        WHERE query = %(query)s AND flow = %(flow)s AND side = %(side)s
    ))
"""
# Sessions write into the ledger of metrics, which is checked batch by batch with those.
_SESSION_LEDGER = """
    SELECT min(b.batch_id), coalesce(sum(m.accepted - m.filtered), 0)::bigint,
           coalesce(sum(m.late), 0)::bigint, 0
    FROM headrace.batches b
    LEFT JOIN headrace.metric_ledger m
        ON m.query = b.query AND m.batch_id = b.batch_id AND m.metric = %(name)s
    WHERE b.query = %(query)s AND b.batch_id >= %(first)s
"""


def flow_audits(
    connection: Connection,
    query: str,
    declared: Collection[str] | None = None,
    metrics: Iterable[MetricAudit] = (),
) -> tuple[FlowAudit, ...]:
    """Of all flows that take events of a query, and of all sides of joins.

    `declared` are the accounts that the app declares now, None for all that were found: the others end with
    their last batch. `metrics` are the accounts of metrics and sessions, batch by batch.
    """
    found = connection.execute("SELECT to_regclass('headrace.flow_totals')").fetchone()
    if found is None or found[0] is None:
        return ()
    by_batch = {audit.metric: audit for audit in metrics}
    return tuple(
        _audit(connection, facts, declared is None or facts.account in declared, by_batch)
        for facts in flow_facts(connection, [query])
    )


def flow_findings(topic: str, audits: Iterable[FlowAudit]) -> Iterator[Finding]:
    for audit in audits:
        if audit.unaccounted:
            name = f"{audit.flow}, {audit.side}" if audit.side else audit.flow
            note = f"{audit.kind} {name}: {'; '.join(audit.notes)}"
            yield Finding("flow", topic, -1, audit.unaccounted, note=note)


def _audit(
    connection: Connection, facts: FlowFacts, declared: bool, by_batch: Mapping[str, MetricAudit]
) -> FlowAudit:
    outcomes, off = table_differences(connection, facts)
    off |= _sums(facts, outcomes)
    off |= _ledger(connection, facts, declared)
    if facts.kind == "sessions" and facts.flow in by_batch:
        wrong = by_batch[facts.flow]
        off[f"batches {wrong.named}: accepted is not counted + filtered + late"] = wrong.unaccounted
    return FlowAudit(
        *(facts.flow, facts.kind, facts.side, facts.accepted, facts.taken, outcomes, sum(off.values())),
        tuple(note for note, count in off.items() if count),
    )


def _sums(facts: FlowFacts, outcomes: Mapping[str, int]) -> dict[str, int]:
    with_outcome = sum(outcomes.values())
    off = {f"{facts.taken} taken, {with_outcome} accounted for": abs(facts.taken - with_outcome)}
    if facts.filtered is not None and facts.filtered < 0:
        off[f"{facts.accepted} accepted, {facts.taken} taken"] = -facts.filtered
    if facts.kind == "enrichment":
        off[f"{facts.accepted} accepted, {facts.taken} enriched"] = abs(facts.filtered or 0)
    return off


def _ledger(connection: Connection, facts: FlowFacts, declared: bool) -> dict[str, int]:
    if facts.first_batch is None:
        return {}
    statement = _SESSION_LEDGER if facts.kind == "sessions" else _LEDGER
    place: dict[str, Any] = {"query": facts.query, "flow": facts.account, "name": facts.flow}
    place |= {"side": facts.side, "first": facts.first_batch, "declared": declared}
    kept = connection.execute(statement, place).fetchone()
    oldest, taken, late, wrong = kept or (None, 0, 0, 0)
    off = {f"{wrong} batches differ from the ledger of the gate": wrong}
    if oldest == facts.first_batch:  # nothing of it has been forgotten yet
        # What was there before the first batch is in no ledger.
        counted = facts.taken - (facts.counts.get("before", 0) if facts.kind != "sessions" else 0)
        off[f"{counted} taken, {taken} in its ledger"] = abs(counted - taken)
        off[f"{facts.late} late, {late} in its ledger"] = abs(facts.late - late)
    return off
