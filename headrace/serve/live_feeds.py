"""What changed since a position: rows of a metric, and alerts of a source.

A position is the `updated_at` of the newest row that was seen, and a floor: windows that began before it were
final then. One query writes a metric, so no row of an earlier time appears later. The column has no index,
since every update would have to move it: rows that can change lie at or above the floor, and a final row
below it changes only its count of late events, which then has an entry in the late ledger.

A look that finds more than `MOST` rows gives none of them. Those who follow are told to fetch the metric
anew, which they do after this look: whatever was committed by then is known to them. So the next look may
begin at the newest of the few rows that were found, and nothing has to be read to find a better place.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Protocol

from psycopg import sql

from headrace.connections import query_name
from headrace.metrics import Metric
from headrace.serve.answers import to_json
from headrace.serve.database import Database, NotThereYet, Row
from headrace.serve.metric_tables import MetricTable, MetricTables
from headrace.store.times import moved

MOST = 1_000  # rows of one feed at once; beyond it the client is better off fetching anew
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Position:
    at: datetime = EPOCH
    floor: datetime = EPOCH

    @cached_property
    def plain(self) -> list[int]:
        """As a cursor has it; kept, since all who follow a feed share its position."""
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
    """One thing that can be followed; `source` names the query whose commits change it.

    `subject` names it for those who are told that something of it was skipped.
    """

    key: str
    event: str
    source: str
    subject: dict[str, str]

    async def newest(self) -> Position: ...

    async def since(self, position: Position) -> Changes: ...


_WATERMARK = "SELECT watermark FROM headrace.watermarks WHERE query = %s AND time = %s"
_NEWEST_AT = """
    SELECT greatest((SELECT max(updated_at) FROM {table} WHERE window_start >= %s),
                    (SELECT max(updated_at) FROM {table}
                     WHERE window_start = (SELECT max(window_start) FROM {table}))) AS at
"""
# Planned for all of the changed rows, as a materialised part is, and read until there are enough of them.
# Beyond the limit one row tells all that is needed. No column of a metric has a name with a space.
_SINCE = """
    WITH changed AS MATERIALIZED (
        SELECT {columns} FROM {table}
        WHERE window_start >= %(floor)s AND updated_at > %(at)s AND {mine}
        UNION ALL
        SELECT {columns} FROM {table}
        WHERE window_start < %(floor)s AND updated_at > %(at)s AND {mine}
          AND window_start = ANY(ARRAY(SELECT DISTINCT window_start FROM headrace.late_events
                                       WHERE app = %(app)s AND metric = %(metric)s AND seen_at > %(at)s))
    ), few AS MATERIALIZED (SELECT * FROM changed LIMIT %(most)s + 1)
    SELECT *, (SELECT count(*) FROM few) AS "rows found", (SELECT max(updated_at) FROM few) AS "newest found"
    FROM few LIMIT CASE WHEN (SELECT count(*) FROM few) > %(most)s THEN 1 END
"""


def metric_key(metric: str, grouping: str | None) -> str:
    """The name of a metric's feed, as it is asked for and as a cursor has it."""
    return metric if grouping is None else f"{metric}:{spoken(grouping)}"


def spoken(grouping: str) -> str:
    """A grouping as /live names it: metrics are separated by commas there."""
    return grouping.replace(",", ".")


class MetricFeed:
    """The rows of a metric, or of one of its groupings, named as in the table's column."""

    event = "row"

    def __init__(
        self, app: str, metric: Metric, grouping: str | None, database: Database, tables: MetricTables
    ) -> None:
        self.key, self.source = metric_key(metric.name, grouping), metric.of
        self.subject = {"metric": metric.name} | ({"grouping": grouping} if grouping is not None else {})
        self._app, self._metric, self._grouping = app, metric, grouping
        self._clock = (query_name(app, metric.of), metric.window.time)
        self._database, self._tables = database, tables

    async def newest(self) -> Position:
        return await self._look(await self._tables.table(self._metric))

    async def since(self, position: Position) -> Changes:
        table = await self._tables.table(self._metric)
        if not table.exists:
            return Changes([], position)
        try:
            # The floor first: it only rises, so one that is a moment old is on the safe side.
            floor = max(await self._floor(), position.floor)
            rows = await self._database.rows(*self._changed(table, position))
        except NotThereYet:
            self._tables.forget(self._metric)
            return Changes([], position)
        if not rows:
            return Changes([], Position(position.at, floor))
        reached = Position(rows[0]["newest found"], floor)
        if rows[0]["rows found"] > MOST:
            return Changes([], reached, complete=False)
        rows.sort(key=lambda row: (row["updated_at"], row["window_start"]))
        return Changes([self._json(table, row) for row in rows], reached)

    def _changed(self, table: MetricTable, position: Position) -> tuple[sql.Composed, Row]:
        mine = sql.SQL("true" if self._grouping is None else '"grouping" = %(grouping)s')
        return (
            sql.SQL(_SINCE).format(columns=table.columns, table=table.name, mine=mine),
            {
                "at": position.at,
                "floor": position.floor,
                "most": MOST,
                "app": self._app,
                "metric": self._metric.name,
                "grouping": self._grouping,
            },
        )

    def _json(self, table: MetricTable, row: Row) -> bytes:
        return to_json({"metric": self._metric.name, **table.shown(row)})

    async def _look(self, table: MetricTable) -> Position:
        if not table.exists:
            return Position()
        floor = await self._floor()
        found = await self._database.one(sql.SQL(_NEWEST_AT).format(table=table.name), (floor,))
        at = found["at"] if found else None
        return Position(at or EPOCH, floor)

    async def _floor(self) -> datetime:
        found = await self._database.rows(_WATERMARK, self._clock)
        if not found:
            return EPOCH
        return max(EPOCH, moved(found[0]["watermark"], -self._metric.settles_after))
