"""Dimension tables: what is known about the things that events speak of, with its history. No Spark."""

from __future__ import annotations

import inspect
import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from headrace.errors import AppError, known_names
from headrace.metrics import NAME

ColumnType = Literal["string", "integer", "number", "boolean"]
LIMIT = 100_000
ALWAYS = -(2**62)  # a version that has been valid since ever


@dataclass(frozen=True)
class Dimension:
    """A table of versions: of a key, the latest that was valid at an event's time is the one that counts."""

    name: str
    key: str
    on: str  # the field of the events that names the key
    as_of: str
    file: Path | None
    store: tuple[str, str] | None  # schema and table
    lake: str  # the folder or address of a Delta table
    valid_from: str
    valid_to: str
    types: Mapping[str, ColumnType] = field(hash=False)
    limit: int
    declared_at: str

    def type_of(self, column: str) -> ColumnType:
        return self.types.get(column, "string")

    @property
    def place(self) -> str:
        return self.lake or (str(self.file) if self.file is not None else ".".join(self.store or ()))

    @property
    def is_remote(self) -> bool:
        """Whether it is of a service: the store, or a lake with an address like `s3://…`."""
        return self.store is not None or "://" in self.lake

    def beside(self, folder: Path) -> Dimension:
        """With its file or folder found there."""
        if self.file is not None:
            return replace(self, file=folder / self.file)
        return replace(self, lake=str(folder / self.lake)) if not self.is_remote else self


def table(
    name: str,
    *,
    key: str,
    on: str = "",
    as_of: str = "event_time",
    file: str = "",
    store: str = "",
    lake: str = "",
    replica: str = "",
    valid_from: str = "valid_from",
    valid_to: str = "",
    types: Mapping[str, ColumnType] | None = None,
    limit: int = LIMIT,
) -> Dimension:
    """A dimension from a CSV or JSON-lines file, a table of the store (`"schema.table"`) or a Delta table.

    `lake` is the folder of the Delta table, or an address that delta-rs knows, like `s3://bucket/products`.

    Columns are texts unless `types` says otherwise. `on` is the field of the events, if its name is another
    than that of the key. A version ends where the next begins, or at `valid_to`.
    """
    caller = inspect.stack()[1]
    where = f"{caller.filename}:{caller.lineno}"
    what = f"table '{name}'"
    if not NAME.fullmatch(name):
        raise AppError(f"'{name}' is no name for a table", where=where, hint="lower-case letters and _")
    if replica:
        raise AppError(
            f"{what}: tables of a CDC replica cannot be looked up yet",
            where=where,
            hint='today a file (file="dimensions/products.csv"), the store (store="schema.table") or lake=',
        )
    if [bool(file), bool(store), bool(lake)].count(True) != 1:
        hint = f'file="dimensions/{name}.csv"'
        raise AppError(f"{what} needs a file, a store or a lake, one of them", where=where, hint=hint)
    schema, dot, stored = store.partition(".")
    if store and not (schema and dot and stored and "." not in stored):
        raise AppError(f"{what}: '{store}' is no table of the store", where=where, hint='"schema.table"')
    for column, type_ in (types or {}).items():
        if type_ not in get_args(ColumnType):
            hint = known_names(str(type_), get_args(ColumnType))
            raise AppError(f"{what}: there is no type {type_!r} (of '{column}')", where=where, hint=hint)
    if limit < 1:
        raise AppError(f"{what}: limit must be at least 1, not {limit}", where=where)
    return Dimension(
        *(name, key, on or key, as_of, Path(file) if file else None, (schema, stored) if store else None),
        *(lake, valid_from, valid_to, dict(types or {}), limit, where),
    )


class Row(NamedTuple):
    """One line of a dimension; times in microseconds."""

    key: str
    valid_from: int
    valid_to: int | None
    values: tuple[Any, ...]


Version = tuple[int, tuple[Any, ...] | None]  # since when, and the values; None: known to be gone


@dataclass(frozen=True)
class Versions:
    """The history of a dimension: by key, the starts of its versions in order, and their values."""

    columns: tuple[str, ...]
    starts: Mapping[str, Sequence[int]]
    values: Mapping[str, Sequence[tuple[Any, ...] | None]]
    rows: int

    def as_of(self, key: str | None, at: int) -> tuple[int, tuple[Any, ...]] | None:
        """The version that was valid at that moment, with its start; None if there was none."""
        starts = self.starts.get(key) if key is not None else None
        if not starts:
            return None
        place = bisect_right(starts, at) - 1
        if place < 0:
            return None
        values = self.values[key][place]  # type: ignore[index]
        return None if values is None else (starts[place], values)


def versions_of(columns: Sequence[str], rows: Iterable[Row]) -> Versions:
    """Rows in any order, no two of one key with the same start."""
    by_key: dict[str, list[Row]] = {}
    count = 0
    for row in rows:
        by_key.setdefault(row.key, []).append(row)
        count += 1
    starts: dict[str, list[int]] = {}
    values: dict[str, list[tuple[Any, ...] | None]] = {}
    for key, mine in by_key.items():
        history = _history(sorted(mine, key=lambda row: row.valid_from))
        starts[key] = [start for start, _ in history]
        values[key] = [found for _, found in history]
    return Versions(tuple(columns), starts, values, count)


def _history(rows: list[Row]) -> list[Version]:
    found: list[Version] = []
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        found.append((row.valid_from, row.values))
        if row.valid_to is not None and (following is None or row.valid_to < following.valid_from):
            found.append((row.valid_to, None))
    return found


def json_text(value: Any) -> str:
    """A value of a dimension as JSON; a number as it was written."""
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)
