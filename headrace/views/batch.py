"""The views of a source in a batch of its gate: what they need, and what they make of it."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame

from headrace.gate.clock import Clocks, Extent
from headrace.views.panes import PaneJob, Panes, Watermarks
from headrace.views.resolve import ResolvedMetric


class Views:
    """Everything that is derived from one source in the gate's own query."""

    def __init__(self, metrics: list[ResolvedMetric]) -> None:
        self.metrics = metrics
        self._job = PaneJob(metrics)

    @property
    def carried(self) -> tuple[str, ...]:
        """The fields of the contract that some view uses."""
        return tuple(dict.fromkeys(name for resolved in self.metrics for name in resolved.fields))

    @property
    def closest(self) -> timedelta | None:
        """The shortest time after which an event can be too late for some view."""
        by_event = [r.metric.final_after for r in self.metrics if r.metric.window.time == "event"]
        return min(by_event, default=None)

    def reduce(
        self, judged: DataFrame, watermarks: Watermarks, extent: Extent, clocks: Clocks, rows: int
    ) -> list[Panes]:
        if not self.metrics:
            return []
        return self._job.reduce(judged, _awakened(watermarks, extent, clocks), rows)


def _awakened(watermarks: Watermarks, extent: Extent, clocks: Clocks) -> Watermarks:
    """The watermarks that can make an event miss a window although its own partition's clock does not.

    That takes a partition that is behind: one that slept, or is new. In all other batches nothing depends on
    the watermark, and Spark can use the code of the last batch again.
    """
    found: Watermarks = {}
    event = watermarks.get("event")
    if event is not None and any(_behind(clocks.get(block.partition), event) for block in extent.blocks):
        found["event"] = event
    arrival = watermarks.get("ingestion")
    if arrival is not None and any(oldest < arrival for oldest in extent.oldest_log_times.values()):
        found["ingestion"] = arrival
    return found


def _behind(clock: int | None, watermark: int) -> bool:
    return clock is None or clock < watermark
