"""The expressions of a join: which side they speak of, and what of them the store has to compute."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.errors import AppError, known_names
from headrace.joins import SIDES, Side
from headrace.views.expressions import FORBIDDEN

# What Spark and Postgres compute alike. Everything else is for Spark alone, on one side.
COMMON = (
    *(exp.And, exp.Or, exp.Not, exp.Paren, exp.Literal, exp.Boolean, exp.Null, exp.Column, exp.Identifier),
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In, exp.Is, exp.NullSafeEQ),
    *(exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Abs, exp.Coalesce, exp.Greatest, exp.Least),
)


def parsed(text: str, known: Mapping[Side, Collection[str]], what: str, where: str) -> exp.Expr:
    """The expression, every column of which is `left.x` or `right.x`."""
    try:
        tree = sqlglot.parse_one(text, read="spark")
    except SqlglotError as error:
        problem = str(error).split("\n")[0].rstrip(".")
        raise AppError(f"{what}: cannot read '{text}': {problem}", where=where) from error
    for kind, reason in FORBIDDEN.items():
        found = tree.find(kind)
        if found is not None:
            raise AppError(f"{what}: '{found.sql('spark')}' {reason}", where=where)
    for column in tree.find_all(exp.Column):
        path = [part.name for part in column.parts]
        if len(path) != 2 or path[0] not in SIDES:
            raise AppError(
                f"{what}: '{column.sql('spark')}' does not say whose it is",
                where=where,
                hint=f"write left.{path[-1]} or right.{path[-1]}",
            )
        fields = known[_side(column)]
        if column.name not in fields:
            hint = known_names(column.name, fields)
            raise AppError(f"{what}: the {path[0]} has no column '{column.name}'", where=where, hint=hint)
    return tree


def sides_of(tree: exp.Expr) -> set[Side]:
    return {_side(column) for column in tree.find_all(exp.Column)}


def fields_of(tree: exp.Expr, side: Side) -> set[str]:
    return {column.name for column in tree.find_all(exp.Column) if _side(column) == side}


def on_one_side(tree: exp.Expr) -> str:
    """As Spark reads it where only that side's fields are known."""
    return _replaced(tree, lambda _, name: exp.column(name, quoted=True)).sql("spark")


def over_pairs(tree: exp.Expr, name_of: Callable[[Side, str], str]) -> str:
    """As Spark reads it over a frame of pairs, whose columns have the names that `name_of` gives."""
    return _replaced(tree, lambda side, name: exp.column(name_of(side, name), quoted=True)).sql("spark")


def in_store(tree: exp.Expr, sql_of: Callable[[Side, str], str], what: str, where: str) -> str:
    """As Postgres reads it; refuses what the two might compute differently."""
    for node in tree.walk():
        if not isinstance(node, COMMON):
            raise AppError(
                f"{what}: '{node.sql('spark')}' is not possible where both sides meet",
                where=where,
                hint="comparisons, arithmetic (+ - *), abs, coalesce, greatest, least; the rest on one side",
            )
    return _replaced(tree, lambda side, name: sqlglot.parse_one(sql_of(side, name), read="postgres")).sql(
        "postgres"
    )


def _replaced(tree: exp.Expr, by: Callable[[Side, str], exp.Expr]) -> exp.Expr:
    def change(node: exp.Expr) -> exp.Expr:
        return by(_side(node), node.name) if isinstance(node, exp.Column) else node

    return tree.copy().transform(change)


def _side(column: exp.Column) -> Side:
    return "left" if column.parts[0].name == "left" else "right"
