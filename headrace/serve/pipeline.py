"""The pipeline, read once for all who ask within a second, in a thread of its own.

Those who ask while it is read again get what was read before: it says when that was.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headrace.ops.pipeline import PipelineView
from headrace.serve.shared import Shared


class PipelineFeed:
    """Blocking clients of Kafka and Postgres stay in one thread."""

    def __init__(self, view: PipelineView) -> None:
        self._view = view
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pipeline")
        self._shared: Shared[dict[str, Any]] = Shared(seconds=0.9, grace=2.0)

    async def now(self) -> dict[str, Any]:
        """Raises ServiceError where the store does not answer."""
        return await self._shared.get("now", self._in_thread)

    def close(self) -> None:
        self._thread.submit(self._view.close)
        self._thread.shutdown(wait=True)

    async def _in_thread(self) -> dict[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._view.now)
