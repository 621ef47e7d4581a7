"""What the store knows about one row of a metric: its values, its revisions, who missed it, its batches."""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from headrace.contracts.durations import format_duration
from headrace.errors import DataError
from headrace.log.scan import Range
from headrace.metrics import Metric
from headrace.ops.explanation import Missed, Revision, shown_time
from headrace.store.connection import Connection, Store
from headrace.store.metric_export import shown_columns
from headrace.store.metric_shape import ALL
from headrace.store.metric_tables import table_name
from headrace.store.metric_trigger import BATCH
from headrace.store.times import moved
from headrace.views.pane_rows import OTHER

# An event is at most as new as the clock after its batch. Once a batch has moved the clock beyond the end and
# final_after, whatever comes in later batches has missed the window.
_REACH = """
    SELECT partition, min(first_offset) FILTER (WHERE clock >= %(start)s),
           coalesce(min(end_offset) FILTER (WHERE clock >= %(closed)s), max(end_offset))
    FROM headrace.ledger WHERE query = %(query)s GROUP BY partition
"""
_BATCHES = """
    SELECT l.partition, l.first_offset, l.end_offset, l.batch_id
    FROM headrace.ledger l
    JOIN unnest(%(partitions)s::int[], %(starts)s::bigint[], %(ends)s::bigint[])
        AS r (partition, first_offset, end_offset)
        ON l.partition = r.partition AND l.end_offset > r.first_offset AND l.first_offset < r.end_offset
    JOIN headrace.metric_ledger m
        ON m.query = l.query AND m.batch_id = l.batch_id AND m.metric = %(metric)s
    WHERE l.query = %(query)s AND l.batch_id <= %(last)s AND l.accepted > 0
    ORDER BY l.partition, l.first_offset
"""
_LATE = """
    SELECT event_id, partition, "offset", event_time, reason, late_by, clock FROM headrace.late_events
    WHERE app = %s AND metric = %s AND window_end = %s AND seen_at <= %s::timestamptz
    ORDER BY seen_at, partition, "offset"
"""
_REVISIONS = """
    SELECT revision, state, at, watermark, "values" FROM headrace.revisions
    WHERE app = %s AND metric = %s AND window_end = %s AND "grouping" = %s AND dimensions = %s
    ORDER BY at, revision, array_position(ARRAY['open', 'preliminary', 'corrected', 'final'], state)
"""
_NEAR = 3
_LABELS = 10


@dataclass(frozen=True)
class StoredRow:
    values: dict[str, Any]
    late: tuple[Missed, ...]  # of the whole window, whatever their groups
    revisions: tuple[Revision, ...]
    last_batch: int
    own_rows: frozenset[tuple[str, ...]]  # the groups that are not in the row `(other)`, if this is it


@dataclass(frozen=True)
class Spans:
    """The raw offsets of some batches, and when these were published; None means: since ever."""

    ranges: dict[int, list[Range]]
    since: datetime | None
    until: datetime | None

    def covers(self, partition: int, offset: int) -> bool:
        mine = self.ranges.get(partition, [])
        place = bisect_right(mine, offset, key=lambda span: span[0])
        return place > 0 and offset < mine[place - 1][1]


class RowReader:
    def __init__(self, store: Store, app: str, query: str, metric: Metric) -> None:
        self._store, self._app, self._query, self._metric = store, app, query, metric
        self._table = table_name(app, metric)

    def read(self, start: datetime, by: Mapping[str, str]) -> StoredRow:
        """One consistent look; `by` has the labels in the order of the grouping.

        Raises DataError where there is no such row, and names those near it.
        """
        grouping = ",".join(by) or "all"
        labels = {name: by.get(name, ALL) for name in self._metric.dimensions}

        def look(connection: Connection) -> StoredRow:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            values = self._row(connection, start, grouping, labels)
            if values is None:
                raise self._no_row(connection, start, grouping, by)
            place = (self._app, self._metric.name, moved(start, self._metric.window.size))
            # With a trigger, what came after the row was last shown is not in it.
            until = values["updated_at"] if self._metric.window.trigger else "infinity"
            counted = values.pop(BATCH, None)
            late = [
                Missed(event_id, partition, offset, time, None, reason, late_by, clock)
                for event_id, partition, offset, time, reason, late_by, clock in connection.execute(
                    _LATE, (*place, until)
                )
            ]
            revisions = connection.execute(_REVISIONS, (*place, grouping, Jsonb(labels)))
            last = connection.execute(
                "SELECT coalesce(%s, max(batch_id), -1) FROM headrace.batches WHERE query = %s",
                (counted, self._query),
            ).fetchone()
            is_rest = bool(by) and set(by.values()) == {OTHER}
            others = self._groups(connection, start, grouping, by) if is_rest else []
            return StoredRow(
                values,
                tuple(late),
                tuple(
                    Revision(revision, state, at, watermark, {n: was[n] for n in values if n in was})
                    for revision, state, at, watermark, was in revisions
                )
                or _only_version(values, self._metric.visible),
                last[0] if last else -1,
                frozenset(others),
            )

        try:
            return self._store.transact(look)
        except psycopg.errors.UndefinedTable:
            raise DataError(
                f"metric '{self._metric.name}' has no table yet", hint="the engine makes it: headrace run"
            ) from None

    def reach(self, start: datetime, end: datetime) -> dict[int, Range]:
        """The raw offsets between which every event lies that a window of event time has counted."""

        def look(connection: Connection) -> dict[int, Range]:
            closed = moved(end, self._metric.final_after)
            rows = connection.execute(_REACH, {"start": start, "closed": closed, "query": self._query})
            return {p: (low, high) for p, low, high in rows if low is not None and low < high}

        return self._store.transact(look)

    def spans(self, reach: Mapping[int, Range], last_batch: int) -> Spans:
        """The batches of this metric that touch the reach, none of them after the last one."""

        def look(connection: Connection) -> Spans:
            rows = connection.execute(
                _BATCHES,
                {
                    "query": self._query,
                    "metric": self._metric.name,
                    "last": last_batch,
                    "partitions": list(reach),
                    "starts": [first for first, _ in reach.values()],
                    "ends": [end for _, end in reach.values()],
                },
            ).fetchall()
            batches = [row[3] for row in rows]
            since, until = self._published(connection, min(batches, default=0), max(batches, default=0))
            return Spans(_joined((p, first, end) for p, first, end, _ in rows), since, until)

        return self._store.transact(look)

    def _published(
        self, connection: Connection, first: int, last: int
    ) -> tuple[datetime | None, datetime | None]:
        """A batch publishes after the one before it was recorded, and before it is recorded itself."""
        found = connection.execute(
            "SELECT (SELECT finished_at FROM headrace.batches WHERE query = %(query)s"
            " AND batch_id < %(first)s ORDER BY batch_id DESC LIMIT 1),"
            " (SELECT finished_at FROM headrace.batches WHERE query = %(query)s AND batch_id = %(last)s)",
            {"query": self._query, "first": first, "last": last},
        ).fetchone()
        return (found[0], found[1]) if found else (None, None)

    def _row(
        self, connection: Connection, start: datetime, grouping: str, labels: Mapping[str, str]
    ) -> dict[str, Any] | None:
        names = (*shown_columns(self._metric), "watermark", "published_at", "updated_at")
        if self._metric.window.trigger:
            names = (*names, BATCH)
        same = sql.SQL("").join(sql.SQL(" AND {} = %s").format(sql.Identifier(name)) for name in labels)
        found = connection.execute(
            sql.SQL('SELECT {} FROM {} WHERE window_start = %s AND "grouping" = %s{}').format(
                sql.SQL(", ").join(map(sql.Identifier, names)), self._table, same
            ),
            (start, grouping, *labels.values()),
        ).fetchone()
        return None if found is None else dict(zip(names, found, strict=True))

    def _groups(
        self, connection: Connection, start: datetime, grouping: str, by: Mapping[str, str]
    ) -> list[tuple[str, ...]]:
        """The labels of a window, the largest groups first."""
        rows = connection.execute(
            sql.SQL(
                'SELECT {} FROM {} WHERE window_start = %s AND "grouping" = %s ORDER BY events DESC, 1'
            ).format(sql.SQL(", ").join(map(sql.Identifier, by)), self._table),
            (start, grouping),
        )
        return [tuple(row) for row in rows if set(row) != {OTHER}]

    def _no_row(
        self, connection: Connection, start: datetime, grouping: str, by: Mapping[str, str]
    ) -> DataError:
        metric = self._metric
        groups = self._groups(connection, start, grouping, by) if by else []
        if groups:
            known = {", ".join(group): _words(dict(zip(by, group, strict=True))) for group in groups}
            near = difflib.get_close_matches(", ".join(by.values()), known, 1)
            some = "; ".join(list(known.values())[:_LABELS]) + ("; …" if len(known) > _LABELS else "")
            return DataError(
                f"metric '{metric.name}' has no row for {_words(by)} in the window of {shown_time(start)}",
                hint=f"did you mean {known[near[0]]}?" if near else f"there are: {some}",
            )
        windows = sorted(
            time
            for sign, order in (("<", "DESC"), (">", "ASC"))
            for (time,) in connection.execute(
                sql.SQL(
                    'SELECT DISTINCT window_start FROM {} WHERE window_start {} %s AND "grouping" = %s'
                    " ORDER BY 1 {} LIMIT {}"
                ).format(self._table, sql.SQL(sign), sql.SQL(order), sql.Literal(_NEAR)),
                (start, grouping),
            )
        )
        near_by = (
            f"the nearest start at {', '.join(map(shown_time, windows))}" if windows else "it has none yet"
        )
        kept = f"{metric.window}, kept for {format_duration(metric.retain)}"
        return DataError(
            f"metric '{metric.name}' has no window that starts at {shown_time(start)}",
            hint=f"its windows are {kept}; {near_by}",
        )


def _joined(rows: Iterable[tuple[int, int, int]]) -> dict[int, list[Range]]:
    """Neighbouring ranges as one; the rows come in order."""
    found: dict[int, list[Range]] = {}
    for partition, first, end in rows:
        mine = found.setdefault(partition, [])
        if mine and mine[-1][1] == first:
            mine[-1] = (mine[-1][0], end)
        else:
            mine.append((first, end))
    return found


def _words(by: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={label}" for name, label in by.items())


def _only_version(row: Mapping[str, Any], visible: Iterable[str]) -> tuple[Revision, ...]:
    """A row that was published and never corrected has one version: itself."""
    if row["published_at"] is None:
        return ()
    values = {name: row[name] for name in ("events", "late_events", *visible)}
    return (Revision(row["revision"], row["state"], row["published_at"], row["watermark"], values),)
