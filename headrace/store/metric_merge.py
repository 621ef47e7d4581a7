"""Merging a batch's panes into a metric's table, and moving its rows through their states."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from psycopg import sql

from headrace.errors import LeakError
from headrace.measures import Measure
from headrace.store.connection import Connection
from headrace.store.metric_tables import key_columns, table_name
from headrace.store.times import EPOCH, to_time
from headrace.views.packed import merge_packed
from headrace.views.panes import OTHER, Panes
from headrace.views.resolve import Part, ResolvedMetric, packed_columns
from headrace.windows import MICROSECOND

logger = logging.getLogger(__name__)

ALL = "(all)"
NULL = "\\N"
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
# How many texts a measure has in a pane's values; a top has rows of its own.
TEXTS = {"mean": 2, "variance": 3, "stddev": 3, "first": 2, "last": 2, "top": 0}
Key = tuple[Any, ...]


class MetricStore:
    """The table of one metric, inside the transaction of a batch."""

    def __init__(self, app: str, resolved: ResolvedMetric) -> None:
        self.app, self.resolved, self.metric = app, resolved, resolved.metric
        self._table = table_name(app, self.metric)
        self._keys = key_columns(self.metric)
        self._places = _places(resolved)
        self._panes = sql.Identifier("pg_temp", f"panes_{self.metric.name}")
        self._spread = sql.Identifier("pg_temp", f"spread_{self.metric.name}")

    def merge(self, connection: Connection, panes: Panes, watermark: int | None) -> None:
        """`watermark` is that before the batch: what it made final never changes."""
        if not panes.rows:
            return
        self._refuse_final(panes, watermark)
        self._load(connection, panes)
        self._guard(connection)
        self._upsert(connection)
        for name, measure in self.resolved.packed.items():
            self._merge_packed(connection, name, measure, panes)
        self._write_late(connection, panes)

    def advance(self, connection: Connection, watermark: int | None) -> None:
        """Rows that the watermark has passed become preliminary, then final."""
        if watermark is None:
            return
        at = EPOCH + watermark * MICROSECOND
        for state, after, where in (
            ("final", self.metric.final_after, "state <> 'final'"),
            ("preliminary", self.metric.preliminary_after, "state = 'open'"),
        ):
            self._publish(
                connection,
                sql.SQL(
                    "UPDATE {} SET state = {}, revision = greatest(revision, 1), watermark = %s,"
                    " updated_at = now() WHERE {} AND window_end <= %s RETURNING *"
                ).format(self._table, sql.Literal(state), sql.SQL(where)),
                (at, at - after),
            )
        connection.execute(
            sql.SQL("DELETE FROM {} WHERE state = 'final' AND window_end < %s").format(self._table),
            (at - self.metric.retain,),
        )

    def forget_old(self, connection: Connection) -> None:
        """What is kept beside the table lasts as long as its rows."""
        for table in ("late_events", "revisions"):
            connection.execute(
                sql.SQL("DELETE FROM {} WHERE app = %s AND metric = %s AND window_end < ({})").format(
                    sql.Identifier("headrace", table),
                    sql.SQL("SELECT min(window_end) FROM {}").format(self._table),
                ),
                (self.app, self.metric.name),
            )

    def _refuse_final(self, panes: Panes, watermark: int | None) -> None:
        window = self.metric.window
        for pane, missed, *_ in panes.rows:
            end = pane + window.hop_us * (missed + 1)
            if missed < window.panes and watermark is not None and end + self.metric.final_us <= watermark:
                raise LeakError(
                    f"metric {self.metric.name}: an event would change a final window",
                    hint="the batch is not recorded; this is a defect, please report it",
                )

    def _load(self, connection: Connection, panes: Panes) -> None:
        """The panes spread over their windows, in tables that are emptied with every transaction."""
        metric, parts = self.metric, self.resolved.parts
        groups = [("grouping", "text"), *[(name, "text") for name in metric.dimensions]]
        sums = [(part.column, part.type) for part in parts]
        windows = [("window_start", "timestamptz"), ("window_end", "timestamptz")]
        counts = [("events", "bigint"), ("late_events", "bigint")]
        _scratch(
            connection, self._panes, [("pane", "timestamptz"), ("missed", "int"), *groups, counts[0], *sums]
        )
        _scratch(connection, self._spread, [*windows, *groups, *counts, *sums])
        with (
            connection.cursor() as cursor,
            cursor.copy(sql.SQL("COPY {} FROM STDIN").format(self._panes)) as copy,
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
                spread=self._spread,
                panes=self._panes,
                hop=sql.Literal(metric.window.hop),
                size=sql.Literal(metric.window.size),
                last=sql.Literal(metric.window.panes - 1),
                groups=_names([name for name, _ in groups]),
                sums=sql.SQL("").join(sql.SQL(", ") + _within_batch(part, in_time) for part in parts),
            )
        )
        # Postgres knows nothing about a new temporary table, and would join it row by row.
        connection.execute(sql.SQL("ANALYZE {}").format(self._spread))

    def _pane_lines(self, panes: Panes) -> str:
        """The rows in the text format of COPY; a row is as cheap as joining its texts."""
        at = [self._places[part.column] for part in self.resolved.parts]
        times = {pane: str(to_time(pane)) for pane in {row[0] for row in panes.rows}}
        names = [self._grouping(n) for n, _ in enumerate(self.metric.groupings)]
        lines = []
        for pane, missed, grouping, labels, items in panes.rows:
            own = self._labels(grouping, labels)
            texts = (NULL if items[n] is None else items[n].translate(ESCAPES) for n in at)  # type: ignore[union-attr]
            groups = (label.translate(ESCAPES) for label in own)
            lines.append(
                "\t".join((times[pane], str(missed), names[grouping], *groups, str(items[0]), *texts))
            )
        return "\n".join(lines) + "\n"

    def _guard(self, connection: Connection) -> None:
        """Groups beyond the limit of a window are merged into one, `(other)`; who is in stays in."""
        if not self.metric.dimensions:
            return
        crowded = connection.execute(
            sql.SQL(
                'SELECT window_start, window_end, "grouping" FROM (SELECT window_start, window_end,'
                ' "grouping", count(*) + (SELECT count(*) FROM {} t WHERE t.window_start = s.window_start'
                " AND t.window_end = s.window_end AND t.grouping = s.grouping) AS n FROM {} s"
                " GROUP BY 1, 2, 3) g WHERE n > %s"
            ).format(self._table, self._spread),
            (self.metric.limit,),
        ).fetchall()
        for start, end, grouping in crowded:
            self._merge_others(connection, (start, end, grouping))

    def _merge_others(self, connection: Connection, place: tuple[Any, ...]) -> None:
        """New groups that find no room, the smallest first, lose their names."""
        names = [self._grouping(n) for n, _ in enumerate(self.metric.groupings)]
        own = self.metric.groupings[names.index(place[2])]
        if not own:
            return
        here = sql.SQL('window_start = %s AND window_end = %s AND "grouping" = %s')
        found = connection.execute(
            sql.SQL("SELECT count(*) FROM {} WHERE {} AND {} <> %s").format(
                self._table, here, sql.Identifier(own[0])
            ),
            (*place, OTHER),
        ).fetchone()
        room = max(0, self.metric.limit - (found[0] if found else 0))
        moved = connection.execute(
            sql.SQL(
                "WITH known AS (SELECT {dims} FROM {table} WHERE {here}), new AS (SELECT s.ctid AS place,"
                " row_number() OVER (ORDER BY events DESC, {dims}) AS n"
                " FROM {spread} s LEFT JOIN known USING ({dims}) WHERE {here} AND known.{first} IS NULL)"
                " UPDATE {spread} u SET {others} FROM new WHERE u.ctid = new.place AND new.n > %s"
            ).format(
                dims=_names(own),
                table=self._table,
                here=here,
                spread=self._spread,
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
                *(self.metric.name, place[0].isoformat(), moved, self.metric.limit),
            )

    def _upsert(self, connection: Connection) -> None:
        parts = self.resolved.parts
        names = [*self._keys, "events", "late_events", *[part.column for part in parts]]
        columns = sql.SQL(", ").join(map(sql.Identifier, names))
        keys = sql.SQL(", ").join(map(sql.Identifier, self._keys))
        sums = sql.SQL("").join(
            sql.SQL(", {} AS {}").format(_within_batch(part, sql.SQL("")), sql.Identifier(part.column))
            for part in parts
        )
        changes = sql.SQL("excluded.events > 0 AND t.state IN ('preliminary', 'corrected')")
        self._publish(
            connection,
            sql.SQL(
                "INSERT INTO {table} AS t ({columns}, state, revision, updated_at)"
                " SELECT {columns}, 'open', 0, now() FROM (SELECT {keys}, sum(events)::bigint AS events,"
                " sum(late_events)::bigint AS late_events{sums} FROM {spread} GROUP BY {keys}) s"
                " ON CONFLICT ({keys}) DO UPDATE SET events = t.events + excluded.events,"
                " late_events = t.late_events + excluded.late_events, updated_at = now(),"
                " state = CASE WHEN {changes} THEN 'corrected' ELSE t.state END,"
                " revision = t.revision + ({changes})::int{merged} RETURNING *"
            ).format(
                table=self._table,
                spread=self._spread,
                columns=columns,
                keys=keys,
                sums=sums,
                changes=changes,
                merged=sql.SQL("").join(_merged(part) for part in parts),
            ),
            (),
            only=sql.SQL("state = 'corrected' AND events > 0"),
        )

    def _publish(
        self,
        connection: Connection,
        change: sql.Composed,
        values: tuple[Any, ...],
        only: sql.SQL | None = None,
    ) -> None:
        """Make a change and remember the revisions that came of it."""
        dims = [part for name in self.metric.dimensions for part in (sql.Literal(name), sql.Identifier(name))]
        shown = [part for name in self.metric.visible for part in (sql.Literal(name), sql.Identifier(name))]
        connection.execute(
            sql.SQL(
                "WITH changed AS ({}) INSERT INTO headrace.revisions (app, metric, window_start, window_end,"
                ' "grouping", dimensions, revision, state, "values", watermark)'
                ' SELECT {}, {}, window_start, window_end, "grouping", jsonb_build_object({}), revision,'
                " state, jsonb_build_object('events', events, 'late_events', late_events, {}), watermark"
                " FROM changed WHERE {} ON CONFLICT DO NOTHING"
            ).format(
                change,
                sql.Literal(self.app),
                sql.Literal(self.metric.name),
                sql.SQL(", ").join(dims),
                sql.SQL(", ").join(shown),
                only or sql.SQL("true"),
            ),
            values,
        )

    def _merge_packed(self, connection: Connection, name: str, measure: Measure, panes: Panes) -> None:
        added: dict[Key, list[Any]] = {}
        for key, value in self._packed_values(name, measure, panes):
            added.setdefault(key, []).append(value)
        if not added:
            return
        columns = packed_columns(name, measure)
        state = next(iter(columns))
        keys = _names(self._keys)
        found: dict[Key, Any] = {
            tuple(key): before
            for *key, before in connection.execute(
                sql.SQL("SELECT {}, t.{} FROM {} t JOIN (SELECT DISTINCT {} FROM {}) s USING ({})").format(
                    keys, sql.Identifier(state), self._table, keys, self._spread, keys
                )
            )
        }
        merged: dict[Key, list[Any]] = {}
        for key, new in added.items():
            # The guard may have taken the row's name: what it holds belongs to the others.
            merged.setdefault(key if key in found else self._other_key(key), []).extend(new)
        scratch = sql.Identifier("pg_temp", f"packed_{self.metric.name}_{name}")
        types = [(k, "timestamptz" if n < 2 else "text") for n, k in enumerate(self._keys)]
        _scratch(connection, scratch, [*types, *columns.items()])
        with (
            connection.cursor() as cursor,
            cursor.copy(sql.SQL("COPY {} FROM STDIN").format(scratch)) as copy,
        ):
            for key, new in merged.items():
                values = merge_packed(name, measure, found[key], new)
                copy.write_row((*key, *[values[column] for column in columns]))
        connection.execute(sql.SQL("ANALYZE {}").format(scratch))
        connection.execute(
            sql.SQL("UPDATE {} t SET {} FROM {} p WHERE {}").format(
                self._table,
                sql.SQL(", ").join(sql.SQL("{0} = p.{0}").format(sql.Identifier(c)) for c in columns),
                scratch,
                sql.SQL(" AND ").join(sql.SQL("t.{0} = p.{0}").format(sql.Identifier(k)) for k in self._keys),
            )
        )

    def _other_key(self, key: Key) -> Key:
        start, end, grouping, *labels = key
        return (start, end, grouping, *[label if label == ALL else OTHER for label in labels])

    def _packed_values(self, name: str, measure: Measure, panes: Panes) -> Iterator[tuple[Key, Any]]:
        if measure.kind == "top":
            for pane, missed, grouping, labels, item, count in panes.counts.get(name, ()):
                for key in self._windows(pane, missed, grouping, labels):
                    yield key, (item, count)
            return
        for pane, missed, grouping, labels, items in panes.rows:
            sketch = items[self._places[f"{name}__sketch"]]
            for key in self._windows(pane, missed, grouping, labels):
                yield key, bytes.fromhex(sketch) if sketch else None

    def _windows(self, pane: int, missed: int, grouping: int, labels: list[str]) -> Iterator[Key]:
        window = self.metric.window
        for k in range(missed, window.panes):
            end = to_time(pane + window.hop_us * (k + 1))
            assert end is not None
            yield (end - window.size, end, self._grouping(grouping), *self._labels(grouping, labels))

    def _write_late(self, connection: Connection, panes: Panes) -> None:
        window = self.metric.window
        with (
            connection.cursor() as cursor,
            cursor.copy(
                'COPY headrace.late_events (app, metric, event_id, partition, "offset", event_time,'
                " window_start, window_end, clock, late_by, reason) FROM STDIN"
            ) as copy,
        ):
            for row in panes.late:
                clock = to_time(row["clock"])
                for k in range(row["missed"]):
                    end = to_time(row["pane"] + window.hop_us * (k + 1))
                    assert end is not None and clock is not None
                    reason = "late" if k < row["missed_by_clock"] else "idle_wake"
                    copy.write_row(
                        (
                            *(self.app, self.metric.name, row["event_id"], row["partition"], row["offset"]),
                            *(to_time(row["event_time"]), end - window.size, end, clock),
                            *(clock - end - self.metric.final_after, reason),
                        )
                    )

    def _grouping(self, number: int) -> str:
        return ",".join(self.metric.groupings[number]) or "all"

    def _labels(self, number: int, labels: list[str]) -> list[str]:
        given = dict(zip(self.metric.groupings[number], labels, strict=True))
        return [given.get(name, ALL) for name in self.metric.dimensions]


def _scratch(connection: Connection, name: sql.Identifier, columns: list[tuple[str, str]]) -> None:
    fields = [sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(type_)) for column, type_ in columns]
    connection.execute(
        sql.SQL("CREATE TEMP TABLE IF NOT EXISTS {} ({}) ON COMMIT DELETE ROWS").format(
            name, sql.SQL(", ").join(fields)
        )
    )


def _names(columns: Sequence[str]) -> sql.Composed:
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


def _within_batch(part: Part, only: sql.SQL) -> sql.Composed:
    """The value of a column over several panes, or several groups."""
    column = sql.Identifier(part.column)
    match part.how:
        case "add":
            zero = sql.SQL("coalesce({}, 0)::bigint") if part.type == "bigint" else sql.SQL("{}")
            return zero.format(sql.SQL("sum({}) {}").format(column, only))
        case "least":
            return sql.SQL("min({}) {}").format(column, only)
        case "greatest":
            return sql.SQL("max({}) {}").format(column, only)
        case _:
            place = sql.Identifier(f"{part.measure}__at")
            order = sql.SQL("ASC NULLS LAST" if part.how == "first" else "DESC NULLS LAST")
            return sql.SQL("(array_agg({} ORDER BY {} {}) {})[1]").format(column, place, order, only)


def _merged(part: Part) -> sql.Composed:
    """How a column of the row that is there becomes one with the new row's."""
    column = sql.Identifier(part.column)
    match part.how:
        case "add":
            text = "{0} = coalesce(t.{0} + excluded.{0}, t.{0}, excluded.{0})"
        case "least" | "greatest":
            text = "{0} = " + part.how + "(t.{0}, excluded.{0})"
        case _:
            sign = "<" if part.how == "first" else ">"
            text = (
                "{0} = CASE WHEN t.{1} IS NULL OR excluded.{1} "
                + sign
                + " t.{1} THEN excluded.{0} ELSE t.{0} END"
            )
    return sql.SQL(", " + text).format(column, sql.Identifier(f"{part.measure}__at"))
