"""The tables of a join: results, dead letters, and the events of each side that wait."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NamedTuple

from psycopg import sql
from psycopg.types.json import Jsonb

from headrace.contracts.durations import format_duration
from headrace.errors import AppError
from headrace.flows.join_resolve import ResolvedJoin
from headrace.joins import SIDES, Join, Side
from headrace.store.connection import Connection
from headrace.store.join_names import letter_table, pending_table, result_table

# What rows that are there were decided by. Everything else may change in place.
MEANING = ("left", "right", "on", "within", "kind", "order", "where", "checks", "columns")
HELD = ("key", "event_id", "event_time", "partition", "offset")


class Bounds(NamedTuple):
    """Of each side: no event before it can come any more, but for those that are late for the join."""

    left: datetime | None
    right: datetime | None

    def of(self, side: Side) -> datetime | None:
        return self.left if side == "left" else self.right


class JoinShape:
    """Names and column lists of a join's tables."""

    def __init__(self, app: str, resolved: ResolvedJoin) -> None:
        name = resolved.join.name
        self.app, self.resolved, self.join = app, resolved, resolved.join
        self.results, self.letters = result_table(app, name), letter_table(app, name)
        self.pending: dict[Side, sql.Identifier] = {s: pending_table(app, name, s) for s in SIDES}
        self.fresh: dict[Side, sql.Identifier] = {s: sql.Identifier(f"{name}__new_{s}") for s in SIDES}
        self.pairs = sql.Identifier(f"{name}__pairs")
        self.columns = {column: type_ for column, (_, type_, _) in resolved.columns.items()}

    def taken(self, side: Side) -> dict[str, str]:
        return {name: type_ for name, (_, type_) in self.resolved.sides[side].taken.items()}

    def held(self, side: Side) -> sql.Composed:
        """The columns of a waiting event, without what has become of it."""
        return sql.SQL(", ").join(map(sql.Identifier, (*HELD, *self.taken(side))))


def define(connection: Connection, shape: JoinShape) -> None:
    """Create the tables, or check that those that are there have the same meaning."""
    join, now = shape.join, definition(shape.resolved)
    found = connection.execute(
        "SELECT definition FROM headrace.joins WHERE app = %s AND name = %s", (shape.app, join.name)
    ).fetchone()
    if found is None:
        _create(connection, shape)
    else:
        changed = [part for part in MEANING if found[0].get(part) != now[part]]
        if changed:
            raise AppError(
                f"join '{join.name}' has tables with another meaning: {', '.join(changed)} changed",
                where=join.declared_at,
                hint=f"give it another name, or drop the tables {shape.app}.{join.name}* with its row in"
                " headrace.joins and its rows in headrace.flow_sides, and read the streams again",
            )
    connection.execute(
        "INSERT INTO headrace.joins (app, name, definition) VALUES (%s, %s, %s)"
        " ON CONFLICT (app, name) DO UPDATE SET definition = excluded.definition",
        (shape.app, join.name, Jsonb(now)),
    )


def definition(resolved: ResolvedJoin) -> dict[str, Any]:
    join = resolved.join
    plain = {
        **{part: getattr(join, part) for part in ("left", "right", "on", "kind", "where", "checks")},
        "order": resolved.order,
        "within": format_duration(join.within),
        "columns": {name: [join.columns[name], type_] for name, (_, type_, _) in resolved.columns.items()},
        "unmatched": join.unmatched,
        "retain": format_duration(join.retain),
        "topics": [join.topic, join.dead_letters],
    }
    return dict(json.loads(json.dumps(plain)))


def locked(connection: Connection, app: str, join: Join) -> Bounds:
    """The bounds that decisions were based on. Until the end of the transaction the join is ours."""
    found = connection.execute(
        "SELECT left_bound, right_bound FROM headrace.joins WHERE app = %s AND name = %s FOR UPDATE",
        (app, join.name),
    ).fetchone()
    assert found is not None, "prepare comes first"
    return Bounds(*found)


def make_scratch(connection: Connection, shape: JoinShape) -> None:
    """Tables of this connection for one batch at a time."""
    for side in SIDES:
        connection.execute(
            sql.SQL(
                "CREATE TEMP TABLE IF NOT EXISTS {} (key text, event_id text NOT NULL,"
                ' event_time timestamptz NOT NULL, partition int NOT NULL, "offset" bigint NOT NULL{})'
                " ON COMMIT DELETE ROWS"
            ).format(shape.fresh[side], _typed(shape.taken(side)))
        )
    connection.execute(
        sql.SQL(
            "CREATE TEMP TABLE IF NOT EXISTS {} (n bigint GENERATED ALWAYS AS IDENTITY, key text,"
            " left_id text, right_id text, left_time timestamptz, right_time timestamptz,"
            " l_partition int, l_offset bigint, r_partition int, r_offset bigint, reason text{})"
            " ON COMMIT DELETE ROWS"
        ).format(shape.pairs, _typed({f"c_{name}": type_ for name, type_ in shape.columns.items()}))
    )


def _create(connection: Connection, shape: JoinShape) -> None:
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(shape.app)))
    own = sql.SQL(
        "id text PRIMARY KEY, key text, left_id text, right_id text,"
        " left_time timestamptz, right_time timestamptz, event_time timestamptz NOT NULL"
    )
    connection.execute(
        sql.SQL("CREATE TABLE {} ({}, matched_at timestamptz NOT NULL DEFAULT now(){})").format(
            shape.results, own, _typed(shape.columns)
        )
    )
    connection.execute(
        sql.SQL(
            "CREATE TABLE {} ({}, reason text NOT NULL, side text NOT NULL,"
            ' "values" jsonb NOT NULL, at timestamptz NOT NULL DEFAULT now())'
        ).format(shape.letters, own)
    )
    for table in (shape.results, shape.letters):
        connection.execute(sql.SQL("CREATE INDEX ON {} (event_time, id)").format(table))
        connection.execute(sql.SQL("CREATE INDEX ON {} (key)").format(table))
    for side in SIDES:
        connection.execute(
            sql.SQL(
                "CREATE TABLE {} (key text NOT NULL, event_id text NOT NULL,"
                ' event_time timestamptz NOT NULL, partition int NOT NULL, "offset" bigint NOT NULL,'
                " matched boolean NOT NULL, failed boolean NOT NULL{})"
                # Rows come and go: the table stays small only if it is swept often.
                " WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.1,"
                " autovacuum_vacuum_threshold = 1000)"
            ).format(shape.pending[side], _typed(shape.taken(side)))
        )
        for columns in ("key, event_time", "event_time"):
            connection.execute(
                sql.SQL("CREATE INDEX ON {} ({})").format(shape.pending[side], sql.SQL(columns))
            )


def _typed(columns: dict[str, str]) -> sql.Composed:
    return sql.SQL("").join(
        sql.SQL(", {} {}").format(sql.Identifier(name), sql.SQL(type_)) for name, type_ in columns.items()
    )
