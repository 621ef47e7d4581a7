"""Rows of TuranMart's flows for the API: joins and signals, in tables as the engine makes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import sql

from headrace.flows.signals import ResolvedSignals
from headrace.ops.load import LoadedApp
from headrace.store import signal_tables
from headrace.store.join_names import letter_table, result_table

OWN = sql.SQL(
    "id text, key text, left_id text, right_id text, left_time timestamptz, right_time timestamptz,"
    " event_time timestamptz"
)
FEATURES = {
    "dollars": "numeric",
    "payments_5m": "bigint",
    "dollars_5m": "numeric",
    "regions_5m": "bigint",
    "level": "text",
}
Tables = psycopg.Connection[tuple[Any, ...]]


def make_join_tables(
    connection: Tables, loaded: LoadedApp, join: str, types: Mapping[str, str] | None = None
) -> None:
    """Columns are texts unless `types` says otherwise."""
    known = types or {}
    columns = [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(known.get(name, "text")))  # type: ignore[arg-type]
        for name in loaded.join(join).columns
    ]
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(loaded.name)))
    connection.execute(
        sql.SQL("CREATE TABLE {} ({}, matched_at timestamptz DEFAULT now(), {})").format(
            result_table(loaded.name, join), OWN, sql.SQL(", ").join(columns)
        )
    )
    connection.execute(
        sql.SQL(
            'CREATE TABLE {} ({}, reason text, side text, "values" jsonb, at timestamptz DEFAULT now())'
        ).format(letter_table(loaded.name, join), OWN)
    )


def seed_join(store_url: str, loaded: LoadedApp, join: str, now: datetime, rows: int = 9) -> None:
    """As many matches, and as many that met nobody."""
    with psycopg.connect(store_url) as connection:
        make_join_tables(connection, loaded, join)
        for n in range(rows):
            at = now - timedelta(minutes=n)
            own = (f"m{n}", f"o-{n}", f"l{n}", f"r{n}", at, at, at)
            connection.execute(
                sql.SQL("INSERT INTO {} VALUES (%s, %s, %s, %s, %s, %s, %s)").format(
                    result_table(loaded.name, join)
                ),
                own,
            )
            connection.execute(
                sql.SQL(
                    "INSERT INTO {} VALUES (%s, %s, %s, %s, %s, %s, %s, 'no_payment', 'left', '{{}}')"
                ).format(letter_table(loaded.name, join)),
                own,
            )


def seed_signals(store_url: str, loaded: LoadedApp, name: str, now: datetime, rows: int = 9) -> None:
    """Scored events of three cards, every third of them blocked."""
    signals = loaded.app.signal_sets[name]
    types = {feature: FEATURES.get(feature, "double precision") for feature in signals.features}
    table = signal_tables.table_name(loaded.name, signals)
    with psycopg.connect(store_url) as connection:
        signal_tables.define(connection, loaded.name, ResolvedSignals(signals, types, (), frozenset(), 0))
        for n in range(rows):
            at, decision = now - timedelta(minutes=n), "allow" if n % 3 else "block"
            shown = dict.fromkeys(signals.labels, "c-1") | {signals.key: f"card-{n % 3}"}
            values = {
                "id": f"{name}:e-{n}",
                "event_id": f"e-{n}",
                "partition": 0,
                "offset": n,
                "event_time": at,
                "log_time": at,
                "complete": True,
                "score": n / rows,
                "decision": decision,
                "version": "1",
                **shown,
            }
            if signals.shadow:
                values |= {"shadow_score": 0.5, "shadow_decision": "allow", "shadow_version": "s"}
            connection.execute(
                sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
                    table,
                    sql.SQL(", ").join(map(sql.Identifier, values)),
                    sql.SQL(", ").join([sql.Placeholder()] * len(values)),
                ),
                list(values.values()),
            )
        connection.execute(
            sql.SQL("INSERT INTO {} VALUES ('c-1', 3, %s, %s), ('c-2', 1, %s, %s)").format(
                signal_tables.activity_name(loaded.name, signals)
            ),
            [now] * 4,
        )
