"""Rows of a metric as they are: a range of windows, and the newest window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
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

    def conditions(
        self, *, states: bool = True, of_revisions: timedelta | None = None
    ) -> tuple[list[sql.Composable], list[Any]]:
        """`of_revisions` have no columns of dimensions, and are found by the end of a window of this size."""
        place, shift = ("window_start", timedelta()) if of_revisions is None else ("window_end", of_revisions)
        found: list[tuple[sql.Composable, Any]] = []
        if self.start is not None:
            found.append((sql.SQL("{} >= %s").format(sql.Identifier(place)), self.start + shift))
        if self.end is not None:
            found.append((sql.SQL("{} < %s").format(sql.Identifier(place)), self.end + shift))
        if self.states and states and of_revisions is None:
            found.append((sql.SQL("state = ANY(%s)"), list(self.states)))
        if self.grouping is not None:
            found.append((sql.SQL('"grouping" = %s'), self.grouping))
        for name, label in self.labels.items():
            if of_revisions is not None:
                found.append((sql.SQL("dimensions @> %s"), Jsonb({name: label})))
            else:
                found.append((sql.SQL("{} = %s").format(sql.Identifier(name)), label))
        return [condition for condition, _ in found], [value for _, value in found]


class MetricRows:
    def __init__(self, database: Database, tables: MetricTables) -> None:
        self._database, self._tables = database, tables

    async def range(self, metric: Metric, wanted: Wanted, page: Page, *, newest_first: bool) -> Answer:
        table = await self._tables.table(metric)
        conditions, values = wanted.conditions()
        keys = keys_of(metric)
        after = page.after(key_kinds(metric))
        if after is not None:
            conditions.append(beyond(keys, newest_first))
            values += after
        found = await self._read(
            table,
            sql.SQL("WHERE {} ORDER BY {} LIMIT %s").format(all_of(conditions), order_by(keys, newest_first)),
            [*values, page.limit + 1],
        )
        found, following = page.cut(found, keys)
        return {"items": [table.shown(row) for row in found], "next": following}

    async def latest(self, metric: Metric, wanted: Wanted, page: Page, order: str) -> Answer:
        """The newest window that has such rows. A page begins at a row's number in a window that is fixed."""
        table = await self._tables.table(metric)
        conditions, values = wanted.conditions()
        window, begin = page.after([datetime, int]) or [await self._newest(table, conditions, values), 0]
        found: list[Row] = []
        if window is not None:
            by = order_by(("grouping", *metric.dimensions), False)
            if order:
                direction = sql.SQL(" DESC NULLS LAST" if order.startswith("-") else " ASC NULLS LAST")
                by = sql.Identifier(order.lstrip("-")) + direction + sql.SQL(", ") + by
            found = await self._read(
                table,
                sql.SQL("WHERE {} ORDER BY {} LIMIT %s OFFSET %s").format(
                    all_of([*conditions, sql.SQL("window_start = %s")]), by
                ),
                [*values, window, page.limit + 1, max(0, begin)],
            )
        following = page.next(window, begin + page.limit) if len(found) > page.limit else None
        items = [table.shown(row) for row in found[: page.limit]]
        end = items[0]["window_end"] if items else None
        return {"window_start": window, "window_end": end, "items": items, "next": following}

    async def _newest(
        self, table: MetricTable, conditions: list[sql.Composable], values: list[Any]
    ) -> datetime | None:
        if not table.exists:
            return None
        found = await self._database.rows_if_there(
            sql.SQL("SELECT window_start FROM {} WHERE {} ORDER BY window_start DESC LIMIT 1").format(
                table.name, all_of(conditions)
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


def keys_of(metric: Metric) -> tuple[str, ...]:
    """The primary key of the table: rows are read in its order."""
    return ("window_start", "window_end", "grouping", *metric.dimensions)


def key_kinds(metric: Metric) -> list[type]:
    return [datetime, datetime, str, *[str] * len(metric.dimensions)]


def all_of(conditions: Sequence[sql.Composable]) -> sql.Composable:
    return sql.SQL(" AND ").join(conditions) if conditions else TRUE


def order_by(keys: Sequence[str], descending: bool) -> sql.Composed:
    direction = sql.SQL(" DESC" if descending else " ASC")
    return sql.SQL(", ").join(sql.Identifier(key) + direction for key in keys)


def beyond(keys: Sequence[str], descending: bool) -> sql.Composed:
    return sql.SQL("({}) {} ({})").format(
        sql.SQL(", ").join(map(sql.Identifier, keys)),
        sql.SQL("<" if descending else ">"),
        sql.SQL(", ").join([sql.Placeholder()] * len(keys)),
    )
