"""Events that came too late for a window: the newest ones, and how late they were."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from headrace.ops.load import LoadedApp
from headrace.serve.access import Access, Caller
from headrace.serve.database import Database
from headrace.serve.parameters import Page
from headrace.serve.shared import Shared

BOUNDS = (0, 1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600)  # seconds
# A look at each metric's own index, so that no more than a page of each is read.
_PAGE = """
    SELECT late.* FROM unnest(%(metrics)s::text[]) AS wanted (metric) CROSS JOIN LATERAL (
        SELECT metric, event_id, partition, "offset", event_time, window_start, window_end, clock,
               extract(epoch FROM late_by)::float8 AS late_by_seconds, reason, seen_at
        FROM headrace.late_events l
        WHERE app = %(app)s AND l.metric = wanted.metric AND seen_at <= %(seen_at)s::timestamptz
          AND (seen_at, l.metric, window_end, partition, "offset")
              < (%(seen_at)s::timestamptz, %(metric)s, %(window_end)s::timestamptz, %(partition)s, %(offset)s)
        ORDER BY seen_at DESC, l.metric DESC, window_end DESC, partition DESC, "offset" DESC LIMIT %(limit)s
    ) AS late
    ORDER BY seen_at DESC, metric DESC, window_end DESC, partition DESC, "offset" DESC LIMIT %(limit)s
"""
_DELAYS = """
    SELECT width_bucket(extract(epoch FROM late_by)::float8, %s::float8[]) AS bucket, count(*) AS count
    FROM headrace.late_events WHERE app = %s AND metric = ANY(%s) AND seen_at >= %s AND seen_at < %s
    GROUP BY 1
"""


class LateEvents:
    def __init__(self, loaded: LoadedApp, database: Database, access: Access) -> None:
        self._loaded, self._database, self._access = loaded, database, access
        app = loaded.app
        self._sources = {declared.name: declared.of for declared in app.metrics.values()}
        self._sources |= {declared.name: declared.of for declared in app.all_sessions.values()}
        self._shared: Shared[list[dict[str, Any]]] = Shared(seconds=5.0, grace=5.0)

    async def page(self, caller: Caller, metrics: list[str], page: Page) -> dict[str, Any]:
        """Of metrics or sessions that the caller may see."""
        after = page.after([datetime, str, datetime, int, int])
        keys = ("seen_at", "metric", "window_end", "partition", "offset")
        place = dict(zip(keys, after or ["infinity", "", "infinity", 0, 0], strict=True))
        found = await self._database.rows_if_there(
            _PAGE, {**place, "app": self._loaded.name, "metrics": metrics, "limit": page.limit + 1}
        )
        found, following = page.cut(found, keys)
        for row in found:
            if not self._access.sees_ids(caller, self._sources[row["metric"]]):
                row["event_id"] = None
        items = [{"source": self._sources[row["metric"]], **row} for row in found]
        return {"items": items, "next": following}

    async def delays(self, metrics: list[str], since: datetime, until: datetime) -> list[dict[str, Any]]:
        """How many missed their window by how much; below zero are those whose partition had slept."""
        key = (*metrics, since, until)
        return await self._shared.get(key, partial(self._delays, metrics, since, until))

    async def _delays(self, metrics: list[str], since: datetime, until: datetime) -> list[dict[str, Any]]:
        found = await self._database.rows_if_there(
            _DELAYS, (list(BOUNDS), self._loaded.name, metrics, since, until)
        )
        counts = {row["bucket"]: row["count"] for row in found}
        edges = (None, *BOUNDS, None)
        return [
            {"from_seconds": edges[n], "to_seconds": edges[n + 1], "count": counts.get(n, 0)}
            for n in range(len(BOUNDS) + 1)
        ]
