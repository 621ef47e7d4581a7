"""A metric's table and its late events as CSV files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from psycopg import sql

from headrace.metrics import Metric
from headrace.store.connection import Connection
from headrace.store.metric_tables import key_columns, table_name

COUNTS = ("accepted", "counted", "filtered", "late")
LATE = (
    *("event_id", "partition", "offset", "event_time", "window_start", "window_end"),
    *("clock", "late_by", "reason"),
)


def shown_columns(metric: Metric) -> tuple[str, ...]:
    return (*key_columns(metric), "state", "revision", "events", "late_events", *metric.visible)


def export(connection: Connection, app: str, metric: Metric, folder: Path) -> int:
    """Write `METRIC.csv` and `METRIC.late.csv`; returns the number of rows."""
    columns = shown_columns(metric)
    keys = sql.SQL(", ").join(
        sql.SQL('{} COLLATE "C"').format(sql.Identifier(name)) if n > 1 else sql.Identifier(name)
        for n, name in enumerate(key_columns(metric))
    )
    rows = connection.execute(
        sql.SQL("SELECT {} FROM {} ORDER BY {}").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)), table_name(app, metric), keys
        )
    ).fetchall()
    write_csv(folder / f"{metric.name}.csv", columns, rows)
    export_late(connection, app, metric.name, folder)
    return len(rows)


def export_counts(connection: Connection, query: str, name: str) -> dict[str, int]:
    """What became of the accepted events, as the ledger says."""
    sums = connection.execute(
        "SELECT sum(accepted)::bigint, sum(counted)::bigint, sum(filtered)::bigint, sum(late)::bigint"
        " FROM headrace.metric_ledger WHERE query = %s AND metric = %s",
        (query, name),
    ).fetchone()
    return {count: value or 0 for count, value in zip(COUNTS, sums or (), strict=True)}


def export_late(connection: Connection, app: str, name: str, folder: Path) -> None:
    late = connection.execute(
        sql.SQL(
            "SELECT {} FROM headrace.late_events WHERE app = %s AND metric = %s"
            ' ORDER BY partition, "offset", window_end'
        ).format(sql.SQL(", ").join(map(sql.Identifier, LATE))),
        (app, name),
    ).fetchall()
    write_csv(folder / f"{name}.late.csv", LATE, late)


def write_csv(file: Path, columns: Iterable[str], rows: list[tuple[Any, ...]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_text(value) for value in row] for row in rows)


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}"
    if isinstance(value, list | dict):  # a top
        return json.dumps(value, ensure_ascii=False)
    return value
