"""The table of a metric: its columns, its indexes, and what happens when its declaration changes."""

from __future__ import annotations

import json
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from headrace.contracts.durations import format_duration
from headrace.errors import AppError
from headrace.metrics import GROWING, Metric
from headrace.store.connection import Connection
from headrace.views.resolve import ResolvedMetric, packed_columns

STATEMENTS = (
    """
    CREATE TABLE IF NOT EXISTS headrace.metrics (
        app text NOT NULL,
        metric text NOT NULL,
        definition jsonb NOT NULL,
        PRIMARY KEY (app, metric)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS headrace.late_events (
        app text NOT NULL,
        metric text NOT NULL,
        event_id text NOT NULL,
        partition int NOT NULL,
        "offset" bigint NOT NULL,
        event_time timestamptz NOT NULL,
        window_start timestamptz NOT NULL,
        window_end timestamptz NOT NULL,
        clock timestamptz NOT NULL,
        late_by interval NOT NULL,
        reason text NOT NULL,
        seen_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (app, metric, window_end, partition, "offset")
    )
    """,
    # For those who watch: which events came too late since they last looked.
    "CREATE INDEX IF NOT EXISTS late_events_by_seen ON headrace.late_events (app, metric, seen_at)",
    """
    CREATE TABLE IF NOT EXISTS headrace.revisions (
        app text NOT NULL,
        metric text NOT NULL,
        window_start timestamptz NOT NULL,
        window_end timestamptz NOT NULL,
        "grouping" text NOT NULL,
        dimensions jsonb NOT NULL,
        revision int NOT NULL,
        state text NOT NULL,
        "values" jsonb NOT NULL,
        watermark timestamptz,
        at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (app, metric, window_end, "grouping", dimensions, revision, state, window_start)
    )
    """,
    "CREATE INDEX IF NOT EXISTS revisions_corrected ON headrace.revisions (app, metric, at)"
    " WHERE state = 'corrected'",
)
# Room on each page for a new version of every row of it, so that a change touches no index. For the same
# reason no index may know the state of a row: rows that can change are found by the start of their window.
FILL = 45
REPLAY = ("of", "window", "by", "where", "measures", "final_after")


def table_name(app: str, metric: Metric) -> sql.Identifier:
    return sql.Identifier(app, metric.name)


def growing_name(app: str, metric: Metric) -> sql.Identifier:
    """Where the rows of a running window with a trigger grow until they are shown."""
    return sql.Identifier(app, metric.name + GROWING)


def define(connection: Connection, app: str, resolved: ResolvedMetric) -> None:
    """Create the table, or check that the one that is there has the same meaning."""
    metric = resolved.metric
    now = definition(resolved)
    found = connection.execute(
        "SELECT definition FROM headrace.metrics WHERE app = %s AND metric = %s", (app, metric.name)
    ).fetchone()
    if found is None:
        _create(connection, app, resolved)
    else:
        _bring_up_to_date(connection, app, metric)
    _keep_sketches_plain(connection, table_name(app, metric), resolved)
    if found is not None and found[0] != now:
        _change(connection, app, resolved, found[0], now)
    connection.execute(
        "INSERT INTO headrace.metrics VALUES (%s, %s, %s)"
        " ON CONFLICT (app, metric) DO UPDATE SET definition = excluded.definition",
        (app, metric.name, Jsonb(now)),
    )


def _bring_up_to_date(connection: Connection, app: str, metric: Metric) -> None:
    """What tables of earlier versions lack, or have and should not."""
    table = table_name(app, metric)
    index = sql.Identifier(app, f"{metric.name}_window_end_idx")
    for change in (
        sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS published_at timestamptz").format(table),
        sql.SQL("ALTER TABLE {} SET (fillfactor = {})").format(table, sql.Literal(FILL)),
        sql.SQL("DROP INDEX IF EXISTS {}").format(index),
    ):
        connection.execute(change)


def definition(resolved: ResolvedMetric) -> dict[str, Any]:
    metric = resolved.metric
    measures = {
        name: [m.kind, m.expression, m.where, list(m.ranks), m.n, m.limit]
        for name, m in metric.measures.items()
    }
    plain = {
        "of": metric.of,
        "window": str(metric.window),
        "trigger": format_duration(metric.window.trigger) if metric.window.trigger else None,
        "by": metric.groupings,
        "where": metric.where,
        "measures": measures,
        "final_after": format_duration(metric.final_after),
        "preliminary_after": format_duration(metric.preliminary_after),
        "derived": resolved.formulas,
        "retain": format_duration(metric.retain),
        "limit": metric.limit,
    }
    return dict(json.loads(json.dumps(plain)))


def columns_of(resolved: ResolvedMetric) -> dict[str, str]:
    """The columns that hold partial and shown results, without the computed ones."""
    found = {part.column: part.type for part in resolved.parts}
    for name, measure in resolved.packed.items():
        found |= packed_columns(name, measure)
    return found


def _create(connection: Connection, app: str, resolved: ResolvedMetric) -> None:
    name = table_name(app, resolved.metric)
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(app)))
    # What grew for a table that somebody has dropped is not the beginning of this one.
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(growing_name(app, resolved.metric)))
    create_rows(connection, name, resolved)
    _add_computed(connection, name, resolved.formulas)


def create_rows(connection: Connection, name: sql.Identifier, resolved: ResolvedMetric) -> None:
    """A table of rows with their partial and shown results, without the computed ones."""
    metric = resolved.metric
    dims = [sql.SQL("{} text NOT NULL").format(sql.Identifier(d)) for d in metric.dimensions]
    # Counts are never null: an empty row counts zero.
    values = [
        sql.SQL("{} {}{}").format(
            sql.Identifier(column),
            sql.SQL(type_),
            sql.SQL(" NOT NULL DEFAULT 0" if type_ == "bigint" and column in _counts(resolved) else ""),
        )
        for column, type_ in columns_of(resolved).items()
    ]
    key = sql.SQL(", ").join(map(sql.Identifier, key_columns(metric)))
    connection.execute(
        sql.SQL(
            "CREATE TABLE {} (window_start timestamptz NOT NULL, window_end timestamptz NOT NULL,"
            ' "grouping" text NOT NULL, {}, state text NOT NULL, revision int NOT NULL,'
            " events bigint NOT NULL, late_events bigint NOT NULL, {},"
            " watermark timestamptz, published_at timestamptz, updated_at timestamptz NOT NULL,"
            " PRIMARY KEY ({}))"
            " WITH (fillfactor = {})"
        ).format(
            name,
            sql.SQL(", ").join(dims) if dims else sql.SQL("CHECK (true)"),
            sql.SQL(", ").join(values) if values else sql.SQL("CHECK (true)"),
            key,
            sql.Literal(FILL),
        )
    )


def _keep_sketches_plain(connection: Connection, name: sql.Identifier, resolved: ResolvedMetric) -> None:
    """Compressing them anew with every batch takes longer than all the rest of their merge."""
    for column, type_ in columns_of(resolved).items():
        if type_ == "bytea":
            change = sql.SQL("ALTER TABLE {} ALTER COLUMN {} SET STORAGE EXTERNAL")
            connection.execute(change.format(name, sql.Identifier(column)))


def key_columns(metric: Metric) -> tuple[str, ...]:
    return ("window_start", "window_end", "grouping", *metric.dimensions)


def _counts(resolved: ResolvedMetric) -> set[str]:
    return {part.column for part in resolved.parts if part.how == "add" and part.type == "bigint"}


def _add_computed(connection: Connection, name: sql.Identifier, formulas: dict[str, str]) -> None:
    for column, formula in formulas.items():
        connection.execute(
            sql.SQL("ALTER TABLE {} ADD COLUMN {} double precision GENERATED ALWAYS AS ({}) STORED").format(
                name, sql.Identifier(column), sql.SQL(formula)
            )
        )


def _change(
    connection: Connection, app: str, resolved: ResolvedMetric, before: dict[str, Any], now: dict[str, Any]
) -> None:
    metric = resolved.metric
    changed = [name for name in now if before.get(name) != now[name]]
    # A trigger may come and change; without it every version would have to be told from the rows again.
    lost = [n for n in changed if n in REPLAY or (n == "trigger" and now[n] is None)]
    if lost:
        kept = [name for name in changed if name not in lost]
        raise AppError(
            f"metric '{metric.name}' has a table with another meaning: {', '.join(lost)} changed",
            where=metric.declared_at,
            hint=(
                f"rows that are there cannot become the new ones: give it another name, or drop the table"
                f" {app}.{metric.name} with its row in headrace.metrics and read the stream again"
                + (f" ({', '.join(kept)} could change in place)" if kept else "")
            ),
        )
    if "derived" in changed:
        name = table_name(app, metric)
        for column in before.get("derived", {}):
            connection.execute(
                sql.SQL("ALTER TABLE {} DROP COLUMN IF EXISTS {}").format(name, sql.Identifier(column))
            )
        _add_computed(connection, name, resolved.formulas)
