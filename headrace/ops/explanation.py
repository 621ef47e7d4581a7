"""One number of a metric and where it comes from, as plain frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

WHY = {
    "late": "the clock of its partition had passed the window's end and final_after",
    "idle_wake": "the window had become final while its partition was silent",
}


class Event(NamedTuple):
    """An accepted event where it lies in the raw topic; events compare by their arrival."""

    arrived: datetime
    partition: int
    offset: int
    event_time: datetime
    event_id: str


@dataclass(frozen=True)
class Missed:
    """An event that came too late for this window. `arrived` is None where it has left the topic."""

    event_id: str
    partition: int
    offset: int
    event_time: datetime
    arrived: datetime | None
    reason: str
    late_by: timedelta
    clock: datetime


@dataclass(frozen=True)
class Revision:
    """The row as it was published, and when."""

    revision: int
    state: str
    at: datetime
    watermark: datetime | None
    values: dict[str, Any]


@dataclass(frozen=True)
class Explanation:
    """`found` events are in the topic; `events` are the first of them, in the order of arrival."""

    metric: str
    source: str
    window_start: datetime
    window_end: datetime
    by: dict[str, str]
    row: dict[str, Any]
    events: tuple[Event, ...]
    found: int
    missed: tuple[Missed, ...]
    revisions: tuple[Revision, ...]
    remarks: tuple[str, ...]  # where the lists and the row do not agree

    @property
    def complete(self) -> bool:
        """Whether the events that were found are exactly those that the row counts."""
        return not self.remarks

    def to_json(self) -> dict[str, Any]:
        document = {
            "metric": self.metric,
            "source": self.source,
            "window_start": self.window_start,
            "window_end": self.window_end,
            "by": self.by,
            "row": self.row,
            "found": self.found,
            "events": [dict(reversed(event._asdict().items())) for event in self.events],
            "missed": [vars(missed) for missed in self.missed],
            "revisions": [vars(revision) for revision in self.revisions],
            "complete": self.complete,
            "remarks": self.remarks,
        }
        return {name: _plain(value) for name, value in document.items()}


def shown_time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    """Without what JSON has no word for: times are texts, spans of time are seconds."""
    match value:
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case datetime():
            return shown_time(value)
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)
