"""How partial results become one, inside a batch and with the row that is there."""

from __future__ import annotations

from psycopg import sql

from headrace.views.resolve import Part


def within_batch(part: Part) -> sql.Composed:
    """The value of a column over several panes, or several groups."""
    column = sql.Identifier(part.column)
    match part.how:
        case "add":
            zero = sql.SQL("coalesce({}, 0)::bigint") if part.type == "bigint" else sql.SQL("{}")
            return zero.format(sql.SQL("sum({})").format(column))
        case "least" | "greatest":
            return sql.SQL("{}({})").format(sql.SQL(_extreme(part)), column)
        case _:
            place = sql.Identifier(f"{part.measure}__at")
            order = sql.SQL("ASC NULLS LAST" if part.how == "first" else "DESC NULLS LAST")
            return sql.SQL("(array_agg({} ORDER BY {} {}))[1]").format(column, place, order)


def _extreme(part: Part) -> str:
    """Postgres has no smallest and no largest of booleans."""
    if part.type == "boolean":
        return "bool_and" if part.how == "least" else "bool_or"
    return "min" if part.how == "least" else "max"


def with_row(part: Part) -> sql.Composed:
    """How a column of the row that is there becomes one with the new row's."""
    column = sql.Identifier(part.column)
    match part.how:
        case "add":
            text = "{0} = coalesce(t.{0} + excluded.{0}, t.{0}, excluded.{0})"
        case "least" | "greatest":
            text = "{0} = " + part.how + "(t.{0}, excluded.{0})"
        case _:
            sign = "<" if part.how == "first" else ">"
            text = (
                "{0} = CASE WHEN t.{1} IS NULL OR excluded.{1} "
                + sign
                + " t.{1} THEN excluded.{0} ELSE t.{0} END"
            )
    return sql.SQL(", " + text).format(column, sql.Identifier(f"{part.measure}__at"))
