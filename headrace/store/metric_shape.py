"""How the rows of a metric are named: its table, its keys, its labels, and tables for one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from psycopg import sql

from headrace.store.connection import Connection
from headrace.store.copy_lines import escaped, texts_of
from headrace.store.metric_tables import key_columns, table_name
from headrace.store.times import to_time
from headrace.views.pane_rows import Panes, Texts
from headrace.views.resolve import ResolvedMetric
from headrace.views.window_rows import Int64s, spread
from headrace.windows import MICROSECOND

ALL = "(all)"
# How many texts a measure has in a pane's values; a top has rows of its own.
TEXTS = {"mean": 2, "variance": 3, "stddev": 3, "first": 2, "last": 2, "top": 0}
Key = tuple[Any, ...]
Label = TypeVar("Label")


class MetricShape:
    """The names of one metric; its rows may be merged in another table than the one that is shown."""

    def __init__(self, app: str, resolved: ResolvedMetric, table: sql.Identifier | None = None) -> None:
        self.app, self.resolved, self.metric = app, resolved, resolved.metric
        self.table = table or table_name(app, self.metric)
        self.keys = key_columns(self.metric)
        self.places = _places(resolved)
        self.size_us = self.metric.window.size // MICROSECOND
        self._label_places = [
            [own.index(name) if name in own else None for name in self.metric.dimensions]
            for own in self.metric.groupings
        ]
        self.spread = sql.Identifier("pg_temp", f"spread_{self.metric.name}")
        # What a batch adds: the columns of a row that do not depend on what is there already.
        self.added = [*self.keys, "events", "late_events", *[part.column for part in resolved.parts]]

    def grouping(self, number: int) -> str:
        return ",".join(self.metric.groupings[number]) or "all"

    def labels(self, number: int, labels: Sequence[Label]) -> list[Label | str]:
        """One for each dimension of the metric, from those of a grouping."""
        return [ALL if place is None else labels[place] for place in self._label_places[number]]

    def windows(self, pane: int, missed: int, grouping: int, labels: Sequence[str]) -> Iterator[Key]:
        """The keys of the rows that a pane belongs to."""
        window, size = self.metric.window, self.metric.window.size // MICROSECOND
        for k in range(missed, window.panes):
            end = pane + window.hop_us * (k + 1)
            yield (to_time(end - size), to_time(end), self.grouping(grouping), *self.labels(grouping, labels))

    def window_starts(self, panes: Panes) -> Int64s:
        """Of all rows that a batch touches, so that a join needs to look at no others."""
        window = self.metric.window
        firsts = panes.starts + window.hop_us - window.size // MICROSECOND
        starts: Int64s = np.unique(firsts[:, None] + np.arange(window.panes) * window.hop_us)
        return starts

    def rows(
        self, panes: Panes, starts: Int64s, life: Callable[[int], str] | None = None
    ) -> Iterator[list[Texts | str]]:
        """The rows that a batch adds to windows, as columns for COPY.

        What all rows of a window have in common is one text: its times, and at the end its `life`, if given.
        """
        asked = [self.places[part.column] for part in self.resolved.parts]
        for own in panes.rows:
            for rows in spread(own, self.metric.window, asked, starts):
                if not len(rows.starts):
                    continue
                times, *ending = texts_of(rows.starts, self._times, *([life] if life else []))
                labels = self.labels(rows.grouping, [escaped(column) for column in rows.labels])
                values = [escaped(column) for column in rows.values]
                yield [times, self.grouping(rows.grouping), *labels, rows.events, rows.late, *values, *ending]

    def _times(self, start: int) -> str:
        return f"{to_time(start)}\t{to_time(start + self.size_us)}"


def make_scratch(connection: Connection, name: sql.Identifier, columns: list[tuple[str, str]]) -> None:
    """A table that is emptied with every transaction, made once for each connection."""
    fields = [sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(type_)) for column, type_ in columns]
    connection.execute(
        sql.SQL("CREATE TEMP TABLE IF NOT EXISTS {} ({}) ON COMMIT DELETE ROWS").format(
            name, sql.SQL(", ").join(fields)
        )
    )


def column_list(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _places(resolved: ResolvedMetric) -> dict[str, int]:
    """Where a column's text is among the values of a pane; the first is the number of events."""
    found: dict[str, int] = {}
    place = 1
    for name, measure in resolved.metric.measures.items():
        columns = [part.column for part in resolved.parts if part.measure == name] or [f"{name}__sketch"]
        count = TEXTS.get(measure.kind, 1)
        found |= dict(zip(columns, range(place, place + count), strict=False))
        place += count
    return found
