"""What the engine tells about a real-time lane: what it has read and sent, and how long that took."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from headrace.ops.pipeline_lanes import lane_part
from headrace.ops.realtime_query import OBSERVED, RANKS, RealtimeQuery
from headrace.ops.reports import QueryReporter, is_finished
from headrace.store.connection import Store

KEPT_CHANGES = 200


class LaneReporter(QueryReporter):
    """Spark tells of a lane when a batch ends: once in `realtime_seconds`.

    What a crash makes it read again is counted again.
    """

    def __init__(self, store: Store, app: str, lane: RealtimeQuery) -> None:
        super().__init__(store, app, lane)
        self._lane = lane
        self._parts = [lane_part(signals) for signals in lane.signals]

    def _look(self) -> None:
        query = self._gate.query
        last = query._jsq.lastProgress() if query is not None else None
        if query is None or last is None or last.timestamp() == self._looked_at:
            return
        self._looked_at = last.timestamp()
        for told in (json.loads(one.json) for one in query.recentProgress):
            if told["batchId"] > self._batch and is_finished(told):
                self._batch = int(told["batchId"])
                changes, self._lane.table_changes = self._lane.table_changes, []
                self.report.progress = added(self.report.progress, told, self._parts, changes)


def added(
    before: dict[str, Any],
    told: dict[str, Any],
    parts: Collection[str] = (),
    changes: Collection[float] = (),
) -> dict[str, Any]:
    """The totals with one more batch; its own delays, or those before it if it sent nothing.

    `offsets` is where the lane goes on after it, and `begun` where each of its parts began: what an audit may
    ask of the topics lies between the two. `changes` are the times at which tables have changed.
    """
    observed = told.get("observedMetrics", {}).get(OBSERVED) or {}
    delays = observed.get("delays")
    milliseconds = {f"p{rank * 100:g}": delay for rank, delay in zip(RANKS, delays or (), strict=False)}
    first, begun = _offsets(told, "startOffset"), before.get("begun", {})
    return {
        "batch_id": told["batchId"],
        "at": told["timestamp"],
        "rows": told["numInputRows"],
        "received": before.get("received", 0) + told["numInputRows"],
        "signals": before.get("signals", 0) + int(observed.get("signals") or 0),
        "latency_ms": milliseconds or before.get("latency_ms"),
        "offsets": _offsets(told, "endOffset"),
        "begun": {part: begun.get(part, first) for part in parts},
        "changes": [*before.get("changes", ()), *changes][-KEPT_CHANGES:],
    }


def _offsets(told: dict[str, Any], which: str) -> dict[str, int]:
    """By partition of the one topic that a lane reads; nothing is known before the very first batch."""
    for source in told.get("sources", ()):
        for offsets in (source.get(which) or {}).values():
            return dict(offsets)
    return {}
