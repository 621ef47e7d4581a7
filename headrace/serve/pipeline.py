"""The pipeline right now, read once for all who ask within a second, in a thread of its own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from headrace.connections import Connections, query_name
from headrace.ops.load import LoadedApp
from headrace.ops.snapshot import FATES, Snapshots, SourceNow
from headrace.serve.shared import Shared


class PipelineFeed:
    """Blocking clients of Kafka and Postgres stay in one thread, and are made on first use."""

    def __init__(self, loaded: LoadedApp, connections: Connections) -> None:
        self._loaded, self._connections = loaded, connections
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pipeline")
        self._shared: Shared[dict[str, Any]] = Shared(seconds=0.9)
        self._snapshots: Snapshots | None = None

    async def now(self) -> dict[str, Any]:
        """Raises ServiceError where the store or the broker does not answer."""
        return await self._shared.get("now", self._in_thread)

    def close(self) -> None:
        if self._snapshots is not None:
            self._thread.submit(self._snapshots.close)
        self._thread.shutdown(wait=True)

    async def _in_thread(self) -> dict[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._take)

    def _take(self) -> dict[str, Any]:
        if self._snapshots is None:
            self._snapshots = Snapshots(self._loaded, self._connections, wait_seconds=3.0)
        sources = [self._source(source) for source in self._snapshots.take()]
        return {"at": datetime.now(UTC), "sources": sources}

    def _source(self, now: SourceNow) -> dict[str, Any]:
        partitions = [
            {"partition": p.partition, "lag_records": p.lag, "lag_seconds": None, "clock": p.clock}
            for p in now.partitions
        ]
        return {
            "source": now.source,
            "query": query_name(self._loaded.name, now.source),
            **{fate: getattr(now, fate) for fate in FATES},
            "unaccounted": now.unaccounted,
            "rate_per_second": None,
            "latency_seconds": None,
            "batch": None if now.batch_seconds is None else {"seconds": now.batch_seconds},
            "lag": {"records": now.lag, "seconds": None},
            "partitions": partitions,
            "watermark": None,
            "state": None,
            "durations_ms": None,
            "restarts": 0,
            "last_failure": None,
            "status": "unknown",
        }
