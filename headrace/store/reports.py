"""The report of each query in the store, one row: how it is, what it cost lately, what it has counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from psycopg.types.json import Jsonb

from headrace.store.connection import Connection
from headrace.store.totals import Counted, Totals, counted_on

QueryStatus = Literal["running", "restarting", "stopped"]
CAUSE_CHARACTERS = 500
_COLUMNS = (
    "query, status, engine_started_at, reported_at, starts, failures, restarts,"
    " last_failure, last_failure_at, progress, counted_batch, counted_at, totals"
)


@dataclass
class Report:
    """`progress` is small and plain: what Spark and the gate told about the last batches."""

    query: str
    engine_started_at: datetime
    reported_at: datetime
    status: QueryStatus = "running"
    starts: int = 0  # of the engine with this query
    failures: int = 0
    restarts: int = 0
    last_failure: str | None = None
    last_failure_at: datetime | None = None
    progress: dict[str, Any] = field(default_factory=dict)
    counted: Counted = field(default_factory=Counted)

    def age(self, now: datetime) -> float:
        """Seconds since it was written."""
        return max(0.0, (now - self.reported_at).total_seconds())

    def fail(self, cause: str, at: datetime) -> None:
        self.failures += 1
        self.last_failure, self.last_failure_at = cause[:CAUSE_CHARACTERS], at


def read_reports(connection: Connection, queries: list[str]) -> dict[str, Report]:
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM headrace.query_reports WHERE query = ANY(%s)",
        (queries,),
    )
    return {row[0]: _report(row) for row in rows}


def save_report(connection: Connection, report: Report, app: str, metrics: list[str]) -> None:
    """Count the batches that are new in the ledger, and write the row."""
    report.counted = counted_on(connection, app, report.query, metrics, report.counted)
    connection.execute(
        f"INSERT INTO headrace.query_reports ({_COLUMNS})"
        " VALUES (%s, %s, %s, clock_timestamp(), %s, %s, %s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (query) DO UPDATE SET status = excluded.status,"
        " engine_started_at = excluded.engine_started_at, reported_at = excluded.reported_at,"
        " starts = excluded.starts, failures = excluded.failures, restarts = excluded.restarts,"
        " last_failure = excluded.last_failure, last_failure_at = excluded.last_failure_at,"
        " progress = excluded.progress, counted_batch = excluded.counted_batch,"
        " counted_at = excluded.counted_at, totals = excluded.totals",
        (
            *(report.query, report.status, report.engine_started_at),
            *(report.starts, report.failures, report.restarts),
            *(report.last_failure, report.last_failure_at, Jsonb(report.progress)),
            *(report.counted.batch, report.counted.corrected_at, Jsonb(report.counted.totals.to_json())),
        ),
    )


def _report(row: tuple[Any, ...]) -> Report:
    query, status, started, reported, starts, failures, restarts, cause, failed_at, progress, *rest = row
    batch, corrected_at, totals = rest
    return Report(
        *(query, started, reported, status, starts, failures, restarts, cause, failed_at),
        progress or {},
        Counted(batch, corrected_at, Totals.from_json(totals)),
    )
