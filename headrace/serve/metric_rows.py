"""Rows of a metric: a range of windows, the newest window, and rows as they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from headrace.metrics import Metric
from headrace.serve.database import Database, NotThereYet, Row
from headrace.serve.metric_tables import MetricTable, MetricTables
from headrace.serve.parameters import Page

Answer = dict[str, Any]
TRUE = sql.SQL("true")


@dataclass(frozen=True)
class Wanted:
    """Which rows; all of it has been checked against the metric."""

    start: datetime | None = None  # of windows, inclusive
    end: datetime | None = None  # of their starts, exclusive
    states: tuple[str, ...] = ()
    grouping: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def conditions(self, *, labels_in: str = "") -> tuple[list[sql.Composable], list[Any]]:
        """`labels_in` is a JSON column that holds the dimensions, where they are no columns."""
        found: list[tuple[sql.Composable, Any]] = []
        if self.start is not None:
            found.append((sql.SQL("window_start >= %s"), self.start))
        if self.end is not None:
            found.append((sql.SQL("window_start < %s"), self.end))
        if self.states:
            found.append((sql.SQL("state = ANY(%s)"), list(self.states)))
        if self.grouping is not None:
            found.append((sql.SQL('"grouping" = %s'), self.grouping))
        for name, label in self.labels.items():
            if labels_in:
                found.append((sql.SQL("{} @> %s").format(sql.Identifier(labels_in)), Jsonb({name: label})))
            else:
                found.append((sql.SQL("{} = %s").format(sql.Identifier(name)), label))
        return [condition for condition, _ in found], [value for _, value in found]


class MetricRows:
    def __init__(self, database: Database, tables: MetricTables) -> None:
        self._database, self._tables = database, tables

    async def range(self, metric: Metric, wanted: Wanted, page: Page, *, newest_first: bool) -> Answer:
        table = await self._tables.table(metric)
        conditions, values = wanted.conditions()
        keys = ("window_start", "window_end", "grouping", *metric.dimensions)
        after = page.after([datetime, datetime, str, *[str] * len(metric.dimensions)])
        if after is not None:
            conditions.append(_beyond(keys, newest_first))
            values += after
        found = await self._read(
            table,
            sql.SQL("WHERE {} ORDER BY {} LIMIT %s").format(_all(conditions), _order(keys, newest_first)),
            [*values, page.limit + 1],
        )
        found, following = page.cut(found, keys)
        return {"items": [table.shown(row) for row in found], "next": following}

    async def latest(self, metric: Metric, wanted: Wanted, page: Page, order: str) -> Answer:
        """The newest window that has such rows. A page begins at a row's number in a window that is fixed."""
        table = await self._tables.table(metric)
        conditions, values = wanted.conditions()
        place = page.after([datetime, int])
        if place is None:
            newest = await self._newest(table, conditions, values)
            place = [newest, 0]
        window, begin = place
        found: list[Row] = []
        if window is not None:
            keys = ("grouping", *metric.dimensions)
            direction = sql.SQL("DESC NULLS LAST" if order.startswith("-") else "ASC NULLS LAST")
            first = sql.Identifier(order.lstrip("-")) + sql.SQL(" ") + direction
            by = sql.SQL("{}, {}").format(first, _order(keys, False)) if order else _order(keys, False)
            found = await self._read(
                table,
                sql.SQL("WHERE {} ORDER BY {} LIMIT %s OFFSET %s").format(
                    _all([*conditions, sql.SQL("window_start = %s")]), by
                ),
                [*values, window, page.limit + 1, max(0, begin)],
            )
        following = page.next(window, begin + page.limit) if len(found) > page.limit else None
        items = [table.shown(row) for row in found[: page.limit]]
        end = items[0]["window_end"] if items else None
        return {"window_start": window, "window_end": end, "items": items, "next": following}

    async def as_of(
        self, metric: Metric, wanted: Wanted, page: Page, moment: datetime | int, *, newest_first: bool
    ) -> Answer:
        """Each row in its newest published revision up to a number, or a time."""
        table = await self._tables.table(metric)
        # The state is asked of the revision that is found, so it cannot narrow the search for it.
        conditions, values = _of_revisions(metric, replace(wanted, states=()))
        conditions.append(sql.SQL("revision <= %s" if isinstance(moment, int) else "at <= %s"))
        values.append(moment)
        after = page.after([datetime, str, dict])
        keys = ("window_end", "grouping", "dimensions")
        if after is not None:
            conditions.append(_beyond(keys, newest_first))
            values += [after[0], after[1], Jsonb(after[2])]
        newest = "revision DESC, at DESC" if isinstance(moment, int) else "at DESC, revision DESC"
        found = await self._database.rows_if_there(
            sql.SQL(
                "SELECT * FROM (SELECT DISTINCT ON ({keys}) {columns} FROM headrace.revisions"
                " WHERE app = %s AND metric = %s AND {conditions} ORDER BY {order}, {newest}) AS rows"
                " WHERE {states} ORDER BY {order} LIMIT %s"
            ).format(
                keys=sql.SQL(", ").join(map(sql.Identifier, keys)),
                columns=_REVISION_COLUMNS,
                conditions=_all(conditions),
                order=_order(keys, newest_first),
                newest=sql.SQL(newest),
                states=sql.SQL("state = ANY(%s)") if wanted.states else sql.SQL("%s::text[] IS NULL"),
            ),
            [*_named(table), *values, list(wanted.states) or None, page.limit + 1],
        )
        found, following = page.cut(found, keys)
        return {"items": [shown_revision(table, row, "updated_at") for row in found], "next": following}

    async def revisions(self, metric: Metric, wanted: Wanted, page: Page) -> Answer:
        """Every published revision, newest windows first."""
        table = await self._tables.table(metric)
        conditions, values = _of_revisions(metric, wanted)
        keys = ("window_end", "grouping", "dimensions", "revision", "state")
        after = page.after([datetime, str, dict, int, str])
        if after is not None:
            conditions.append(_beyond(keys, True))
            values += [after[0], after[1], Jsonb(after[2]), *after[3:]]
        found = await self._database.rows_if_there(
            sql.SQL(
                "SELECT {} FROM headrace.revisions WHERE app = %s AND metric = %s AND {} ORDER BY {} LIMIT %s"
            ).format(_REVISION_COLUMNS, _all(conditions), _order(keys, True)),
            [*_named(table), *values, page.limit + 1],
        )
        found, following = page.cut(found, keys)
        return {"items": [shown_revision(table, row, "at") for row in found], "next": following}

    async def _newest(
        self, table: MetricTable, conditions: list[sql.Composable], values: list[Any]
    ) -> datetime | None:
        if not table.exists:
            return None
        found = await self._database.rows_if_there(
            sql.SQL("SELECT window_start FROM {} WHERE {} ORDER BY window_start DESC LIMIT 1").format(
                table.name, _all(conditions)
            ),
            values,
        )
        return found[0]["window_start"] if found else None

    async def _read(self, table: MetricTable, rest: sql.Composable, values: list[Any]) -> list[Row]:
        if not table.exists:
            return []
        try:
            return await self._database.rows(
                sql.SQL("SELECT {} FROM {} {}").format(table.columns, table.name, rest), values
            )
        except NotThereYet:
            self._tables.forget(table.metric)
            return []


_REVISION_COLUMNS = sql.SQL(
    'window_start, window_end, "grouping", dimensions, revision, state, "values", watermark, at'
)


def shown_revision(table: MetricTable, row: Row, at: str) -> Answer:
    kept = row["values"]
    return {
        "window_start": row["window_start"],
        "window_end": row["window_end"],
        "grouping": row["grouping"],
        "dimensions": table.dimensions(row["grouping"], row["dimensions"]),
        "state": row["state"],
        "revision": row["revision"],
        "events": kept.get("events"),
        "late_events": kept.get("late_events"),
        "values": table.values(kept),
        "watermark": row["watermark"],
        at: row["at"],
    }


def _named(table: MetricTable) -> tuple[str, str]:
    app, metric = table.name._obj
    return app, metric


def _of_revisions(metric: Metric, wanted: Wanted) -> tuple[list[sql.Composable], list[Any]]:
    """Revisions are found by the end of their window, and have their dimensions in one column."""
    conditions, values = replace(wanted, start=None, end=None).conditions(labels_in="dimensions")
    if wanted.start is not None:
        conditions.append(sql.SQL("window_end >= %s"))
        values.append(wanted.start + metric.window.size)
    if wanted.end is not None:
        conditions.append(sql.SQL("window_end < %s"))
        values.append(wanted.end + metric.window.size)
    return conditions, values


def _all(conditions: list[sql.Composable]) -> sql.Composable:
    return sql.SQL(" AND ").join(conditions) if conditions else TRUE


def _order(keys: tuple[str, ...], descending: bool) -> sql.Composed:
    direction = sql.SQL(" DESC" if descending else " ASC")
    return sql.SQL(", ").join(sql.Identifier(key) + direction for key in keys)


def _beyond(keys: tuple[str, ...], descending: bool) -> sql.Composed:
    return sql.SQL("({}) {} ({})").format(
        sql.SQL(", ").join(map(sql.Identifier, keys)),
        sql.SQL("<" if descending else ">"),
        sql.SQL(", ").join([sql.Placeholder()] * len(keys)),
    )
