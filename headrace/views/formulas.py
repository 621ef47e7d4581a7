"""Formulas and conditions over measures, as Postgres computes them: numbers are doubles, and nothing fails.

What fails on a row would stop the batch that has it. So only what is known to be harmless may be in one, and
what fails for some numbers is null for them, like a division by zero.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import sqlglot
from sqlglot import exp

from headrace.errors import AppError
from headrace.views.expressions import parsed, rendered

CONDITIONS = (
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between),
    *(exp.And, exp.Or, exp.Not, exp.Is, exp.Boolean),
)
NUMBERS = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Paren, exp.Neg),
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.SafeDivide),
    *(exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least, exp.Abs, exp.Floor, exp.Ceil),
)
TEXTS = (exp.Like, exp.In, exp.Concat, exp.DPipe, exp.Upper, exp.Lower, exp.Length, exp.Trim)
# What Postgres has no doubles for, or fails at for some numbers.
GUARDED: dict[type[exp.Expr], str] = {
    exp.Mod: "mod(({0})::numeric, nullif(({1})::numeric, 0))::double precision",
    exp.Round: "round(({0})::numeric, {1})::double precision",
    exp.Sqrt: "CASE WHEN ({0}) >= 0 THEN sqrt({0}) END",
    exp.Ln: "CASE WHEN ({0}) > 0 THEN ln({0}) END",
}
HINT = (
    "a formula has numbers, + - * / %, comparisons, CASE, IF, COALESCE, NULLIF, GREATEST, LEAST, ABS, FLOOR,"
    " CEIL, ROUND, SQRT and LN"
)


def in_postgres(
    text: str, columns: Mapping[str, str], *, no_numbers: Collection[str] = (), what: str, where: str
) -> str:
    """A formula over columns in the words of Postgres; raises AppError for what it may not contain."""
    tree = parsed(text, what, where)
    for column in tree.find_all(exp.Column):
        if column.name in no_numbers:
            raise AppError(f"{what}: '{column.name}' is no number", where=where)
    doubles = {name: f"(({column})::double precision)" for name, column in columns.items()}
    rendered(text, doubles, what=what, where=where)
    if isinstance(tree.unnest(), CONDITIONS):
        raise AppError(
            f"{what}: '{text}' is a condition, and a formula is a number",
            where=where,
            hint=f"write IF({text}, 1, 0)",
        )
    for node in tree.walk():
        if not _harmless(node) or (isinstance(node, exp.Literal) and node.is_string):
            raise AppError(f"{what}: no formula can have '{node.sql('spark')}'", where=where, hint=HINT)
    return _in_words(tree, doubles)


def with_texts_in_postgres(text: str, columns: Mapping[str, str], *, what: str, where: str) -> str:
    """The same of an expression that may be a condition or a text, over columns that are what they are."""
    tree = parsed(text, what, where)
    rendered(text, columns, what=what, where=where)
    for node in tree.walk():
        if not _harmless(node) and not isinstance(node, TEXTS):
            hint = f"{HINT}; texts, LIKE, IN, CONCAT, UPPER, LOWER, LENGTH and TRIM"
            raise AppError(f"{what}: '{node.sql('spark')}' may fail on a row", where=where, hint=hint)
    return _in_words(tree, columns)


def _in_words(tree: exp.Expr, columns: Mapping[str, str]) -> str:
    def replaced(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column):
            return sqlglot.parse_one(columns[node.name], read="postgres")
        return node

    return _guarded(tree.transform(replaced)).sql("postgres")


def _harmless(node: exp.Expr) -> bool:
    if isinstance(node, exp.Round):
        decimals = node.args.get("decimals")
        return decimals is None or (isinstance(decimals, exp.Literal) and decimals.is_int)
    return isinstance(node, (*NUMBERS, *CONDITIONS, *GUARDED))


def _guarded(tree: exp.Expr) -> exp.Expr:
    whole = exp.Paren(this=tree)
    # The innermost first: what is around them then has them guarded.
    for node in reversed(list(tree.walk())):
        pattern = GUARDED.get(type(node))
        if pattern is not None:
            second = node.args.get("expression") or node.args.get("decimals") or exp.Literal.number(0)
            made = pattern.format(node.this.sql("postgres"), second.sql("postgres"))
            node.replace(sqlglot.parse_one(f"({made})", read="postgres"))
    found: exp.Expr = whole.this
    return found
