"""What the API says about the metrics: their declarations, and how far each of them is."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
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

COUNTED = 10_000  # rows that are counted exactly; above it the planner's estimate is good enough
LATE_SPAN = timedelta(hours=24)
# All of it reads a few pages: the rows that are not final yet, those of the newest window, a short count.
_EXTENT = """
    SELECT (SELECT count(*) FROM (SELECT FROM {table} LIMIT %(most)s) AS few) AS counted,
           (SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass(%(name)s)) AS estimate,
           greatest((SELECT max(updated_at) FROM {table} WHERE state <> 'final'),
                    (SELECT max(updated_at) FROM {table}
                     WHERE window_start = (SELECT max(window_start) FROM {table}))) AS updated_at
"""


class MetricCatalogue:
    def __init__(self, loaded: LoadedApp, database: Database, tables: MetricTables) -> None:
        self._loaded, self._database, self._tables = loaded, database, tables
        self._shared: Shared[dict[str, Any]] = Shared(seconds=1.0)

    async def metrics(self, wanted: list[Metric]) -> list[dict[str, Any]]:
        """Many ask at once: what was read within the last second serves all of them."""
        return [await self._shared.get(m.name, partial(self._metric, m)) for m in wanted]

    async def _metric(self, metric: Metric) -> dict[str, Any]:
        table = await self._tables.table(metric)
        extent = await self._extent(table)
        freshness = getattr(self._loaded.contract(metric.of), "freshness", None)
        return {
            "name": metric.name,
            "source": metric.of,
            "window": str(metric.window),
            "time": metric.window.time,
            "groupings": [list(grouping) for grouping in metric.groupings],
            "dimensions": list(metric.dimensions),
            "measures": _measures(table),
            "derived": list(metric.derived),
            "preliminary_after": format_duration(metric.preliminary_after),
            "final_after": format_duration(metric.final_after),
            "retain": format_duration(metric.retain),
            "watermark": await self._watermark(metric),
            "updated_at": extent["updated_at"],
            "slo_seconds": freshness.total_seconds() if freshness else None,
            "rows": _rows(extent),
            "late_events": await self._late(metric),
        }

    async def _extent(self, table: MetricTable) -> Row:
        nothing = {"counted": 0, "estimate": 0, "updated_at": None}
        if not table.exists:
            return nothing
        query = sql.SQL(_EXTENT).format(table=table.name)
        return await self._database.one(query, {"most": COUNTED, "name": table.name.as_string()}) or nothing

    async def _watermark(self, metric: Metric) -> Any:
        found = await self._database.one(
            "SELECT watermark FROM headrace.watermarks WHERE query = %s AND time = %s",
            (query_name(self._loaded.name, metric.of), metric.window.time),
        )
        return found["watermark"] if found else None

    async def _late(self, metric: Metric) -> int:
        found = await self._database.one(
            "SELECT count(*) AS n FROM (SELECT FROM headrace.late_events WHERE app = %s AND metric = %s"
            " AND seen_at > now() - %s LIMIT %s) AS few",
            (self._loaded.name, metric.name, LATE_SPAN, COUNTED),
        )
        return found["n"] if found else 0


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
