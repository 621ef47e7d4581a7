"""The tables of signals: the scored events, what is remembered of each key, and suspicious activity."""

from __future__ import annotations

import json
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from headrace.contracts.durations import format_duration
from headrace.errors import AppError
from headrace.flows.signals import ResolvedSignals
from headrace.signals import Signals
from headrace.store.connection import Connection

STATEMENTS = (
    """
    CREATE TABLE IF NOT EXISTS headrace.signals (
        app text NOT NULL,
        signals text NOT NULL,
        definition jsonb NOT NULL,
        PRIMARY KEY (app, signals)
    )
    """,
)


def table_name(app: str, signals: Signals) -> sql.Identifier:
    return sql.Identifier(app, signals.name)


def memory_name(app: str, signals: Signals) -> sql.Identifier:
    return sql.Identifier(app, f"{signals.name}__memory")


def activity_name(app: str, signals: Signals) -> sql.Identifier:
    return sql.Identifier(app, f"{signals.name}__activity")


def comparison_name(app: str, signals: Signals) -> sql.Identifier:
    return sql.Identifier(app, f"{signals.name}__comparison")


def shown_columns(signals: Signals) -> tuple[str, ...]:
    """The columns of a row, without the time of scoring."""
    return (
        *("id", "event_id", "partition", "offset", "event_time", "log_time"),
        *(*signals.labels, *signals.features),
        *("complete", "score", "decision", "version", "shadow_score", "shadow_decision", "shadow_version"),
    )


def define(connection: Connection, app: str, resolved: ResolvedSignals) -> bool:
    """Create the tables, or check that those that are there have the same meaning; whether they are new."""
    for statement in STATEMENTS:
        connection.execute(statement)
    signals = resolved.signals
    now = _definition(resolved)
    found = connection.execute(
        "SELECT definition FROM headrace.signals WHERE app = %s AND signals = %s", (app, signals.name)
    ).fetchone()
    if found is not None and found[0] != now:
        changed = [name for name in now if found[0].get(name) != now[name]]
        raise AppError(
            f"signals '{signals.name}' have tables with another meaning: {', '.join(changed)} changed",
            where=signals.declared_at,
            hint="give them another name, or drop the tables"
            f" {app}.{signals.name}, …__memory and …__activity with the row in headrace.signals",
        )
    if found is None:
        _create(connection, app, resolved)
        connection.execute(
            "INSERT INTO headrace.signals VALUES (%s, %s, %s)", (app, signals.name, Jsonb(now))
        )
        connection.execute(
            "DELETE FROM headrace.signal_totals WHERE app = %s AND signals = %s", (app, signals.name)
        )
    return found is None


def _definition(resolved: ResolvedSignals) -> dict[str, Any]:
    """What rows that are there cannot follow; scores, decisions and topics may change from row to row."""
    signals = resolved.signals
    features = {
        name: [f.kind, f.expression, f.where, resolved.types[name]] for name, f in signals.features.items()
    }
    plain = {
        "of": signals.of,
        "key": signals.key,
        "where": signals.where,
        "memory": format_duration(signals.memory),
        "features": features,
        "activity_by": signals.activity_by,
    }
    return dict(json.loads(json.dumps(plain)))


def columns_sql(resolved: ResolvedSignals) -> sql.Composed:
    """Labels and features with their types."""
    signals = resolved.signals
    typed = {**dict.fromkeys(signals.labels, "text"), **resolved.types}
    return sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_)) for name, type_ in typed.items()
    )


def _create(connection: Connection, app: str, resolved: ResolvedSignals) -> None:
    signals = resolved.signals
    table = table_name(app, signals)
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(app)))
    connection.execute(
        sql.SQL(
            "CREATE TABLE {} (id text PRIMARY KEY, event_id text NOT NULL, partition int NOT NULL,"
            ' "offset" bigint NOT NULL, event_time timestamptz NOT NULL, log_time timestamptz, {},'
            " complete boolean NOT NULL, score double precision, decision text NOT NULL,"
            " version text NOT NULL, shadow_score double precision, shadow_decision text,"
            " shadow_version text, scored_at timestamptz NOT NULL DEFAULT now())"
        ).format(table, columns_sql(resolved))
    )
    for first in ((), ("decision",), (signals.key,)):
        indexed = sql.SQL(", ").join(map(sql.Identifier, (*first, "event_time")))
        connection.execute(sql.SQL("CREATE INDEX ON {} ({})").format(table, indexed))
    memory = memory_name(app, signals)
    connection.execute(
        sql.SQL(
            "CREATE TABLE {} (key text NOT NULL, log_time bigint, partition int NOT NULL,"
            ' "offset" bigint NOT NULL, event_time bigint NOT NULL, event_id text NOT NULL,'
            ' "values" text[] NOT NULL, PRIMARY KEY (partition, "offset"))'
        ).format(memory)
    )
    connection.execute(sql.SQL("CREATE INDEX ON {} (key, event_time)").format(memory))
    connection.execute(sql.SQL("CREATE INDEX ON {} (event_time)").format(memory))
    connection.execute(
        sql.SQL(
            "CREATE TABLE {} ({} text PRIMARY KEY, suspicious bigint NOT NULL,"
            " first_time timestamptz NOT NULL, last_time timestamptz NOT NULL)"
        ).format(activity_name(app, signals), sql.Identifier(signals.activity_by))
    )
    connection.execute(sql.SQL("CREATE INDEX ON {} (last_time)").format(activity_name(app, signals)))
    connection.execute(
        sql.SQL(
            "CREATE VIEW {} AS SELECT version, shadow_version, decision, shadow_decision,"
            " count(*) AS events, avg(shadow_score - score) AS mean_difference,"
            " max(abs(shadow_score - score)) AS largest_difference,"
            " decision = shadow_decision AS agree"
            " FROM {} WHERE shadow_version IS NOT NULL GROUP BY 1, 2, 3, 4"
        ).format(comparison_name(app, signals), table)
    )
