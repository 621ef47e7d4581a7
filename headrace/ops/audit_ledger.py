"""The ledger as an auditor reads it: sums, breaks and contradictions, computed by the database."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from headrace.log.scan import Range
from headrace.ops.audit_flows import flow_audits
from headrace.ops.audit_metrics import metric_audits
from headrace.ops.audit_outboxes import outbox_audits
from headrace.ops.audit_report import Fates, FlowAudit, MetricAudit, OutboxAudit
from headrace.store.connection import Connection, Store
from headrace.store.times import to_micros

_ROWS = (
    "FROM headrace.ledger WHERE query = %(query)s AND partition = %(partition)s"
    " AND end_offset > %(start)s AND first_offset < %(end)s"
)
_SUMS = (
    "SELECT min(first_offset), max(end_offset), sum(received), sum(accepted), sum(rejected), sum(late),"
    f" sum(duplicate) {_ROWS}"
)
# A row must begin where all rows before it have ended.
_BREAKS = (
    "SELECT before, first_offset, end_offset FROM (SELECT first_offset, end_offset, max(end_offset) OVER"
    " (ORDER BY first_offset, end_offset ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before"
    f" {_ROWS}) AS rows WHERE before <> first_offset ORDER BY first_offset"
)
_WRONG_ROWS = (
    f"SELECT batch_id, first_offset, end_offset, received {_ROWS}"
    " AND (received <> accepted + rejected + late + duplicate OR received > end_offset - first_offset"
    " OR least(received, accepted, rejected, late, duplicate) < 0) ORDER BY first_offset"
)
_BATCH_IDS = f"SELECT DISTINCT batch_id {_ROWS}"
_WRONG_BATCHES = """
    SELECT b.batch_id, b.received, b.duplicates, b.dropped,
           coalesce(sum(l.received), 0), coalesce(sum(l.duplicate), 0)
    FROM headrace.batches b LEFT JOIN headrace.ledger l USING (query, batch_id)
    WHERE b.query = %s AND b.batch_id BETWEEN %s AND %s
    GROUP BY b.query, b.batch_id
    HAVING b.dropped <> 0 OR b.received <> coalesce(sum(l.received), 0)
        OR b.duplicates <> coalesce(sum(l.duplicate), 0)
    ORDER BY b.batch_id
"""


@dataclass(frozen=True)
class PartitionRows:
    """The rows of one partition that touch a range."""

    first_offset: int
    end_offset: int
    fates: Fates
    breaks: tuple[tuple[int, int, int], ...]  # end of all before, first offset, end offset
    wrong: tuple[tuple[int, int, int, int], ...]  # batch, first offset, end offset, received


@dataclass(frozen=True)
class WrongBatch:
    batch_id: int
    received: int
    duplicates: int
    dropped: int
    received_in_ledger: int
    duplicates_in_ledger: int


@dataclass(frozen=True)
class LedgerView:
    """One consistent look at the ledger of a query."""

    rows: dict[int, PartitionRows]  # only partitions that have rows in the range
    next_offsets: dict[int, int]
    batches: int
    wrong_batches: tuple[WrongBatch, ...]
    metrics: tuple[MetricAudit, ...] = ()
    flows: tuple[FlowAudit, ...] = ()
    outboxes: tuple[OutboxAudit, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.rows and not self.next_offsets


@dataclass(frozen=True)
class Start:
    """Where a recount of a partition can begin: at a batch, with the clock that the batch before left."""

    offset: int
    clock: int | None  # microseconds


class LedgerReader:
    def __init__(self, store: Store, query: str) -> None:
        self._store, self._query = store, query

    def view(
        self,
        ranges: Mapping[int, Range],
        metrics: Collection[str] = (),
        flows: Collection[str] | None = None,
    ) -> LedgerView:
        """`metrics` and `flows` are the accounts that the app declares now."""

        def look(connection: Connection) -> LedgerView:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            places = {p: self._place(p, span) for p, span in ranges.items()}
            rows = {p: found for p, place in places.items() if (found := _rows(connection, place))}
            ids = {n for place in places.values() for (n,) in connection.execute(_BATCH_IDS, place)}
            clocks = connection.execute(
                "SELECT partition, next_offset FROM headrace.clocks WHERE query = %s", (self._query,)
            ).fetchall()
            near = (self._query, min(ids, default=0), max(ids, default=-1))
            wrong = [WrongBatch(*map(int, row)) for row in connection.execute(_WRONG_BATCHES, near)]
            audits = metric_audits(connection, self._query, ranges, metrics)
            of_flows = flow_audits(connection, self._query, flows, audits)
            sessions = {audit.flow for audit in of_flows if audit.kind == "sessions"}
            of_metrics = tuple(audit for audit in audits if audit.metric not in sessions)
            outboxes = outbox_audits(connection, self._query)
            return LedgerView(*(rows, dict(clocks), len(ids), tuple(wrong), of_metrics, of_flows, outboxes))

        try:
            return self._store.transact(look)
        except psycopg.errors.UndefinedTable:
            return LedgerView({}, {}, 0, ())

    def sums(self, ranges: Mapping[int, Range]) -> dict[int, Fates]:
        def look(connection: Connection) -> dict[int, Fates]:
            found = {p: _rows(connection, self._place(p, span)) for p, span in ranges.items()}
            return {p: rows.fates if rows else Fates() for p, rows in found.items()}

        return self._store.transact(look)

    def outboxes(self) -> tuple[OutboxAudit, ...]:
        """As they are now."""
        return self._store.transact(lambda connection: outbox_audits(connection, self._query))

    def first_offsets(self, account: str) -> dict[int, int]:
        """Where the first batch begins that a flow has an account of, as far as the ledger knows."""

        def look(connection: Connection) -> dict[int, int]:
            rows = connection.execute(
                "SELECT partition, min(first_offset) FROM headrace.ledger WHERE query = %(query)s"
                " AND batch_id >= (SELECT min(batch_id) FROM headrace.flow_ledger"
                " WHERE query = %(query)s AND flow = %(flow)s) GROUP BY partition",
                {"query": self._query, "flow": account},
            )
            return dict(rows.fetchall())

        return self._store.transact(look)

    def start_at(self, partition: int, offset: int, end: int) -> Start | None:
        """The first batch that begins at the offset or after it, and before the end."""

        def look(connection: Connection) -> Start | None:
            place = {"query": self._query, "partition": partition, "offset": offset, "end": end}
            found = connection.execute(
                "SELECT first_offset FROM headrace.ledger WHERE query = %(query)s"
                " AND partition = %(partition)s AND first_offset >= %(offset)s AND first_offset < %(end)s"
                " ORDER BY first_offset LIMIT 1",
                place,
            ).fetchone()
            if found is None:
                return None
            clock = connection.execute(
                "SELECT clock FROM headrace.ledger WHERE query = %(query)s AND partition = %(partition)s"
                " AND end_offset <= %(offset)s ORDER BY end_offset DESC LIMIT 1",
                {**place, "offset": found[0]},
            ).fetchone()
            return Start(found[0], to_micros(clock[0]) if clock else None)

        return self._store.transact(look)

    def _place(self, partition: int, span: Range) -> dict[str, Any]:
        return {"query": self._query, "partition": partition, "start": span[0], "end": span[1]}


def _rows(connection: Connection, place: dict[str, Any]) -> PartitionRows | None:
    sums = connection.execute(_SUMS, place).fetchone()
    if sums is None or sums[0] is None:
        return None
    return PartitionRows(
        sums[0],
        sums[1],
        Fates(*map(int, sums[2:])),
        tuple((a, b, c) for a, b, c in connection.execute(_BREAKS, place)),
        tuple((a, b, c, d) for a, b, c, d in connection.execute(_WRONG_ROWS, place)),
    )
