"""Merging a batch's panes into a metric's table, and moving its rows through their states."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
from psycopg import sql

from headrace.errors import LeakError
from headrace.store.connection import Connection
from headrace.store.copy_lines import NULL, copy_rows
from headrace.store.metric_packed import Packed
from headrace.store.metric_parts import with_row, within_batch
from headrace.store.metric_shape import MetricShape, column_list
from headrace.store.metric_spread import Spread
from headrace.store.times import to_end, to_time
from headrace.views.pane_rows import Panes
from headrace.views.resolve import ResolvedMetric
from headrace.views.window_rows import Int64s
from headrace.windows import MICROSECOND

MANY = 5_000  # rows of a batch from which on it pays to ask which windows have none yet
LIFE = ("state", "revision", "watermark", "published_at", "updated_at")


class MetricStore:
    """The table of one metric, inside the transaction of a batch."""

    def __init__(self, app: str, resolved: ResolvedMetric, table: sql.Identifier | None = None) -> None:
        self._shape = MetricShape(app, resolved, table)
        self._is_shown = table is None  # otherwise its rows are copied to the table that readers see
        # A row that was published while its window was open has been something else before, always.
        self._has_versions = sql.SQL("true" if resolved.metric.window.trigger else "revision > 1")
        self._spread, self._packed = Spread(self._shape), Packed(self._shape)

    def merge(self, connection: Connection, panes: Panes, before: int | None, after: int | None) -> None:
        """What was final before the batch never changes; a new row begins in the state it has after it."""
        if not panes.rows:
            return
        self._refuse_final(panes, before)
        starts = self._shape.window_starts(panes)
        new = self._without_rows(connection, panes, starts)
        crowded = self._spread.perhaps_crowded(panes, frozenset(new.tolist()))
        ends = np.array([end for end, _ in crowded], np.int64)
        new = np.setdiff1d(new, ends - self._shape.size_us)
        self._write_new(connection, panes, new, after)
        rest = np.setdiff1d(starts, new)
        if len(rest):
            self._merge_rest(connection, panes, rest, crowded, before, after)
        if panes.late:
            self._write_late(connection, panes)

    def _merge_rest(
        self,
        connection: Connection,
        panes: Panes,
        starts: Int64s,
        crowded: list[tuple[int, int]],
        before: int | None,
        after: int | None,
    ) -> None:
        """Windows that may have rows, or more groups than allowed."""
        windows = [to_time(start) for start in starts.tolist()]
        self._spread.load(connection, panes, starts)
        self._spread.guard(connection, crowded)
        corrects = self._is_shown and self._reaches_back(panes, before)
        if corrects:
            self._remember_touched(connection, windows, "preliminary", sql.SQL("published_at"))
        self._upsert(connection, after)
        for name, measure in self._shape.resolved.packed.items():
            self._packed.merge(connection, name, measure, panes, windows)
        if corrects:
            self._remember_touched(connection, windows, "corrected", sql.SQL("now()"))

    def advance(
        self, connection: Connection, before: int | None, after: int | None, panes: Panes | None = None
    ) -> bool:
        """Rows that the watermark has passed become preliminary, then final; False if nothing can have moved.

        Windows end at multiples of the hop: until the watermark has passed another one, only a row that the
        batch itself may have added behind it has anywhere to go.
        """
        if after is None:
            return False
        if self._cuts(before) == self._cuts(after) and not (panes and self._reaches_back(panes, after)):
            return False
        self.settle(connection, None if before is None else before - self._shape.metric.final_us, after)
        return True

    def settle(self, connection: Connection, since: int | None, watermark: int) -> None:
        """Give rows of windows that end after `since` the state that the watermark says."""
        metric = self._shape.metric
        at, size = to_time(watermark), metric.window.size // MICROSECOND
        first = "-infinity" if since is None else to_time(since - size)
        for state, wait, where in (
            ("final", metric.final_after, "state <> 'final'"),
            ("preliminary", metric.preliminary_after, "state = 'open'"),
        ):
            until = watermark - wait // MICROSECOND
            self.remember(
                connection,
                sql.SQL(
                    "UPDATE {} SET state = {}, revision = greatest(revision, 1), watermark = %s,"
                    " published_at = coalesce(published_at, now()), updated_at = now()"
                    " WHERE {} AND window_start >= %s::timestamptz AND window_start <= %s"
                    " AND window_end <= %s RETURNING *"
                ).format(self._shape.table, sql.Literal(state), sql.SQL(where)),
                (at, first, to_time(until - size), to_end(until)),
                only=self._has_versions,
            )

    def retire(self, connection: Connection, watermark: int | None) -> None:
        """Final rows go when their time is over: by the start, which the primary key begins with."""
        if watermark is None:
            return
        kept = self._shape.metric.retain + self._shape.metric.window.size
        connection.execute(
            sql.SQL("DELETE FROM {} WHERE window_start < %s AND state = 'final'").format(self._shape.table),
            (to_time(watermark - kept // MICROSECOND),),
        )

    def _cuts(self, watermark: int | None) -> tuple[int, int] | None:
        """Up to where rows are final, and up to where they are preliminary, counted in hops."""
        if watermark is None:
            return None
        metric, hop = self._shape.metric, self._shape.metric.window.hop_us
        preliminary = metric.preliminary_after // MICROSECOND
        return (watermark - metric.final_us) // hop, (watermark - preliminary) // hop

    def _reaches_back(self, panes: Panes, watermark: int | None) -> bool:
        """Whether the batch touches a window that the watermark has published."""
        if watermark is None:
            return False
        published = watermark - self._shape.metric.preliminary_after // MICROSECOND
        return bool((panes.starts + self._shape.metric.window.hop_us <= published).any())

    def forget_old(self, connection: Connection) -> None:
        """What is kept beside the table lasts as long as its rows."""
        oldest = sql.SQL(
            "SELECT min(window_end) FROM {0} WHERE window_start = (SELECT min(window_start) FROM {0})"
        ).format(self._shape.table)
        for table in ("late_events", "revisions"):
            connection.execute(
                sql.SQL("DELETE FROM {} WHERE app = %s AND metric = %s AND window_end < ({})").format(
                    sql.Identifier("headrace", table), oldest
                ),
                (self._shape.app, self._shape.metric.name),
            )

    def _refuse_final(self, panes: Panes, watermark: int | None) -> None:
        window = self._shape.metric.window
        if watermark is None:
            return
        for rows in panes.rows:
            ends = rows.panes + window.hop_us * (rows.missed + 1)
            final = ends + self._shape.metric.final_us <= watermark
            if (final & (rows.missed < window.panes)).any():
                raise LeakError(
                    f"metric {self._shape.metric.name}: an event would change a final window",
                    hint="the batch is not recorded; this is a defect, please report it",
                )

    def _without_rows(self, connection: Connection, panes: Panes, starts: Int64s) -> Int64s:
        """Windows that have no row yet, if the batch is so large that it pays to ask.

        What only Python can merge looks for its rows in the scratch table.
        """
        added = sum(len(rows) for rows in panes.rows) * self._shape.metric.window.panes
        if self._shape.resolved.packed or added <= MANY:
            return starts[:0]
        times = [to_time(start) for start in starts.tolist()]
        found = connection.execute(
            sql.SQL(
                "SELECT w FROM unnest(%s::timestamptz[]) w"
                " WHERE NOT EXISTS (SELECT FROM {} t WHERE t.window_start = w)"
            ).format(self._shape.table),
            (times,),
        )
        new = {start for (start,) in found}
        return starts[[time in new for time in times]]

    def _write_new(self, connection: Connection, panes: Panes, starts: Int64s, watermark: int | None) -> None:
        """Where a window has no row, the rows of the batch are its rows: they go straight into the table,
        in the state that they have after the batch."""
        if not len(starts):
            return
        metric, size = self._shape.metric, self._shape.size_us
        at = NULL if watermark is None else str(to_time(watermark))

        def is_over(start: int, wait: timedelta) -> bool:
            return watermark is not None and start + size + wait // MICROSECOND <= watermark

        def life(start: int) -> str:
            if not is_over(start, metric.preliminary_after):
                return "\t".join(("open", "0", NULL, NULL, "now"))
            state = "final" if is_over(start, metric.final_after) else "preliminary"
            return "\t".join((state, "1", at, "now", "now"))

        rows = self._shape.rows(panes, starts, life)
        copy_rows(connection, self._shape.table, [*self._shape.added, *LIFE], rows)

    def _upsert(self, connection: Connection, watermark: int | None) -> None:
        """A row that is new and already behind the watermark need not be touched again to be published."""
        metric = self._shape.metric
        final, published = (
            None if watermark is None else to_end(watermark - wait // MICROSECOND)
            for wait in (metric.final_after, metric.preliminary_after)
        )
        changes = sql.SQL("excluded.events > 0 AND t.state IN ('preliminary', 'corrected')")
        connection.execute(
            sql.SQL(
                "INSERT INTO {table} AS t ({columns}, {life})"
                " SELECT {columns}, CASE WHEN window_end <= %(final)s THEN 'final'"
                " WHEN window_end <= %(published)s THEN 'preliminary' ELSE 'open' END,"
                " coalesce(window_end <= %(published)s, false)::int,"
                " CASE WHEN window_end <= %(published)s THEN %(at)s::timestamptz END,"
                " CASE WHEN window_end <= %(published)s THEN now() END, now() FROM {added} s"
                " ON CONFLICT ({keys}) DO UPDATE SET events = t.events + excluded.events,"
                " late_events = t.late_events + excluded.late_events, updated_at = now(),"
                " state = CASE WHEN {changes} THEN 'corrected' ELSE t.state END,"
                " revision = t.revision + ({changes})::int{merged}"
            ).format(
                table=self._shape.table,
                columns=column_list(self._shape.added),
                life=column_list(LIFE),
                added=self._spread_rows(),
                keys=column_list(self._shape.keys),
                changes=changes,
                merged=sql.SQL("").join(with_row(part) for part in self._shape.resolved.parts),
            ),
            {"at": to_time(watermark), "final": final, "published": published},
        )

    def _spread_rows(self) -> sql.Composable:
        """What the batch adds, one row for each key."""
        if not self._spread.has_twins:
            return self._shape.spread
        sums = [
            sql.SQL("{} AS {}").format(within_batch(part), sql.Identifier(part.column))
            for part in self._shape.resolved.parts
        ]
        counts = [sql.SQL("sum({0})::bigint AS {0}").format(sql.SQL(c)) for c in ("events", "late_events")]
        return sql.SQL("(SELECT {keys}, {sums} FROM {spread} GROUP BY {keys})").format(
            keys=column_list(self._shape.keys),
            sums=sql.SQL(", ").join([*counts, *sums]),
            spread=self._shape.spread,
        )

    def _remember_touched(
        self, connection: Connection, windows: list[datetime], state: str, made_at: sql.SQL
    ) -> None:
        """Keep the versions of the rows in a state that this batch adds events to."""
        touched = sql.SQL(
            "SELECT t.* FROM {} t JOIN (SELECT {keys} FROM {} GROUP BY {keys} HAVING sum(events) > 0) s"
            " USING ({keys}) WHERE t.window_start = ANY(%s) AND t.state = {state}"
        ).format(
            self._shape.table,
            self._shape.spread,
            keys=column_list(self._shape.keys),
            state=sql.Literal(state),
        )
        self.remember(connection, touched, (windows,), made_at=made_at)

    def remember(
        self,
        connection: Connection,
        change: sql.Composed,
        values: tuple[Any, ...],
        only: sql.Composable = sql.SQL("true"),
        made_at: sql.SQL = sql.SQL("now()"),
    ) -> None:
        """Make a change and keep the versions that came of it.

        Only rows that were corrected have several versions: of all others the row itself tells the story.
        """
        metric = self._shape.metric
        names = (metric.dimensions, metric.visible)
        dims, shown = (
            [part for name in group for part in (sql.Literal(name), sql.Identifier(name))] for group in names
        )
        connection.execute(
            sql.SQL(
                "WITH changed AS ({}) INSERT INTO headrace.revisions (app, metric, window_start, window_end,"
                ' "grouping", dimensions, revision, state, "values", watermark, at)'
                ' SELECT {}, {}, window_start, window_end, "grouping", jsonb_build_object({}), revision,'
                " state, jsonb_build_object('events', events, 'late_events', late_events, {}), watermark, {}"
                " FROM changed WHERE {} ON CONFLICT DO NOTHING"
            ).format(
                change,
                sql.Literal(self._shape.app),
                sql.Literal(metric.name),
                sql.SQL(", ").join(dims),
                sql.SQL(", ").join(shown),
                made_at,
                only,
            ),
            values,
        )

    def _write_late(self, connection: Connection, panes: Panes) -> None:
        window, final = self._shape.metric.window, self._shape.metric.final_us
        size = window.size // MICROSECOND
        with (
            connection.cursor() as cursor,
            cursor.copy(
                'COPY headrace.late_events (app, metric, event_id, partition, "offset", event_time,'
                " window_start, window_end, clock, late_by, reason) FROM STDIN"
            ) as copy,
        ):
            for row in panes.late:
                for k in range(row["missed"]):
                    end = row["pane"] + window.hop_us * (k + 1)
                    reason = "late" if k < row["missed_by_clock"] else "idle_wake"
                    copy.write_row(
                        (
                            *(
                                self._shape.app,
                                self._shape.metric.name,
                                row["event_id"],
                                row["partition"],
                                row["offset"],
                            ),
                            *map(to_time, (row["event_time"], end - size, end, row["clock"])),
                            *((row["clock"] - end - final) * MICROSECOND, reason),
                        )
                    )
