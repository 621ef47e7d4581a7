"""Reading a dimension from a CSV or JSON-lines file; what is wrong is named with its line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from headrace.dimensions import ALWAYS, ColumnType, Dimension, Row, Versions, versions_of
from headrace.errors import AppError, known_names

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_JSON = (".jsonl", ".ndjson", ".json")
Line = tuple[int, Mapping[str, Any] | list[str]]  # its number; a row, or the names of the columns
_WORDS = {"true": True, "false": False}


def read_file(dimension: Dimension) -> Versions:
    """Raises AppError for a file that is missing, too large or not what it should be."""
    assert dimension.file is not None
    lines = _json_lines if dimension.file.suffix in _JSON else _csv_lines
    try:
        with dimension.file.open(encoding="utf-8-sig", newline="") as file:
            return _checked(dimension, lines(dimension.file, file))
    except OSError as error:
        raise AppError(
            f"table '{dimension.name}': cannot read {dimension.file}: {error.strerror}",
            where=dimension.declared_at,
        ) from error
    except UnicodeDecodeError as error:
        raise AppError(f"table '{dimension.name}' is not UTF-8", where=str(dimension.file)) from error


def checked_row(dimension: Dimension, where: str, given: Mapping[str, Any], columns: tuple[str, ...]) -> Row:
    """A row in the types of the declaration; raises AppError with `where` for a value that is not."""

    def wrong(what: str, hint: str = "") -> AppError:
        return AppError(f"table '{dimension.name}': {what}", where=where, hint=hint)

    key = given.get(dimension.key)
    if key is None or key == "":
        raise wrong(f"no {dimension.key}")
    start = _instant(given.get(dimension.valid_from), wrong, dimension.valid_from)
    end = _instant(given.get(dimension.valid_to), wrong, dimension.valid_to) if dimension.valid_to else None
    start = ALWAYS if start is None else start
    if end is not None and end <= start:
        raise wrong(f"{dimension.valid_to} is not after {dimension.valid_from}")
    values = []
    for column in columns:
        type_ = dimension.type_of(column)
        try:
            values.append(_value(given.get(column), type_))
        except (ValueError, InvalidOperation) as error:
            hint = "" if column in dimension.types else f'types={{"{column}": "number"}}, if it is none'
            raise wrong(f"{column}: {given[column]!r} is no {type_}", hint) from error
    return Row(str(key), start, end, tuple(values))


def as_texts(dimension: Dimension, row: Mapping[str, Any]) -> dict[str, Any]:
    """A column that is declared as text is shown as text, whatever it is kept as."""
    times = (dimension.valid_from, dimension.valid_to)
    return {
        name: str(value)
        if value is not None and name not in times and dimension.type_of(name) == "string"
        else value
        for name, value in row.items()
    }


def check_columns(dimension: Dimension, where: str, present: list[str]) -> tuple[str, ...]:
    """The columns that hold values; raises AppError where one that is needed is missing."""
    own = [dimension.key, dimension.valid_from, *([dimension.valid_to] if dimension.valid_to else [])]
    for name in (*own, *dimension.types):
        if name not in present:
            raise AppError(
                f"table '{dimension.name}' has no column '{name}'",
                where=where,
                hint=known_names(name, present),
            )
    twice = next((name for name in present if present.count(name) > 1), None)
    if twice is not None:
        raise AppError(f"table '{dimension.name}' has two columns '{twice}'", where=where)
    return tuple(name for name in present if name not in own)


def too_large(dimension: Dimension, where: str) -> AppError:
    return AppError(
        f"table '{dimension.name}' has more than {dimension.limit:,} rows",
        where=where,
        hint="every worker holds all of it: take out old versions, or raise limit=",
    )


def _checked(dimension: Dimension, lines: Iterator[Line]) -> Versions:
    rows: dict[tuple[str, int], tuple[int, Row]] = {}
    columns: tuple[str, ...] | None = None
    present: set[str] = set()
    for number, given in lines:
        where = f"{dimension.file}:{number}"
        if columns is None:
            columns, present = check_columns(dimension, where, list(given)), set(given)
        if isinstance(given, list):
            continue
        if given.keys() - present:
            unknown = sorted(given.keys() - present)[0]
            raise AppError(f"'{unknown}' is not among the columns of the first line", where=where)
        row = checked_row(dimension, where, given, columns)
        before = rows.setdefault((row.key, row.valid_from), (number, row))
        if before[1] is not row:
            raise AppError(
                f"table '{dimension.name}': {dimension.key} {row.key!r} has two versions of the same moment",
                where=where,
                hint=f"the first is in line {before[0]}",
            )
        if len(rows) > dimension.limit:
            raise too_large(dimension, where)
    return versions_of(columns or (), (row for _, row in rows.values()))


def _csv_lines(path: Path, file: Any) -> Iterator[Line]:
    reader = csv.reader(file, strict=True)
    try:
        header = next(reader, None)
        if header is None:
            raise AppError("the file is empty", where=str(path), hint="the first line names the columns")
        yield 1, header
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                raise AppError(
                    f"{len(cells)} values for {len(header)} columns", where=f"{path}:{reader.line_num}"
                )
            yield reader.line_num, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise AppError(f"cannot read the line: {error}", where=f"{path}:{reader.line_num}") from error


def _json_lines(path: Path, file: Any) -> Iterator[Line]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            given = json.loads(line, parse_float=Decimal)
        except ValueError as error:
            raise AppError(f"not JSON: {error}", where=f"{path}:{number}") from error
        if not isinstance(given, dict):
            raise AppError("not a JSON object", where=f"{path}:{number}")
        yield number, given


def _instant(given: Any, wrong: Any, column: str) -> int | None:
    if given is None or given == "":
        return None
    try:
        moment = given if isinstance(given, datetime) else datetime.fromisoformat(given)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, TypeError) as error:
        raise wrong(f"{column}: {given!r} is no time", "like 2026-03-01T10:05:00Z") from error


def _value(given: Any, type_: ColumnType) -> Any:
    """Files give texts, JSON and the store values of their own; an empty text of another type is nothing."""
    if given is None or (given == "" and type_ != "string"):
        return None
    match type_:
        case "string" if isinstance(given, str):
            return given
        case "integer" if isinstance(given, int | str) and not isinstance(given, bool):
            return int(given)
        case "number" if isinstance(given, int | float | str | Decimal) and not isinstance(given, bool):
            number = Decimal(str(given))
            if number.is_finite():
                return number
        case "boolean" if isinstance(given, bool):
            return given
        case "boolean" if isinstance(given, str) and given.lower() in _WORDS:
            return _WORDS[given.lower()]
    raise ValueError(type_)
