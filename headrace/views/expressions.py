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


def fields_used(text: str, known: Collection[str], *, what: str, where: str) -> set[str]:
    """The names in an expression; raises AppError for an unknown one, with the nearest known."""
    tree = _parsed(text, what, where)
    for kind, reason in FORBIDDEN.items():
        found = tree.find(kind)
        if found is not None:
            raise AppError(f"{what}: '{found.sql('spark')}' {reason}", where=where)
    names = {column.name for column in tree.find_all(exp.Column) if not column.table}
    names |= {column.parts[0].name for column in tree.find_all(exp.Column) if column.table}
    for name in sorted(names):
        if name not in known:
            raise AppError(f"{what}: there is no column '{name}'", where=where, hint=known_names(name, known))
    return names


def in_postgres(text: str, columns: Mapping[str, str], *, what: str, where: str) -> str:
    """A formula over columns as Postgres computes it: in doubles, and a division by zero is null."""
    doubles = {name: f"(({column})::double precision)" for name, column in columns.items()}
    return rendered(text, doubles, what=what, where=where)


def rendered(text: str, columns: Mapping[str, str], *, what: str, where: str) -> str:
    """An expression in the words of Postgres, with each column replaced by the given one."""
    tree = _parsed(text, what, where)
    fields_used(text, columns, what=what, where=where)
    inside = next((column for column in tree.find_all(exp.Column) if column.table), None)
    if inside is not None:
        raise AppError(f"{what}: '{inside.sql('spark')}' looks inside a column", where=where)

    def replaced(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column):
            return sqlglot.parse_one(columns[node.name], read="postgres")
        return node

    return tree.transform(replaced).sql("postgres")


def _parsed(text: str, what: str, where: str) -> exp.Expr:
    try:
        return sqlglot.parse_one(text, read="spark")
    except SqlglotError as error:
        problem = str(error).split("\n")[0].rstrip(".")
        raise AppError(f"{what}: cannot read '{text}': {problem}", where=where) from error
