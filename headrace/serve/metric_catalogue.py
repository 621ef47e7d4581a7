"""What the API says about the metrics: their declarations, and how far each of them is."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from psycopg import sql

from headrace.connections import query_name
from headrace.contracts.durations import format_duration
from headrace.measures import quantile_name
from headrace.metrics import Metric
from headrace.ops.load import LoadedApp
from headrace.serve.database import Database, Row
from headrace.serve.metric_tables import SHOWN_TYPES, MetricTable, MetricTables
from headrace.serve.shared import Shared
from headrace.store.times import moved

COUNTED = 10_000  # rows that are counted exactly; above it the planner's estimate is good enough
LATE_SPAN = timedelta(hours=24)
# All of it reads a few pages: the rows that can still change, those of the newest window, a short count.
_EXTENT = """
    SELECT {metric}::text AS metric,
           (SELECT count(*) FROM (SELECT FROM {table} LIMIT {most}) AS few) AS counted,
           (SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass({name})) AS estimate,
           greatest((SELECT max(updated_at) FROM {table} WHERE window_start >= {floor}),
                    (SELECT max(updated_at) FROM {table}
                     WHERE window_start = (SELECT max(window_start) FROM {table}))) AS updated_at
"""
_LATE = """
    SELECT wanted.metric, late.n FROM unnest(%s::text[]) AS wanted (metric) CROSS JOIN LATERAL (
        SELECT count(*) AS n FROM (SELECT FROM headrace.late_events l WHERE app = %s
        AND l.metric = wanted.metric AND seen_at > now() - %s LIMIT %s) AS few) AS late
"""
NOTHING: Row = {"counted": 0, "estimate": 0, "updated_at": None}


class MetricCatalogue:
    def __init__(self, loaded: LoadedApp, database: Database, tables: MetricTables) -> None:
        self._loaded, self._database, self._tables = loaded, database, tables
        self._shared: Shared[dict[str, dict[str, Any]]] = Shared(seconds=1.0, grace=2.0)

    async def metrics(self, wanted: list[Metric]) -> list[dict[str, Any]]:
        """Many ask at once: what was read within the last second serves all of them."""
        known = await self._shared.get("all", self._read)
        return [known[metric.name] for metric in wanted]

    async def _read(self) -> dict[str, dict[str, Any]]:
        tables = [await self._tables.table(metric) for metric in self._loaded.app.metrics.values()]
        clocks = await self._watermarks()
        watermarks = {
            table.metric.name: clocks.get(
                (query_name(self._loaded.name, table.metric.of), table.metric.window.time)
            )
            for table in tables
        }
        extents = await self._extents([table for table in tables if table.exists], watermarks)
        late = await self._late([table.metric.name for table in tables])
        return {
            table.metric.name: self._metric(
                table,
                extents.get(table.metric.name, NOTHING),
                watermarks[table.metric.name],
                late.get(table.metric.name, 0),
            )
            for table in tables
        }

    def _metric(self, table: MetricTable, extent: Row, watermark: Any, late: int) -> dict[str, Any]:
        metric = table.metric
        freshness = getattr(self._loaded.contract(metric.of), "freshness", None)
        return {
            "name": metric.name,
            "source": metric.of,
            "window": str(metric.window),
            "trigger": format_duration(metric.window.trigger) if metric.window.trigger else None,
            "time": metric.window.time,
            "groupings": [list(grouping) for grouping in metric.groupings],
            "dimensions": list(metric.dimensions),
            "measures": _measures(table),
            "derived": list(metric.derived),
            "preliminary_after": format_duration(metric.preliminary_after),
            "final_after": format_duration(metric.final_after),
            "retain": format_duration(metric.retain),
            "watermark": watermark,
            "updated_at": extent["updated_at"],
            "slo_seconds": freshness.total_seconds() if freshness else None,
            "rows": _rows(extent),
            "late_events": late,
        }

    async def _extents(
        self, tables: list[MetricTable], watermarks: dict[str, datetime | None]
    ) -> dict[str, Row]:
        parts = [
            sql.SQL(_EXTENT).format(
                metric=sql.Literal(table.metric.name),
                table=table.name,
                name=sql.Literal(table.name.as_string()),
                most=sql.Literal(COUNTED),
                floor=_floor(table.metric, watermarks[table.metric.name]),
            )
            for table in tables
        ]
        found = await self._database.rows_if_there(sql.SQL(" UNION ALL ").join(parts)) if parts else []
        return {row["metric"]: row for row in found}

    async def _watermarks(self) -> dict[tuple[str, str], datetime | None]:
        found = await self._database.rows_if_there(
            "SELECT query, time, watermark FROM headrace.watermarks WHERE query = ANY(%s)",
            ([query_name(self._loaded.name, stream) for stream in self._loaded.contracts],),
        )
        return {(row["query"], row["time"]): row["watermark"] for row in found}

    async def _late(self, metrics: list[str]) -> dict[str, int]:
        found = await self._database.rows_if_there(_LATE, (metrics, self._loaded.name, LATE_SPAN, COUNTED))
        return {row["metric"]: row["n"] for row in found}


def _floor(metric: Metric, watermark: datetime | None) -> sql.Composed:
    """Rows of windows that began before it are final."""
    found = moved(watermark, -metric.settles_after) if watermark else "-infinity"
    return sql.SQL("{}::timestamptz").format(sql.Literal(found))


def _rows(extent: Row) -> int:
    counted: int = extent["counted"]
    return counted if counted < COUNTED else max(counted, extent["estimate"])


def _measures(table: MetricTable) -> dict[str, dict[str, Any]]:
    """By visible column: quantiles have one for each rank."""
    found = {}
    for name, measure in table.metric.measures.items():
        columns = [quantile_name(name, rank) for rank in measure.ranks] if measure.ranks else [name]
        for column in columns:
            type_ = table.types.get(column)
            found[column] = {"kind": measure.kind, "type": SHOWN_TYPES.get(type_, type_) if type_ else None}
    return found
