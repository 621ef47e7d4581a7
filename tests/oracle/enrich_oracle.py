"""What an enriched event must be: the event, and of each table the newest version that was valid at its time.

It looks through all rows of the table for every event, with datetimes, and parses the event as JSON. Events
that wait are a list, which is gone through whenever the table changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True)
class DimensionRow:
    key: str
    valid_from: datetime
    values: Mapping[str, Any]
    valid_to: datetime | None = None


def version_at(rows: Sequence[DimensionRow], key: str, at: datetime) -> DimensionRow | None:
    begun = [row for row in rows if row.key == key and row.valid_from <= at]
    newest = max(begun, key=lambda row: row.valid_from, default=None)
    if newest is not None and newest.valid_to is not None and newest.valid_to <= at:
        return None
    return newest


def enriched(
    event: bytes, rows: Sequence[DimensionRow], *, table: str, on: str, columns: Mapping[str, str], time: str
) -> dict[str, Any]:
    """The event as an object, with the columns and the two fields that say where they came from."""
    given: dict[str, Any] = json.loads(event)
    key = given.get(on)
    found = version_at(rows, key, datetime.fromisoformat(given[time])) if key is not None else None
    added: dict[str, Any] = {
        name: found.values[column] if found else None for name, column in columns.items()
    }
    since = found.valid_from.isoformat().replace("+00:00", "Z") if found else None
    added[f"{table}_valid_from"] = since
    added[f"{table}_found"] = None if key is None else found is not None
    return {**given, **added}


@dataclass(frozen=True)
class Arrived:
    """An event in the log."""

    event: bytes
    partition: int
    offset: int
    log_time: datetime

    def key(self, on: str) -> str | None:
        key: str | None = json.loads(self.event).get(on)
        return key


@dataclass(frozen=True)
class Decided:
    """What became of an event, and the rows of the table at that moment."""

    outcome: str
    rows: Sequence[DimensionRow]


@dataclass(frozen=True)
class Span:
    """A time in which the table does not change: its rows, and what arrives meanwhile."""

    rows: Sequence[DimensionRow]
    arrivals: Sequence[Arrived]


def decisions(
    spans: Sequence[Span], *, horizon: timedelta, on: str, time: str, silence_after: bool
) -> dict[tuple[int, int], Decided]:
    """By partition and offset; an event that is not there still waits.

    An event waits until its arrival plus the horizon, by the log time that all partitions have reached.
    `silence_after`: in the end nothing comes for longer than the horizon.
    """

    def is_known(one: Arrived, rows: Sequence[DimensionRow]) -> bool:
        key, at = one.key(on), datetime.fromisoformat(json.loads(one.event)[time])
        return key is None or version_at(rows, key, at) is not None

    found: dict[tuple[int, int], Decided] = {}
    reached: dict[int, datetime] = {}
    waiting: list[Arrived] = []
    for span in spans:
        for one in [*waiting, *span.arrivals]:
            if is_known(one, span.rows):
                direct = "no_key" if one.key(on) is None else "found"
                outcome = "retried" if one in waiting else direct
                found[one.partition, one.offset] = Decided(outcome, span.rows)
        waiting = [o for o in [*waiting, *span.arrivals] if (o.partition, o.offset) not in found]
        for one in span.arrivals:
            reached[one.partition] = max(one.log_time, reached.get(one.partition, one.log_time))
        for one in list(waiting):
            if one.log_time + horizon <= min(reached.values()):
                found[one.partition, one.offset] = Decided("unknown", span.rows)
                waiting.remove(one)
    for one in waiting if silence_after else ():
        found[one.partition, one.offset] = Decided("unknown", spans[-1].rows)
    return found
