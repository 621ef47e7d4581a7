"""The sessions of the last hour in a few numbers: how many run, how long they are, what they led to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from psycopg import sql

from headrace.connections import query_name
from headrace.contracts.model import Contract
from headrace.metrics import Metric
from headrace.ops.load import LoadedApp
from headrace.serve.database import Database, Row
from headrace.serve.metric_tables import MetricTable, MetricTables
from headrace.serve.shared import Shared
from headrace.sessions import Sessions
from headrace.store.times import moved

SPAN = timedelta(hours=1)
MOST_SESSIONS = 50_000  # the newest; so many that more would change little
MOST_GROUPS = 12
KEPT_SECONDS = 2.0
STATES = ("open", "preliminary", "corrected", "final")
_ADDED_UP = ("count", "sum")
_NEWEST = (
    "(SELECT * FROM {table} WHERE state = {state} AND session_end > %(since)s"
    " ORDER BY session_end DESC LIMIT {most})"
)


class SessionSummaries:
    """One look for all who ask within a few seconds. Sessions of all keys together: it names nobody."""

    def __init__(self, loaded: LoadedApp, database: Database, tables: MetricTables) -> None:
        self._loaded, self._database, self._tables = loaded, database, tables
        self._shared: Shared[dict[str, Any]] = Shared(seconds=KEPT_SECONDS, grace=KEPT_SECONDS)

    async def of(self, sessions: Sessions, measured: Metric) -> dict[str, Any]:
        return await self._shared.get(sessions.name, lambda: self._look(sessions, measured))

    async def _look(self, sessions: Sessions, measured: Metric) -> dict[str, Any]:
        query = query_name(self._loaded.name, sessions.of)
        table = await self._tables.table(measured)
        known = await self._database.one(
            "SELECT watermark FROM headrace.watermarks WHERE query = %s AND time = 'event'", (query,)
        )
        counted = await self._database.rows_if_there(
            "SELECT outcome, count FROM headrace.flow_totals WHERE query = %s AND flow = %s",
            (query, f"sessions.{sessions.name}"),
        )
        totals = {row["outcome"]: row["count"] for row in counted}
        watermark = known["watermark"] if known else None
        by = grouped_by(sessions, self._loaded.contract(sessions.of))
        answer = {
            "name": sessions.name,
            "source": sessions.of,
            "watermark": watermark,
            "since": moved(watermark, -SPAN) if watermark else None,
            "open": 0,
            "final_total": totals.get("closed", 0),
            "late_total": totals.get("late", 0),
            "by": by,
            "groups": [],
        }
        if not table.exists or watermark is None:
            return {**answer, **_shown(sessions, table, {})}
        running = await self._database.one(
            sql.SQL("SELECT count(*) AS n FROM {} WHERE state = 'open'").format(table.name)
        )
        # A session ends a gap after its last event: the span is over the events.
        since = {"since": moved(watermark, sessions.gap - SPAN)}
        found = await self._database.rows_if_there(_statement(sessions, table, by), since)
        whole = next((row for row in found if row["whole"]), {})
        groups = [
            {"group": row["label"], **_shown(sessions, table, row)} for row in found if not row["whole"]
        ]
        return {
            **answer,
            "open": running["n"] if running else 0,
            **_shown(sessions, table, whole),
            "groups": sorted(groups, key=lambda group: -group["sessions"])[:MOST_GROUPS] if by else [],
        }


def grouped_by(sessions: Sessions, contract: Contract) -> str | None:
    """The first text of a session whose values the contract lists, if these are few."""
    few = {
        field.name
        for field in contract.fields
        if not field.mask and field.rules.enum and len(field.rules.enum) <= MOST_GROUPS
    }
    texts = (n for n, m in sessions.measures.items() if m.kind in ("first", "last") and m.expression in few)
    return next(texts, None)


def _statement(sessions: Sessions, table: MetricTable, by: str | None) -> sql.Composed:
    """Each state from its newest row on, by its index; all sessions, and those of each group."""
    newest = sql.SQL(" UNION ALL ").join(
        sql.SQL(_NEWEST).format(table=table.name, state=sql.Literal(state), most=sql.Literal(MOST_SESSIONS))
        for state in STATES
    )
    columns: list[sql.Composable] = [
        sql.SQL("count(*) AS sessions"),
        sql.SQL("count(*) FILTER (WHERE state = 'open') AS open_sessions"),
        sql.SQL("sum(events)::bigint AS events"),
        sql.SQL(
            "percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM duration)) AS median_seconds"
        ),
    ]
    columns += [
        sql.SQL("avg({0}::int)::float8 AS {0}").format(sql.Identifier(name)) for name in _shares(table)
    ]
    columns += [
        sql.SQL("sum({0}){1} AS {0}").format(
            sql.Identifier(name), sql.SQL("::bigint" if table.types[name] == "bigint" else "")
        )
        for name in _sums(sessions, table)
    ]
    label = sql.Identifier(by) if by else sql.SQL("NULL::text")
    return sql.SQL(
        "SELECT grouping(label) = 1 AS whole, label, {columns}"
        " FROM (SELECT *, {label} AS label FROM ({newest}) AS newest) AS found"
        " GROUP BY GROUPING SETS ((), (label))"
    ).format(columns=sql.SQL(", ").join(columns), label=label, newest=newest)


def _shares(table: MetricTable) -> list[str]:
    return [name for name, type_ in table.types.items() if type_ == "boolean"]


def _sums(sessions: Sessions, table: MetricTable) -> list[str]:
    return [n for n in table.types if n in sessions.measures and sessions.measures[n].kind in _ADDED_UP]


def _shown(sessions: Sessions, table: MetricTable, row: Row) -> dict[str, Any]:
    return {
        "sessions": row.get("sessions") or 0,
        "open_sessions": row.get("open_sessions") or 0,
        "events": row.get("events") or 0,
        "median_seconds": row.get("median_seconds"),
        "shares": {name: row.get(name) for name in _shares(table)},
        "sums": {name: row.get(name) for name in _sums(sessions, table)},
    }
