"""A batch's panes spread over their windows, in a table of the transaction, with the limit of groups kept."""

from __future__ import annotations

import logging
from typing import Any

from psycopg import sql

from headrace.store.connection import Connection
from headrace.store.metric_parts import within_batch
from headrace.store.metric_shape import MetricShape, column_list, make_scratch
from headrace.store.times import to_time
from headrace.views.panes import OTHER, Panes

logger = logging.getLogger(__name__)

NULL = "\\N"
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class Spread:
    """Fills the scratch table of one metric."""

    def __init__(self, shape: MetricShape) -> None:
        self._shape = shape

    def load(self, connection: Connection, panes: Panes) -> None:
        """The panes spread over their windows, in tables that are emptied with every transaction."""
        metric, parts = self._shape.metric, self._shape.resolved.parts
        groups = [("grouping", "text"), *[(name, "text") for name in metric.dimensions]]
        sums = [(part.column, part.type) for part in parts]
        windows = [("window_start", "timestamptz"), ("window_end", "timestamptz")]
        counts = [("events", "bigint"), ("late_events", "bigint")]
        make_scratch(
            connection,
            self._shape.panes,
            [("pane", "timestamptz"), ("missed", "int"), *groups, counts[0], *sums],
        )
        make_scratch(connection, self._shape.spread, [*windows, *groups, *counts, *sums])
        with (
            connection.cursor() as cursor,
            cursor.copy(sql.SQL("COPY {} FROM STDIN").format(self._shape.panes)) as copy,
        ):
            copy.write(self._pane_lines(panes))
        in_time = sql.SQL("FILTER (WHERE k >= missed)")
        connection.execute(
            sql.SQL(
                "INSERT INTO {spread} SELECT pane + {hop} * (k + 1) - {size}, pane + {hop} * (k + 1),"
                " {groups}, coalesce(sum(events) FILTER (WHERE k >= missed), 0),"
                " coalesce(sum(events) FILTER (WHERE k < missed), 0){sums}"
                " FROM {panes} CROSS JOIN generate_series(0, {last}) AS k GROUP BY 1, 2, {groups}"
            ).format(
                spread=self._shape.spread,
                panes=self._shape.panes,
                hop=sql.Literal(metric.window.hop),
                size=sql.Literal(metric.window.size),
                last=sql.Literal(metric.window.panes - 1),
                groups=column_list([name for name, _ in groups]),
                sums=sql.SQL("").join(sql.SQL(", ") + within_batch(part, in_time) for part in parts),
            )
        )
        # Postgres knows nothing about a new temporary table, and would join it row by row.
        connection.execute(sql.SQL("ANALYZE {}").format(self._shape.spread))

    def _pane_lines(self, panes: Panes) -> str:
        """The rows in the text format of COPY; a row is as cheap as joining its texts."""
        at = [self._shape.places[part.column] for part in self._shape.resolved.parts]
        times = {pane: str(to_time(pane)) for pane in {row[0] for row in panes.rows}}
        names = [self._shape.grouping(n) for n, _ in enumerate(self._shape.metric.groupings)]
        lines = []
        for pane, missed, grouping, labels, items in panes.rows:
            own = self._shape.labels(grouping, labels)
            texts = (NULL if items[n] is None else items[n].translate(ESCAPES) for n in at)  # type: ignore[union-attr]
            groups = (label.translate(ESCAPES) for label in own)
            lines.append(
                "\t".join((times[pane], str(missed), names[grouping], *groups, str(items[0]), *texts))
            )
        return "\n".join(lines) + "\n"

    def guard(self, connection: Connection) -> None:
        """Groups beyond the limit of a window are merged into one, `(other)`; who is in stays in."""
        if not self._shape.metric.dimensions:
            return
        crowded = connection.execute(
            sql.SQL(
                'SELECT window_start, window_end, "grouping" FROM (SELECT window_start, window_end,'
                ' "grouping", count(*) + (SELECT count(*) FROM {} t WHERE t.window_start = s.window_start'
                " AND t.window_end = s.window_end AND t.grouping = s.grouping) AS n FROM {} s"
                " GROUP BY 1, 2, 3) g WHERE n > %s"
            ).format(self._shape.table, self._shape.spread),
            (self._shape.metric.limit,),
        ).fetchall()
        for start, end, grouping in crowded:
            self._merge_others(connection, (start, end, grouping))

    def _merge_others(self, connection: Connection, place: tuple[Any, ...]) -> None:
        """New groups that find no room, the smallest first, lose their names."""
        names = [self._shape.grouping(n) for n, _ in enumerate(self._shape.metric.groupings)]
        own = self._shape.metric.groupings[names.index(place[2])]
        if not own:
            return
        here = sql.SQL('window_start = %s AND window_end = %s AND "grouping" = %s')
        found = connection.execute(
            sql.SQL("SELECT count(*) FROM {} WHERE {} AND {} <> %s").format(
                self._shape.table, here, sql.Identifier(own[0])
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
                here=here,
                spread=self._shape.spread,
                first=sql.Identifier(own[0]),
                others=sql.SQL(", ").join(
                    sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(OTHER)) for name in own
                ),
            ),
            (*place, *place, room),
        ).rowcount
        if moved:
            logger.warning(
                "metric %s, window %s: %d groups beyond the limit of %d went to (other)",
                *(self._shape.metric.name, place[0].isoformat(), moved, self._shape.metric.limit),
            )
