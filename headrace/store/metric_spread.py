"""Rows of a batch in a table of the transaction, with the limit of groups kept."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from psycopg import sql

from headrace.store.connection import Connection
from headrace.store.copy_lines import copy_rows
from headrace.store.metric_shape import MetricShape, column_list, make_scratch
from headrace.store.times import to_time
from headrace.views.pane_rows import OTHER, Panes
from headrace.views.window_rows import Int64s

logger = logging.getLogger(__name__)

HERE = sql.SQL('window_start = %s AND window_end = %s AND "grouping" = %s')
BOUNDS = 10_000  # windows whose number of groups is remembered


class Spread:
    """Fills the scratch table of one metric."""

    def __init__(self, shape: MetricShape) -> None:
        self._shape = shape
        self._bounds: dict[tuple[int, int], int] = {}  # by a window's end and a grouping
        self.has_twins = False  # rows with the same key

    def load(self, connection: Connection, panes: Panes, starts: Int64s) -> None:
        """The rows of these windows, in a table that is emptied with every transaction."""
        self.has_twins = False
        labels = [("grouping", "text"), *[(name, "text") for name in self._shape.metric.dimensions]]
        windows = [("window_start", "timestamptz"), ("window_end", "timestamptz")]
        counts = [("events", "bigint"), ("late_events", "bigint")]
        sums = [(part.column, part.type) for part in self._shape.resolved.parts]
        make_scratch(connection, self._shape.spread, [*windows, *labels, *counts, *sums])
        copy_rows(connection, self._shape.spread, self._shape.added, self._shape.rows(panes, starts))

    def guard(self, connection: Connection, crowded: list[tuple[int, int]]) -> None:
        """Groups beyond the limit of a window are merged into one, `(other)`; who is in stays in."""
        for end, grouping in crowded:
            place = (to_time(end - self._shape.size_us), to_time(end), self._shape.grouping(grouping))
            known, added = self._count(connection, place)
            self._bounds[end, grouping] = known + added
            if known + added > self._shape.metric.limit:
                self._merge_others(connection, place)

    def perhaps_crowded(self, panes: Panes, new: frozenset[int]) -> list[tuple[int, int]]:
        """Ends of windows, and groupings, that may have more groups than allowed, by an upper bound of their
        number. `new` are the starts of windows that are known to have no row.
        """
        window = self._shape.metric.window
        if not self._shape.metric.dimensions:
            return []
        if len(self._bounds) > BOUNDS:
            self._bounds.clear()
        crowded = []
        for rows in panes.rows:
            for pane, added in zip(
                *(c.tolist() for c in np.unique(rows.panes, return_counts=True)), strict=True
            ):
                for k in range(window.panes):
                    key = (pane + window.hop_us * (k + 1), rows.grouping)
                    # A window that this process has not seen may be full already.
                    unseen = 0 if key[0] - self._shape.size_us in new else self._shape.metric.limit
                    self._bounds[key] = self._bounds.get(key, unseen) + added
                    if self._bounds[key] > self._shape.metric.limit:
                        crowded.append(key)
        return list(dict.fromkeys(crowded))

    def _count(self, connection: Connection, place: tuple[Any, ...]) -> tuple[int, int]:
        """The groups that the table has, and those that the batch has."""
        counts = sql.SQL("SELECT (SELECT count(*) FROM {} WHERE {}), (SELECT count(*) FROM {} WHERE {})")
        found = connection.execute(
            counts.format(self._shape.table, HERE, self._shape.spread, HERE), (*place, *place)
        ).fetchone()
        return (found[0], found[1]) if found else (0, 0)

    def _merge_others(self, connection: Connection, place: tuple[Any, ...]) -> None:
        """New groups that find no room, the smallest first, lose their names."""
        names = [self._shape.grouping(n) for n, _ in enumerate(self._shape.metric.groupings)]
        own = self._shape.metric.groupings[names.index(place[2])]
        if not own:
            return
        # Postgres knows nothing about a new temporary table, and would join it row by row.
        connection.execute(sql.SQL("ANALYZE {}").format(self._shape.spread))
        found = connection.execute(
            sql.SQL("SELECT count(*) FROM {} WHERE {} AND {} <> %s").format(
                self._shape.table, HERE, sql.Identifier(own[0])
            ),
            (*place, OTHER),
        ).fetchone()
        room = max(0, self._shape.metric.limit - (found[0] if found else 0))
        moved = connection.execute(
            sql.SQL(
                "WITH known AS (SELECT {dims} FROM {table} WHERE {here}), new AS (SELECT s.ctid AS place,"
                " row_number() OVER (ORDER BY events DESC, {dims}) AS n"
                " FROM {spread} s LEFT JOIN known USING ({dims}) WHERE {here} AND known.{first} IS NULL)"
                " UPDATE {spread} u SET {others} FROM new WHERE u.ctid = new.place AND new.n > %s"
            ).format(
                dims=column_list(own),
                table=self._shape.table,
                here=HERE,
                spread=self._shape.spread,
                first=sql.Identifier(own[0]),
                others=sql.SQL(", ").join(
                    sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(OTHER)) for name in own
                ),
            ),
            (*place, *place, room),
        ).rowcount
        if moved:
            self.has_twins = True
            logger.warning(
                "metric %s, window %s: %d groups beyond the limit of %d went to (other)",
                *(self._shape.metric.name, place[0].isoformat(), moved, self._shape.metric.limit),
            )
