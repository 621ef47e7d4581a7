"""Rows as they were published: at a time, up to a revision, or every version of them.

Only rows that were corrected have versions beside the table, in `headrace.revisions`. Any other row that was
published has one version: the row itself. Both are read in the order of the table's key, a page of each. Of a
running window with a trigger every version is kept beside the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import sql

from headrace.metrics import Metric
from headrace.serve.database import Database, Row
from headrace.serve.metric_rows import Wanted, all_of, beyond, key_kinds, keys_of, order_by
from headrace.serve.metric_tables import MetricTable, MetricTables
from headrace.serve.parameters import Page

Answer = dict[str, Any]
RANK = sql.SQL("CASE state WHEN 'final' THEN 3 WHEN 'corrected' THEN 2 WHEN 'preliminary' THEN 1 ELSE 0 END")


@dataclass(frozen=True)
class Part:
    """A piece of SQL with its values."""

    text: sql.Composable
    values: tuple[Any, ...] = ()


class MetricVersions:
    def __init__(self, database: Database, tables: MetricTables, app: str) -> None:
        self._database, self._tables, self._app = database, tables, app

    async def as_of(
        self, metric: Metric, wanted: Wanted, page: Page, moment: datetime | int, *, newest_first: bool
    ) -> Answer:
        """Each row in its newest published version up to a revision, or a time."""
        table = await self._tables.table(metric)
        keys = keys_of(metric)
        only = [Part(sql.SQL("revision <= %s" if isinstance(moment, int) else "at <= %s"), (moment,))]
        after = page.after(key_kinds(metric))
        if after is not None:
            only.append(Part(beyond(keys, newest_first), tuple(after)))
        order = order_by(keys, newest_first)
        newest = sql.SQL(
            "SELECT DISTINCT ON ({keys}) * FROM ({versions}) AS v WHERE {only}"
            " ORDER BY {order}, revision DESC, rank DESC"
        )
        parts = [
            _filled(newest, versions=versions, only=only, keys=keys, order=order)
            for versions in self._branches(table, wanted, moment)
        ]
        states = _states(wanted)
        found = await self._merged(
            [Part(_select(p.text, states.text), (*p.values, *states.values)) for p in parts], order, page
        )
        rows, following = page.cut(found, keys)
        return {"items": [_shown(table, row, "updated_at") for row in rows], "next": following}

    async def revisions(self, metric: Metric, wanted: Wanted, page: Page) -> Answer:
        """Every version, newest windows first."""
        table = await self._tables.table(metric)
        keys = (*keys_of(metric), "revision", "rank")
        after = page.after([*key_kinds(metric), int, int])
        only = [_states(wanted), *([Part(beyond(keys, True), tuple(after))] if after else [])]
        order = order_by(keys, True)
        every = sql.SQL("SELECT * FROM ({versions}) AS v WHERE {only}")
        parts = [
            _filled(every, versions=versions, only=only, keys=keys, order=order)
            for versions in self._branches(table, wanted, None)
        ]
        rows, following = page.cut(await self._merged(parts, order, page), keys)
        return {"items": [_shown(table, row, "at") for row in rows], "next": following}

    def _branches(self, table: MetricTable, wanted: Wanted, moment: datetime | int | None) -> list[Part]:
        kept = self._kept_beside(table, wanted)
        if not table.exists or table.metric.window.trigger:
            return [kept]
        return [kept, _in_the_table(table, wanted, moment)]

    def _kept_beside(self, table: MetricTable, wanted: Wanted) -> Part:
        metric = table.metric
        dims = [
            sql.SQL("dimensions->>{} AS {}").format(sql.Literal(name), sql.Identifier(name))
            for name in metric.dimensions
        ]
        conditions, values = wanted.conditions(of_revisions=metric.window.size)
        text = sql.SQL(
            'SELECT window_start, window_end, "grouping", {dims} revision, state, "values", watermark, at,'
            " {rank} AS rank FROM headrace.revisions WHERE app = %s AND metric = %s AND {conditions}"
        ).format(
            dims=sql.SQL("").join(dim + sql.SQL(", ") for dim in dims),
            rank=RANK,
            conditions=all_of(conditions),
        )
        return Part(text, (self._app, metric.name, *values))

    async def _merged(self, parts: list[Part], order: sql.Composable, page: Page) -> list[Row]:
        """The first of both in one order; each is read no further than the page."""
        each = [
            sql.SQL("(SELECT * FROM ({}) AS p ORDER BY {} LIMIT %s)").format(part.text, order)
            for part in parts
        ]
        values = [value for part in parts for value in (*part.values, page.limit + 1)]
        text = sql.SQL("SELECT * FROM ({}) AS every ORDER BY {} LIMIT %s").format(
            sql.SQL(" UNION ALL ").join(each), order
        )
        return await self._database.rows_if_there(text, [*values, page.limit + 1])


def _in_the_table(table: MetricTable, wanted: Wanted, moment: datetime | int | None) -> Part:
    """Rows that were never corrected; one that has become final since then was preliminary at a time."""
    names = ("events", "late_events", *table.types)
    pairs = [part for name in names for part in (sql.Literal(name), sql.Identifier(name))]
    conditions, values = wanted.conditions(states=False)
    state: Part = Part(sql.SQL("state"))
    if isinstance(moment, datetime):
        text = "CASE WHEN updated_at > %s THEN 'preliminary' ELSE state END AS state"
        state = Part(sql.SQL(text), (moment,))
    return Part(
        sql.SQL(
            'SELECT window_start, window_end, "grouping", {dims} revision, {state},'
            ' jsonb_build_object({pairs}) AS "values", watermark, published_at AS at, {rank} AS rank'
            " FROM {table} WHERE revision = 1 AND published_at IS NOT NULL AND {conditions}"
        ).format(
            dims=sql.SQL("").join(sql.Identifier(d) + sql.SQL(", ") for d in table.metric.dimensions),
            state=state.text,
            pairs=sql.SQL(", ").join(pairs),
            rank=RANK,
            table=table.name,
            conditions=all_of(conditions),
        ),
        (*state.values, *values),
    )


def _filled(
    text: sql.SQL, *, versions: Part, only: list[Part], keys: Sequence[str], order: sql.Composable
) -> Part:
    made = text.format(
        keys=sql.SQL(", ").join(map(sql.Identifier, keys)),
        versions=versions.text,
        only=all_of([part.text for part in only]),
        order=order,
    )
    return Part(made, (*versions.values, *(value for part in only for value in part.values)))


def _select(versions: sql.Composable, condition: sql.Composable) -> sql.Composed:
    return sql.SQL("SELECT * FROM ({}) AS newest WHERE {}").format(versions, condition)


def _states(wanted: Wanted) -> Part:
    """Asked of the version that is found, so it cannot narrow the search for it."""
    if not wanted.states:
        return Part(sql.SQL("true"))
    return Part(sql.SQL("state = ANY(%s)"), (list(wanted.states),))


def _shown(table: MetricTable, row: Row, at: str) -> Answer:
    kept = row["values"]
    return {
        "window_start": row["window_start"],
        "window_end": row["window_end"],
        "grouping": row["grouping"],
        "dimensions": table.dimensions(row["grouping"], row),
        "state": row["state"],
        "revision": row["revision"],
        "events": kept.get("events"),
        "late_events": kept.get("late_events"),
        "values": table.values(kept),
        "watermark": row["watermark"],
        at: row["at"],
    }
