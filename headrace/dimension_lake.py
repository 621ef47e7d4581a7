"""Reading a dimension from a Delta table; what is wrong is named with its key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from headrace.dimension_files import as_texts, check_columns, checked_row, too_large
from headrace.dimensions import Dimension, Row, Versions, versions_of
from headrace.errors import AppError

# Batches wait while a table is looked at, and the versions that are there can be used meanwhile.
_PATIENCE = {"connect_timeout": "2s", "timeout": "10s", "max_retries": "2", "retry_timeout": "10s"}
_UNREADABLE = (DeltaError, OSError, ValueError, pa.ArrowException)
_NOISE = re.compile(r"\x1b\[\d*m| in [\d.]+[nµm]?s\b")  # colours, and how long it took
_FRAME = re.compile(r"\d+: |at /|at <")  # delta-rs may add where in itself it failed


class LakeTable:
    """A Delta table: its latest version is what counts, and its rows say since when they are valid."""

    def __init__(self, dimension: Dimension) -> None:
        self._dimension = dimension
        self._table: DeltaTable | None = None

    def stamp(self) -> object:
        """The table's version; opened anew, because one that was made again starts from 0."""
        found = self._table = self._open()
        return (found.metadata().id, found.version())

    def read(self) -> Versions:
        """The version that was stamped last; raises AppError for one that is too large or wrong."""
        if self._table is None:
            self._table = self._open()
        dimension, where = self._dimension, self._dimension.declared_at
        columns = self._columns(self._table)
        if self._known_rows(self._table) > dimension.limit:
            raise too_large(dimension, where)
        rows: dict[tuple[str, int], Row] = {}
        for given in self._given(self._table, columns):
            row = self._row(given, columns)
            if rows.setdefault((row.key, row.valid_from), row) is not row:
                raise self._wrong(f"{dimension.key} {row.key!r} has two versions of the same moment")
            if len(rows) > dimension.limit:
                raise too_large(dimension, where)
        return versions_of(columns, rows.values())

    def _open(self) -> DeltaTable:
        place, is_remote = self._dimension.lake, self._dimension.is_remote
        try:
            if not is_remote and not Path(place).exists():
                raise self._wrong(f"there is no {place}")
            if not is_remote and not (Path(place) / "_delta_log").is_dir():
                raise self._wrong(f"{place} is no Delta table", "the folder that has the _delta_log")
            return DeltaTable(place, storage_options=_PATIENCE if is_remote else None)
        except TableNotFoundError as error:
            raise self._wrong(f"there is no Delta table at {place}: {_one_line(error)}") from error
        except _UNREADABLE as error:
            raise self._unreadable(error) from error

    def _columns(self, table: DeltaTable) -> tuple[str, ...]:
        """Lists, objects and bytes are left out; that is wrong only of columns that the declaration names."""
        dimension = self._dimension
        try:
            schema = pa.schema(cast(Any, table.schema().to_arrow()))
        except _UNREADABLE as error:
            raise self._unreadable(error) from error
        found = check_columns(dimension, dimension.declared_at, schema.names)
        for name in (dimension.key, dimension.valid_from, dimension.valid_to, *dimension.types):
            if name and not _is_plain(schema.field(name).type):
                raise self._wrong(f"column '{name}' is {schema.field(name).type}, which is not one value")
        return tuple(name for name in found if _is_plain(schema.field(name).type))

    def _known_rows(self, table: DeltaTable) -> int:
        """What the log says: not more than there are, except where rows are deleted in their files."""
        try:
            return 0 if "deletionVectors" in (table.protocol().reader_features or ()) else table.count()
        except _UNREADABLE as error:
            raise self._unreadable(error) from error

    def _given(self, table: DeltaTable, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        """Batch by batch, so that not much more is read than may be."""
        own = [self._dimension.key, self._dimension.valid_from, self._dimension.valid_to]
        names = [*(name for name in own if name), *columns]
        try:
            for batch in pa.RecordBatchReader.from_stream(table.scan(columns=names)):
                try:
                    yield from _values(batch)
                except OverflowError as error:
                    raise self._out_of_time(batch) from error
        except _UNREADABLE as error:
            raise self._unreadable(error) from error

    def _out_of_time(self, batch: pa.RecordBatch) -> AppError:
        """Python's years end with 9999, those of Delta do not."""
        for number in range(batch.num_rows):
            try:
                _values(batch.slice(number, 1))
            except OverflowError:
                key = str(batch.column(self._dimension.key)[number].as_py())
                return self._wrong(f"{self._dimension.key} {key!r} has a time outside the years 1 to 9999")
        raise AssertionError("one of the rows has such a time")

    def _row(self, given: Mapping[str, Any], columns: tuple[str, ...]) -> Row:
        dimension = self._dimension
        try:
            times = {
                name: _midnight(given[name]) for name in (dimension.valid_from, dimension.valid_to) if name
            }
            return checked_row(
                dimension, dimension.declared_at, as_texts(dimension, {**given, **times}), columns
            )
        except AppError as error:
            key = given.get(dimension.key)
            of_key = f", in a row of {dimension.key} {str(key)!r}" if key not in (None, "") else ""
            raise AppError(f"{error.what}{of_key}", where=error.where, hint=error.hint) from error

    def _wrong(self, what: str, hint: str = "") -> AppError:
        return AppError(
            f"table '{self._dimension.name}': {what}", where=self._dimension.declared_at, hint=hint
        )

    def _unreadable(self, error: Exception) -> AppError:
        return self._wrong(f"cannot read {self._dimension.lake}: {_one_line(error)}")


def _values(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """A short float is read by its own digits: 0.1, not the 0.10000000149 that it is as a double."""
    columns = [
        column.cast(pa.string()) if pa.types.is_float32(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()


def _is_plain(type_: pa.DataType) -> bool:
    is_bytes = pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_)
    return not pa.types.is_nested(type_) and not is_bytes


def _midnight(given: Any) -> Any:
    is_day = isinstance(given, date) and not isinstance(given, datetime)
    return datetime.combine(given, time(), UTC) if is_day else given


def _one_line(error: Exception) -> str:
    """What delta-rs says in a tree; the same words each time, so that they are logged once."""
    lines = [line.strip(" ↳\t") for line in _NOISE.sub("", str(error)).splitlines()]
    return ": ".join(line for line in lines if line and not _FRAME.match(line))[:500]
