"""The tables of sessions: one that is shown, one with the pieces of sessions that may still change."""

from __future__ import annotations

import json
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from headrace.contracts.durations import format_duration
from headrace.errors import AppError
from headrace.sessions import Sessions
from headrace.store.connection import Connection
from headrace.views.session_pieces import ResolvedSessions

REPLAY = ("kind", "of", "key", "gap", "max_length", "where", "measures", "final_after")
# Of a piece: no measure can have such a name. Times are microseconds, which Postgres subtracts faster than
# its own times.
PIECE = (
    *(("__seal", "int"), ("__key", 'text COLLATE "C"'), ("__cell", "bigint")),
    *(("__first", "bigint"), ("__last", "bigint"), ("__events", "bigint")),
)


def table_name(app: str, sessions: Sessions) -> sql.Identifier:
    return sql.Identifier(app, sessions.name)


def pieces_name(app: str, sessions: Sessions) -> sql.Identifier:
    return sql.Identifier(app, f"{sessions.name}__pieces")


def piece_columns(resolved: ResolvedSessions) -> list[tuple[str, str]]:
    """Names and types, in the order of a piece's line."""
    return [*PIECE, *((part.column, part.type) for part in resolved.parts)]


def define(connection: Connection, app: str, resolved: ResolvedSessions) -> bool:
    """Create the tables, or check that those that are there have the same meaning; whether they are new."""
    sessions, now = resolved.sessions, definition(resolved)
    found = connection.execute(
        "SELECT definition FROM headrace.metrics WHERE app = %s AND metric = %s", (app, sessions.name)
    ).fetchone()
    if found is None:
        _create(connection, app, resolved)
    elif found[0] != now:
        _change(connection, app, resolved, found[0], now)
    connection.execute(
        "INSERT INTO headrace.metrics VALUES (%s, %s, %s)"
        " ON CONFLICT (app, metric) DO UPDATE SET definition = excluded.definition",
        (app, sessions.name, Jsonb(now)),
    )
    return found is None


def definition(resolved: ResolvedSessions) -> dict[str, Any]:
    sessions = resolved.sessions
    plain = {
        "kind": "sessions",
        "of": sessions.of,
        "key": sessions.key,
        "gap": format_duration(sessions.gap),
        "max_length": format_duration(sessions.max_length),
        "where": sessions.where,
        "measures": {name: [m.kind, m.expression, m.where] for name, m in sessions.measures.items()},
        "final_after": format_duration(sessions.final_after),
        "preliminary_after": format_duration(sessions.preliminary_after),
        "derived": resolved.formulas,
        "retain": format_duration(sessions.retain),
    }
    return dict(json.loads(json.dumps(plain)))


def _create(connection: Connection, app: str, resolved: ResolvedSessions) -> None:
    sessions = resolved.sessions
    name, pieces = table_name(app, sessions), pieces_name(app, sessions)
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(app)))
    connection.execute(
        sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY (__key, __cell, __seal)) WITH (fillfactor = 70)").format(
            pieces,
            sql.SQL(", ").join(
                sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(type_))
                for column, type_ in piece_columns(resolved)
            ),
        )
    )
    values = [
        sql.SQL("{} {}").format(sql.Identifier(part.column), sql.SQL(part.type)) for part in resolved.parts
    ]
    connection.execute(
        sql.SQL(
            'CREATE TABLE {} ({} text COLLATE "C" NOT NULL, session_start timestamptz NOT NULL,'
            " session_end timestamptz NOT NULL, last_event timestamptz NOT NULL,"
            " duration interval GENERATED ALWAYS AS (last_event - session_start) STORED,"
            " events bigint NOT NULL, {}, state text NOT NULL, revision int NOT NULL,"
            " sealed boolean NOT NULL, watermark timestamptz, published_at timestamptz,"
            " updated_at timestamptz NOT NULL) WITH (fillfactor = 80)"
        ).format(name, sql.Identifier(sessions.key), sql.SQL(", ").join(values))
    )
    _add_computed(connection, name, resolved)
    connection.execute(
        sql.SQL("CREATE INDEX ON {} ({}, session_start)").format(name, sql.Identifier(sessions.key))
    )
    # Which rows does the watermark pass, which are old, which are the newest: all three ask by state.
    connection.execute(sql.SQL("CREATE INDEX ON {} (state, session_end)").format(name))


def _add_computed(connection: Connection, name: sql.Identifier, resolved: ResolvedSessions) -> None:
    for column, (formula, type_) in resolved.formulas.items():
        connection.execute(
            sql.SQL("ALTER TABLE {} ADD COLUMN {} {} GENERATED ALWAYS AS ({}) STORED").format(
                name, sql.Identifier(column), sql.SQL(type_), sql.SQL(formula)
            )
        )


def _change(
    connection: Connection, app: str, resolved: ResolvedSessions, before: dict[str, Any], now: dict[str, Any]
) -> None:
    sessions = resolved.sessions
    changed = [name for name in now if before.get(name) != now[name]]
    lost = [name for name in changed if name in REPLAY]
    if lost:
        raise AppError(
            f"sessions '{sessions.name}' have a table with another meaning: {', '.join(lost)} changed",
            where=sessions.declared_at,
            hint=f"rows that are there cannot become the new ones: give them another name, or drop the tables"
            f" {app}.{sessions.name} and {app}.{sessions.name}__pieces with the row in headrace.metrics"
            " and read the stream again",
        )
    if "derived" in changed:
        name = table_name(app, sessions)
        for column in before.get("derived", {}):
            connection.execute(
                sql.SQL("ALTER TABLE {} DROP COLUMN IF EXISTS {}").format(name, sql.Identifier(column))
            )
        _add_computed(connection, name, resolved)
