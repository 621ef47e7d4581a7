"""Merging what only Python can merge: all rows of a batch are read at once, and written at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from psycopg import sql

from headrace.measures import Measure
from headrace.store.connection import Connection
from headrace.store.metric_shape import ALL, Key, MetricShape, column_list
from headrace.views.packed import merge_packed
from headrace.views.pane_rows import OTHER, Panes
from headrace.views.resolve import packed_columns


class Packed:
    """The sketches and counts of one metric. The scratch table of its windows must be filled."""

    def __init__(self, shape: MetricShape) -> None:
        self._shape = shape

    def merge(
        self, connection: Connection, name: str, measure: Measure, panes: Panes, windows: list[datetime]
    ) -> None:
        """`windows` are the starts of all that the batch touches."""
        added: dict[Key, list[Any]] = {}
        for key, value in self._packed_values(name, measure, panes):
            added.setdefault(key, []).append(value)
        if not added:
            return
        columns = packed_columns(name, measure)
        state = next(iter(columns))
        keys = column_list(self._shape.keys)
        found: dict[Key, Any] = {
            tuple(key): before
            for *key, before in connection.execute(
                sql.SQL(
                    "SELECT {keys}, t.{} FROM {} t JOIN (SELECT DISTINCT {keys} FROM {}) s USING ({keys})"
                    " WHERE t.window_start = ANY(%s)"
                ).format(sql.Identifier(state), self._shape.table, self._shape.spread, keys=keys),
                (windows,),
                binary=True,
            )
        }
        merged: dict[Key, list[Any]] = {}
        for key, new in added.items():
            # The guard may have taken the row's name: what it holds belongs to the others.
            merged.setdefault(key if key in found else self._other_key(key), []).extend(new)
        rows = []
        for key, new in merged.items():
            values = merge_packed(name, measure, found[key], new)
            rows.append((*key, *[values[column] for column in columns]))
        self._write(connection, columns, rows, windows)

    def _write(
        self, connection: Connection, columns: dict[str, str], rows: list[Key], windows: list[datetime]
    ) -> None:
        """As arrays: a table on the way would compress every sketch once more."""
        types = [*("timestamptz" if n < 2 else "text" for n in range(len(self._shape.keys)))]
        names = [*self._shape.keys, *columns]
        connection.execute(
            sql.SQL(
                "UPDATE {} t SET {} FROM unnest({}) AS p ({}) WHERE t.window_start = ANY(%b) AND {}"
            ).format(
                self._shape.table,
                sql.SQL(", ").join(sql.SQL("{0} = p.{0}").format(sql.Identifier(c)) for c in columns),
                sql.SQL(", ").join(sql.SQL(f"%b::{type_}[]") for type_ in (*types, *columns.values())),
                column_list(names),
                sql.SQL(" AND ").join(
                    sql.SQL("t.{0} = p.{0}").format(sql.Identifier(k)) for k in self._shape.keys
                ),
            ),
            (*map(list, zip(*rows, strict=True)), windows),
        )

    def _other_key(self, key: Key) -> Key:
        start, end, grouping, *labels = key
        return (start, end, grouping, *[label if label == ALL else OTHER for label in labels])

    def _packed_values(self, name: str, measure: Measure, panes: Panes) -> Iterator[tuple[Key, Any]]:
        if measure.kind == "top":
            for rows in panes.counts.get(name, ()):
                for pane, missed, (*labels, item), count in rows.one_by_one(0):
                    for key in self._shape.windows(pane, missed, rows.grouping, labels):
                        yield key, (item, int(count))
            return
        for rows in panes.rows:
            for pane, missed, own, sketches in rows.one_by_one(self._shape.places[f"{name}__sketch"]):
                for key in self._shape.windows(pane, missed, rows.grouping, own):
                    for sketch in sketches:
                        yield key, sketch
