"""What the lab must answer, recomputed one event at a time in plain Python with whole numbers.

Every line is a valid event: what the gate would reject is not this oracle's question. An event without the
field that is grouped by is counted in 'all' only.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.oracle.moments import micros_of

SECOND = 1_000_000
HEADER = (
    "window_start,window_end,dimension,impressions,clicks,purchases,conversion_rate,"
    "late_events_dropped,total_events_seen,max_event_lag_seconds"
)


@dataclass
class Tally:
    impressions: int = 0
    clicks: int = 0
    purchases: int = 0
    late: int = 0
    seen: int = 0
    lag: int | None = None


Tallies = dict[tuple[int, str], Tally]  # by start of the window in seconds, and dimension


def expected_csv(lines: Iterable[str], window: int, lateness: int, by: Sequence[str] = ()) -> str:
    text = io.StringIO()
    text.write(f"{HEADER}\n")
    writer = csv.writer(text, lineterminator="\n")
    for (start, dimension), tally in sorted(tallies(lines, window, lateness, by).items()):
        assert tally.lag is not None
        writer.writerow(
            [
                _utc(start),
                _utc(start + window),
                dimension,
                tally.impressions,
                tally.clicks,
                tally.purchases,
                half_even(tally.purchases, tally.impressions or 1, 5) if tally.impressions else "0.00000",
                tally.late,
                tally.seen,
                half_even(tally.lag, SECOND, 2),
            ]
        )
    return text.getvalue()


def tallies(lines: Iterable[str], window: int, lateness: int, by: Sequence[str] = ()) -> Tallies:
    events = [json.loads(line) for line in lines if line.strip()]
    events.sort(key=lambda event: _at(event["arrival_time"]))  # stable: ties stay in the order of the file
    found: Tallies = {}
    known: set[str] = set()
    newest: int | None = None
    for event in events:
        if event["event_id"] in known:
            continue
        known.add(event["event_id"])
        at = _at(event["event_time"])
        late = newest is not None and at < newest - lateness * SECOND
        if not late:
            newest = at if newest is None else max(newest, at)
        start = at // (window * SECOND) * window
        values = [(field, event.get(field)) for field in by]
        for dimension in ["all", *(f"{field}={value}" for field, value in values if value is not None)]:
            _count(found.setdefault((start, dimension), Tally()), event, late)
    return found


def half_even(numerator: int, denominator: int, digits: int) -> str:
    """The quotient with so many decimals; from the middle it goes to the even digit."""
    unit = 10**digits
    whole, rest = divmod(numerator * unit, denominator)
    if 2 * rest > denominator or (2 * rest == denominator and whole % 2):
        whole += 1
    return f"{'-' if whole < 0 else ''}{abs(whole) // unit}.{abs(whole) % unit:0{digits}d}"


def _count(tally: Tally, event: dict[str, str], late: bool) -> None:
    lag = _at(event["arrival_time"]) - _at(event["event_time"])
    tally.seen += 1
    tally.lag = lag if tally.lag is None else max(tally.lag, lag)
    if late:
        tally.late += 1
    elif event["event_type"] == "product_impression":
        tally.impressions += 1
    elif event["event_type"] == "product_click":
        tally.clicks += 1
    elif event["event_type"] == "purchase":
        tally.purchases += 1


def _at(text: str) -> int:
    at = micros_of(text)
    assert at is not None, text
    return at


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
