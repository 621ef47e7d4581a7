"""What changed since a position: rows of a metric, and alerts of a source.

A position is the `updated_at` of the newest row that was seen, and a floor: the start of the oldest window
that was not final then. One query writes a metric, so no row of an earlier time appears later. The column has
no index, since every update would have to move it: rows that are not final are found by their partial index,
rows that became final lie at or above the floor, and a final row below it changes only its count of late
events, which then has an entry in the late ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from psycopg import sql

from headrace.metrics import Metric
from headrace.serve.answers import to_json
from headrace.serve.database import Database, NotThereYet, Row
from headrace.serve.metric_tables import MetricTable, MetricTables

MOST = 20_000  # rows of one feed at once; beyond it the client is better off fetching anew
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Position:
    at: datetime = EPOCH
    floor: datetime = EPOCH

    def plain(self) -> list[int]:
        return [(self.at - EPOCH) // MICROSECOND, (self.floor - EPOCH) // MICROSECOND]

    @staticmethod
    def of(plain: Any) -> Position | None:
        """None for what no server has given out."""
        match plain:
            case [int(at), int(floor)] if abs(at) < 2**55 and abs(floor) < 2**55:
                return Position(EPOCH + at * MICROSECOND, EPOCH + floor * MICROSECOND)
        return None


@dataclass(frozen=True)
class Changes:
    """Changed items as JSON, and where the next look begins. Beyond the limit they are not `complete`."""

    items: list[bytes]
    position: Position
    complete: bool = True


class Feed(Protocol):
    """One thing that can be followed; `source` names the query whose commits change it."""

    key: str
    event: str
    source: str

    async def newest(self) -> Position: ...

    async def since(self, position: Position) -> Changes: ...


_NEWEST = """
    SELECT coalesce((SELECT min(window_start) FROM {table} WHERE state <> 'final'
                     AND window_end = (SELECT min(window_end) FROM {table} WHERE state <> 'final')),
                    (SELECT max(window_start) FROM {table})) AS floor
"""
_NEWEST_AT = """
    SELECT greatest((SELECT max(updated_at) FROM {table} WHERE state <> 'final'),
                    (SELECT max(updated_at) FROM {table} WHERE window_start >= %s)) AS at
"""
_SINCE = """
    SELECT {columns} FROM {table} WHERE state <> 'final' AND updated_at > %(at)s
    UNION ALL
    SELECT {columns} FROM {table}
    WHERE state = 'final' AND window_start >= %(floor)s AND updated_at > %(at)s
    UNION ALL
    SELECT {columns} FROM {table}
    WHERE state = 'final' AND window_start < %(floor)s AND updated_at > %(at)s
      AND window_start = ANY(ARRAY(SELECT DISTINCT window_start FROM headrace.late_events
                                   WHERE app = %(app)s AND metric = %(metric)s AND seen_at > %(at)s))
    ORDER BY updated_at, window_start LIMIT %(most)s
"""


class MetricFeed:
    event = "row"

    def __init__(self, app: str, metric: Metric, database: Database, tables: MetricTables) -> None:
        self.key, self.source = metric.name, metric.of
        self._app, self._metric, self._database, self._tables = app, metric, database, tables

    async def newest(self) -> Position:
        table = await self._tables.table(self._metric)
        return await self._look(table, Position())

    async def since(self, position: Position) -> Changes:
        table = await self._tables.table(self._metric)
        if not table.exists:
            return Changes([], position)
        try:
            # The floor first: it only rises, so one that is a moment old is on the safe side.
            floor = await self._floor(table)
            rows = await self._database.rows(
                sql.SQL(_SINCE).format(columns=table.columns, table=table.name),
                {
                    "at": position.at,
                    "floor": position.floor,
                    "most": MOST + 1,
                    "app": self._app,
                    "metric": self._metric.name,
                },
            )
        except NotThereYet:
            self._tables.forget(self._metric)
            return Changes([], position)
        at = max((row["updated_at"] for row in rows), default=position.at)
        if len(rows) > MOST:
            return Changes([], await self._look(table, position), complete=False)
        return Changes(
            [self._json(table, row) for row in rows], Position(at, max(floor or EPOCH, position.floor))
        )

    def _json(self, table: MetricTable, row: Row) -> bytes:
        return to_json({"metric": self._metric.name, **table.shown(row)})

    async def _look(self, table: MetricTable, known: Position) -> Position:
        if not table.exists:
            return known
        floor = await self._floor(table)
        found = await self._database.one(sql.SQL(_NEWEST_AT).format(table=table.name), (floor or EPOCH,))
        at = found["at"] if found else None
        return Position(max(at or EPOCH, known.at), max(floor or EPOCH, known.floor))

    async def _floor(self, table: MetricTable) -> datetime | None:
        found = await self._database.rows(sql.SQL(_NEWEST).format(table=table.name))
        floor: datetime | None = found[0]["floor"]
        return floor
