"""What the tables of a join are called. Needs no Spark: whoever only reads them imports this."""

from __future__ import annotations

from psycopg import sql

from headrace.joins import Side


def result_table(app: str, join: str) -> sql.Identifier:
    return sql.Identifier(app, join)


def letter_table(app: str, join: str) -> sql.Identifier:
    return sql.Identifier(app, f"{join}__unmatched")


def pending_table(app: str, join: str, side: Side) -> sql.Identifier:
    return sql.Identifier(app, f"{join}__{side}")
