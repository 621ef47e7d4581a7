"""The accounts of the metrics: accepted = counted + filtered + late, for each metric and batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from headrace.log.scan import Range
from headrace.ops.audit_report import Finding, MetricAudit
from headrace.store.connection import Connection

# From its first batch on a metric has a row in every one: until its last, or to the end if it is declared.
# What it accepted must be what the gate says; a batch that has no row of it counts as one of zeros.
_ACCOUNTS = """
    WITH touched AS (
        SELECT DISTINCT l.batch_id
        FROM headrace.ledger l
        JOIN unnest(%(partitions)s::int[], %(starts)s::bigint[], %(ends)s::bigint[])
            AS r (partition, first_offset, end_offset)
            ON l.partition = r.partition
            AND l.end_offset > r.first_offset AND l.first_offset < r.end_offset
        WHERE l.query = %(query)s
    ), gate AS (
        SELECT batch_id, sum(accepted) AS accepted
        FROM headrace.ledger
        WHERE query = %(query)s AND batch_id IN (SELECT batch_id FROM touched)
        GROUP BY batch_id
    ), lives AS (
        SELECT metric, min(batch_id) AS first,
               CASE WHEN metric = ANY (%(declared)s) THEN NULL ELSE max(batch_id) END AS last
        FROM headrace.metric_ledger
        WHERE query = %(query)s
        GROUP BY metric
    ), compared AS (
        SELECT v.metric, g.batch_id, g.accepted, coalesce(m.counted, 0) AS counted,
               coalesce(m.filtered, 0) AS filtered, coalesce(m.late, 0) AS late,
               greatest(
                   abs(g.accepted - coalesce(m.counted + m.filtered + m.late, 0)),
                   abs(g.accepted - coalesce(m.accepted, 0)),
                   -least(m.counted, m.filtered, m.late)
               ) AS off
        FROM lives v
        JOIN gate g ON g.batch_id >= v.first AND (v.last IS NULL OR g.batch_id <= v.last)
        LEFT JOIN headrace.metric_ledger m
            ON m.query = %(query)s AND m.metric = v.metric AND m.batch_id = g.batch_id
    )
    SELECT metric, sum(accepted)::bigint, sum(counted)::bigint, sum(filtered)::bigint, sum(late)::bigint,
           sum(off)::bigint,
           (array_agg(batch_id ORDER BY batch_id) FILTER (WHERE off > 0))[1:%(named)s]
    FROM compared GROUP BY metric ORDER BY metric
"""
_NAMED = 10_000  # batches


def metric_audits(
    connection: Connection, query: str, ranges: Mapping[int, Range], declared: Collection[str]
) -> tuple[MetricAudit, ...]:
    """What became of the accepted events of the batches that touch the ranges, metric by metric."""
    found = connection.execute("SELECT to_regclass('headrace.metric_ledger')").fetchone()
    if found is None or found[0] is None:
        return ()  # no metric was ever declared
    rows = connection.execute(
        _ACCOUNTS,
        {
            "query": query,
            "partitions": list(ranges),
            "starts": [first for first, _ in ranges.values()],
            "ends": [end for _, end in ranges.values()],
            "declared": list(declared),
            "named": _NAMED,
        },
    )
    return tuple(
        MetricAudit(metric, accepted, counted, filtered, late, unaccounted, tuple(batches or ()))
        for metric, accepted, counted, filtered, late, unaccounted, batches in rows
    )


def metric_findings(topic: str, audits: Iterable[MetricAudit]) -> Iterator[Finding]:
    for audit in audits:
        if audit.unaccounted:
            note = f"metric {audit.metric}, batches {audit.named}: accepted is not counted + filtered + late"
            yield Finding("metric", topic, -1, audit.unaccounted, note=note)
