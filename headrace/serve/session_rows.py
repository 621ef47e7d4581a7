"""Sessions as they are: what is declared, and rows by the time of their last event, newest first."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from psycopg import sql

from headrace.contracts.durations import format_duration
from headrace.metrics import Metric
from headrace.ops.load import LoadedApp
from headrace.serve.database import Database, Row
from headrace.serve.metric_tables import SHOWN_TYPES, MetricTable, MetricTables
from headrace.serve.parameters import Page
from headrace.sessions import Sessions

STATES = ("open", "preliminary", "corrected", "final")
OWN = (
    *("session_start", "session_end", "last_event", "duration", "state", "revision", "events"),
    *("watermark", "updated_at"),
)


class SessionRows:
    def __init__(self, loaded: LoadedApp, database: Database, tables: MetricTables) -> None:
        self._database, self._tables = database, tables
        self._measured: dict[str, Metric] = {s.name: s.measured for s in loaded.app.all_sessions.values()}

    def measured(self, sessions: Sessions) -> Metric:
        """What they measure, as access and tables know it."""
        return self._measured[sessions.name]

    async def declared(self, sessions: Sessions) -> dict[str, Any]:
        table = await self._tables.table(self.measured(sessions))
        return {
            "name": sessions.name,
            "source": sessions.of,
            "key": sessions.key,
            "gap": format_duration(sessions.gap),
            "max_length": format_duration(sessions.max_length),
            "columns": {
                name: SHOWN_TYPES.get(table.types[name], "string") if name in table.types else None
                for name in sessions.visible
            },
            "preliminary_after": format_duration(sessions.preliminary_after),
            "final_after": format_duration(sessions.final_after),
            "retain": format_duration(sessions.retain),
        }

    async def page(
        self, sessions: Sessions, key: str | None, states: tuple[str, ...], page: Page
    ) -> dict[str, Any]:
        table = await self._tables.table(self.measured(sessions))
        after = page.after([datetime, str, datetime])
        found: list[Row] = []
        if table.exists:
            query, values = _query(table, sessions, key, states or STATES, after, page.limit + 1)
            found = await self._database.rows_if_there(query, values)
        found, following = page.cut(found, ("session_end", "__key", "session_start"))
        return {"items": [_shown(table, row) for row in found], "next": following}


def _query(
    table: MetricTable,
    sessions: Sessions,
    key: str | None,
    states: tuple[str, ...],
    after: list[Any] | None,
    limit: int,
) -> tuple[sql.Composed, list[Any]]:
    """Each state is read from the newest row on, by its index, and no further than the page is long."""
    name = sql.Identifier(sessions.key)
    columns = sql.SQL(", ").join(map(sql.Identifier, (*OWN, *table.types)))
    end = sql.SQL("ORDER BY session_end DESC, __key DESC, session_start DESC LIMIT %s")
    branches: list[sql.Composable] = []
    values: list[Any] = []
    for state in states:
        conditions: list[sql.Composable] = [sql.SQL("state = %s")]
        given: list[Any] = [state]
        if key is not None:
            conditions.append(sql.SQL("{} = %s").format(name))
            given.append(key)
        if after is not None:
            conditions.append(sql.SQL("session_end <= %s"))
            conditions.append(sql.SQL("(session_end, {}, session_start) < (%s, %s, %s)").format(name))
            given += [after[0], *after]
        branches.append(
            sql.SQL("(SELECT {} AS __key, {} FROM {} WHERE {} {})").format(
                name, columns, table.name, sql.SQL(" AND ").join(conditions), end
            )
        )
        values += [*given, limit]
    every = sql.SQL(" UNION ALL ").join(branches)
    return sql.SQL("SELECT * FROM ({}) AS found {}").format(every, end), [*values, limit]


def _shown(table: MetricTable, row: Row) -> dict[str, Any]:
    return {
        "key": row["__key"],
        "session_start": row["session_start"],
        "session_end": row["session_end"],
        "last_event": row["last_event"],
        "duration_seconds": row["duration"].total_seconds(),
        "state": row["state"],
        "revision": row["revision"],
        "events": row["events"],
        "values": table.values(row),
        "watermark": row["watermark"],
        "updated_at": row["updated_at"],
    }
