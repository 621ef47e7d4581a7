"""What is derived from a source in a batch of its gate: what it needs, and what it makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from headrace.gate.clock import Clocks, Extent
from headrace.gate.look import Guess, Results
from headrace.views.pane_plan import Watermarks
from headrace.views.panes import PaneJob
from headrace.views.resolve import ResolvedMetric

METRICS = "metrics"


class Reducer(Protocol):
    """The Spark half of a derivation: a batch becomes parts that the store can merge, by name."""

    @property
    def carried(self) -> Sequence[str]:
        """The fields of the contract that it uses."""

    @property
    def closest(self) -> timedelta | None:
        """The shortest time after which an event can be too late for it."""

    def reduce(self, session: SparkSession, watermarks: Watermarks, rows: int) -> Mapping[str, Any]:
        """`judged` is a temporary view; `watermarks` holds only what can make an event late by itself."""


class MetricReducer:
    """All metrics of a source, in one job."""

    def __init__(self, metrics: list[ResolvedMetric]) -> None:
        self.metrics = metrics
        self._job = PaneJob(metrics)

    @property
    def carried(self) -> tuple[str, ...]:
        return tuple(name for resolved in self.metrics for name in resolved.fields)

    @property
    def closest(self) -> timedelta | None:
        by_event = [r.metric.final_after for r in self.metrics if r.metric.window.time == "event"]
        return min(by_event, default=None)

    @property
    def guess(self) -> Guess:
        return self._job.guess

    def reduce(self, session: SparkSession, watermarks: Watermarks, rows: int) -> Mapping[str, Any]:
        return {METRICS: self._job.reduce(session, watermarks, rows)}

    def take(self, guessed: Results) -> Mapping[str, Any]:
        return {METRICS: self._job.take(guessed)}


class Views:
    """Everything that is derived from one source in the gate's own query."""

    def __init__(self, reducers: Sequence[Reducer]) -> None:
        self._reducers = reducers

    @property
    def carried(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for reducer in self._reducers for name in reducer.carried))

    @property
    def closest(self) -> timedelta | None:
        return min((r.closest for r in self._reducers if r.closest is not None), default=None)

    @property
    def guess(self) -> Guess | None:
        """The metrics are derived from most batches while these are looked at."""
        return next((r.guess for r in self._reducers if isinstance(r, MetricReducer)), None)

    def reduce(
        self,
        judged: DataFrame,
        watermarks: Watermarks,
        extent: Extent,
        clocks: Clocks,
        rows: int,
        guessed: Results | None = None,
    ) -> dict[str, Any]:
        judged.createOrReplaceTempView("judged")
        awakened = _awakened(watermarks, extent, clocks)
        parts: dict[str, Any] = {}
        for reducer in self._reducers:
            if guessed is not None and not awakened and isinstance(reducer, MetricReducer):
                parts |= reducer.take(guessed)
            else:
                parts |= reducer.reduce(judged.sparkSession, awakened, rows)
        return parts


def _awakened(watermarks: Watermarks, extent: Extent, clocks: Clocks) -> Watermarks:
    """The watermarks that can make an event miss a window although its own partition's clock does not.

    That takes a partition that is behind: one that slept, or is new. In all other batches nothing depends on
    the watermark, and Spark can use the code of the last batch again.
    """
    found: Watermarks = {}
    event = watermarks.get("event")
    if event is not None and any(_behind(clocks.get(p), event) for p, _ in extent.spans()):
        found["event"] = event
    arrival = watermarks.get("ingestion")
    if arrival is not None and any(oldest < arrival for oldest in extent.oldest_log_times.values()):
        found["ingestion"] = arrival
    return found


def _behind(clock: int | None, watermark: int) -> bool:
    return clock is None or clock < watermark
