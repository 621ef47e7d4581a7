"""The watermark of a source: the minimum clock over its live partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.fates import latest


@dataclass(frozen=True)
class Pulse:
    """What a partition has shown: its clock, and the log time of its last record. Microseconds."""

    clock: int | None
    log_time: int | None


def watermark_of(pulses: Mapping[int, Pulse], idle_after: int) -> int | None:
    """A partition that was silent for `idle_after` of log time, or never had a record, does not count."""
    newest = latest(*(pulse.log_time for pulse in pulses.values()))
    live = [
        pulse.clock
        for pulse in pulses.values()
        if pulse.clock is not None
        and (newest is None or pulse.log_time is None or newest - pulse.log_time <= idle_after)
    ]
    return min(live, default=None)


def arrival_watermark_of(pulses: Mapping[int, Pulse], idle_after: int) -> int | None:
    """The same for windows of ingestion time, where the last record's arrival is the clock."""
    arrivals = {p: Pulse(pulse.log_time, pulse.log_time) for p, pulse in pulses.items()}
    return watermark_of(arrivals, idle_after)
