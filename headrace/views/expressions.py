"""The SQL that users write in declarations: which fields it uses, and what it may not contain."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.errors import AppError, known_names

# What gives another result when the same event is read again, or needs more than one event.
FORBIDDEN = {
    exp.AggFunc: "aggregates by itself; the measure does that",
    exp.Window: "looks at other rows",
    exp.Query: "reads another table",
    exp.CurrentTimestamp: "changes with the time of reading",
    exp.CurrentDate: "changes with the time of reading",
    exp.Rand: "is different every time",
    exp.Uuid: "is different every time",
}
# Spark takes these for constants, or for functions like any other.
BY_NAME = {
    "changes with the time of reading": ("now", "localtimestamp", "current_time", "getdate"),
    "depends on where it runs": (
        *("current_user", "user", "session_user", "version", "current_timezone", "current_database"),
        *("current_schema", "current_catalog", "input_file_name", "input_file_block_start"),
        *("input_file_block_length", "spark_partition_id", "monotonically_increasing_id"),
        *("java_method", "reflect", "try_reflect"),
    ),
    "is different every time": ("randn", "shuffle", "randstr", "uniform"),
}
REASONS = {name: reason for reason, names in BY_NAME.items() for name in names}


INSIDE = "fields inside objects cannot be used: give what you need a field of its own"


def fields_used(text: str, known: Collection[str], *, what: str, where: str) -> set[str]:
    """The names in an expression; raises AppError for an unknown one, with the nearest known."""
    tree = parsed(text, what, where)
    for kind, reason in FORBIDDEN.items():
        found = tree.find(kind)
        if found is not None:
            raise AppError(f"{what}: '{found.sql('spark')}' {reason}", where=where)
    for function in tree.find_all(exp.Func):
        called = [function.name] if isinstance(function, exp.Anonymous) else function.sql_names()
        for reason in (REASONS[n] for n in map(str.lower, called) if n in REASONS):
            raise AppError(f"{what}: '{function.sql('spark')}' {reason}", where=where)
    names = {column.name for column in tree.find_all(exp.Column) if not column.table}
    objects = {column.parts[0].name for column in tree.find_all(exp.Column) if column.table}
    for name in sorted(names | objects):
        if name not in known:
            hint = INSIDE if name in objects else known_names(name, known)
            raise AppError(f"{what}: there is no column '{name}'", where=where, hint=hint)
    return names | objects


def rendered(text: str, columns: Mapping[str, str], *, what: str, where: str) -> str:
    """An expression in the words of Postgres, with each column replaced by the given one."""
    tree = parsed(text, what, where)
    fields_used(text, columns, what=what, where=where)
    inside = next((column for column in tree.find_all(exp.Column) if column.table), None)
    if inside is not None:
        raise AppError(f"{what}: '{inside.sql('spark')}' looks inside a column", where=where)

    def replaced(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column):
            return sqlglot.parse_one(columns[node.name], read="postgres")
        return node

    return tree.transform(replaced).sql("postgres")


def parsed(text: str, what: str, where: str) -> exp.Expr:
    try:
        trees = sqlglot.parse(text, read="spark")
        if len(trees) > 1:
            raise AppError(f"{what}: '{text}' is more than one expression", where=where)
        return sqlglot.parse_one(text, read="spark")
    except SqlglotError as error:
        problem = str(error).split("\n")[0].rstrip(".")
        raise AppError(f"{what}: cannot read '{text}': {problem}", where=where) from error
