"""Windows over time, as frozen values. All of them are made of panes: a window is a whole number of panes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from headrace.contracts.durations import format_duration, parse_duration
from headrace.errors import UsageError

MICROSECOND = timedelta(microseconds=1)
MOST_WINDOWS = 10_000  # of one event
Time = Literal["event", "ingestion"]


@dataclass(frozen=True)
class Window:
    """`size` is a multiple of `hop`; windows start at multiples of `hop` since 1970, UTC.

    `time` is the event's own time, or the time of its arrival in the log. With a `trigger`, readers see a
    change only when the watermark passes a multiple of it; without one, with every batch.
    """

    size: timedelta
    hop: timedelta
    kind: Literal["tumbling", "sliding", "running"] = "tumbling"
    time: Time = "event"
    trigger: timedelta | None = None

    @property
    def panes(self) -> int:
        """How many windows an event belongs to."""
        return self.size // self.hop

    @property
    def hop_us(self) -> int:
        return self.hop // MICROSECOND

    def __str__(self) -> str:
        every = f" every {format_duration(self.hop)}" if self.kind == "sliding" else ""
        by = " of ingestion time" if self.time == "ingestion" else ""
        return f"{self.kind} {format_duration(self.size)}{every}{by}"


def tumbling(size: str, *, time: Time = "event") -> Window:
    """Windows side by side: `tumbling("1 minute")`."""
    length = _positive(size)
    return Window(length, length, time=_known(time))


def sliding(size: str, *, every: str, time: Time = "event") -> Window:
    """Windows that overlap: `sliding("15 minutes", every="1 minute")`."""
    length, hop = _positive(size), _positive(every)
    if length % hop:
        raise UsageError(
            f"a window of {format_duration(length)} is not a multiple of its hop of {format_duration(hop)}",
            hint="choose an `every` that divides the size, like 15 minutes every 1 minute",
        )
    if length // hop > MOST_WINDOWS:
        raise UsageError(
            f"every event would be in {length // hop:,} windows", hint=f"{MOST_WINDOWS:,} are allowed"
        )
    return Window(length, hop, "sliding", _known(time))


def running(*, reset: str, trigger: str | None = None, time: Time = "event") -> Window:
    """Totals that grow until they start anew: `running(reset="1 day", trigger="10 seconds")`."""
    length = _positive(reset)
    every = None if trigger is None else _positive(trigger, "a trigger")
    if every and length % every:
        raise UsageError(
            f"a reset of {format_duration(length)} is not a multiple of its trigger"
            f" of {format_duration(every)}",
            hint="choose a `trigger` that divides the reset, like 1 day and 10 seconds: the last one before"
            " the reset shows the whole number",
        )
    return Window(length, length, "running", _known(time), every)


def _positive(text: str, what: str = "a window") -> timedelta:
    length = parse_duration(text)
    if not length:
        raise UsageError(f"{what} needs a length", hint='write it like "1 minute"')
    return length


def _known(time: Time) -> Time:
    if time not in ("event", "ingestion"):
        raise UsageError(f"time must be 'event' or 'ingestion', not {time!r}")
    return time
