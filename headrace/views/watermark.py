"""The watermark of a source: the minimum clock over its live partitions."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.fates import latest
from headrace.gate.ledger import Reach


def watermark_of(partitions: Mapping[int, Reach], idle_after: int) -> int | None:
    """A partition that was silent for `idle_after` of log time, or never had a record, does not count."""
    newest = latest(*(reach.log_time for reach in partitions.values()))
    live = [
        reach.clock
        for reach in partitions.values()
        if reach.clock is not None
        and (newest is None or reach.log_time is None or newest - reach.log_time <= idle_after)
    ]
    return min(live, default=None)


def arrival_watermark_of(partitions: Mapping[int, Reach], idle_after: int) -> int | None:
    """The same for windows of ingestion time, where the last record's arrival is the clock."""
    arrivals = {p: Reach(reach.log_time, reach.log_time) for p, reach in partitions.items()}
    return watermark_of(arrivals, idle_after)
