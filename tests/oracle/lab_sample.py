"""Ten minutes of a shop for the lab, always the same; `python -m tests.oracle.lab_sample` writes the files.

09:04 is a promotion: 64 impressions and 5 purchases, a rate that ends in the middle of two digits.
09:06 is an outage: its events come in after 09:07:20, too late for 20 seconds, in time for 120.
The end of 09:08 is quiet, so that events made by hand decide: a tie, an exact limit, a copy with a new time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import TypeVar

from tests.oracle.lab_oracle import expected_csv

FOLDER = Path(__file__).parents[2] / "headrace/templates/lab"
WINDOW, LATENESSES, BY = 60, (0, 20, 120), ("region",)

SEED = 20260101
NINE = datetime(2026, 1, 1, 9, tzinfo=UTC)
LOCAL = timezone(timedelta(hours=5))
PROMOTION, OUTAGE = 4, 6  # minutes after nine
TYPES = {
    "page_view": 0.28,
    "product_impression": 0.38,
    "product_click": 0.16,
    "add_to_cart": 0.08,
    "purchase": 0.07,
    "search": 0.03,
}
REGIONS = {"tashkent": 0.38, "almaty": 0.27, "samarkand": 0.15, "bishkek": 0.12, "astana": 0.08}
PROMOTED = {"product_impression": 64, "product_click": 9, "purchase": 5, "page_view": 4}
# The shortest and the longest delay in seconds, and its share: prompt, mobile, out of reach, forgotten.
DELAYS = {(0.05, 0.9): 0.76, (1.0, 16.0): 0.13, (22.0, 100.0): 0.08, (125.0, 178.0): 0.03}
Choice = TypeVar("Choice")
Event = dict[str, str]


class Sample:
    """Draws with random() only: its sequence is the one that Python promises to keep."""

    def __init__(self) -> None:
        self._rng = Random(SEED)
        self._placed: list[tuple[float, Event]] = []  # place in the file
        self._events: list[tuple[float, float, Event]] = []  # event time, arrival

    def lines(self) -> list[str]:
        for minute in range(10):
            for kind, at in self._minute(minute):
                self._add(kind, at, self._arrival(minute, at))
        self._repeat()
        self._by_hand()
        # Collectors write at their own pace: close to the order of arrival, but not in it.
        ordered = sorted(self._placed, key=lambda placed: placed[0])
        return [json.dumps(event, separators=(",", ":")) for _, event in ordered]

    def _minute(self, minute: int) -> Iterator[tuple[str, float]]:
        """Event types and times in seconds after nine."""
        if minute == PROMOTION:
            kinds = [kind for kind, count in PROMOTED.items() for _ in range(count)]
            yield from ((kind, minute * 60 + self._between(0, 60)) for kind in kinds)
            return
        first, last = {8: (0.0, 30.0), 9: (1.5, 58.0)}.get(minute, (0.0, 60.0))
        for _ in range(int(0.58 * (last - first)) + int(self._between(0, 6))):
            yield self._one_of(TYPES), minute * 60 + self._between(first, last)

    def _arrival(self, minute: int, at: float) -> float:
        if minute == OUTAGE:
            return (OUTAGE + 1) * 60 + self._between(25, 58)
        if minute == PROMOTION:
            return at + (self._between(0.05, 0.9) if self._rng.random() < 0.85 else self._between(1, 15))
        return at + self._between(*self._one_of(DELAYS))

    def _repeat(self) -> None:
        """Copies that a producer sent again because it saw no answer."""
        for number in range(7, len(self._events), 41):
            _, arrival, event = self._events[number]
            again = arrival + self._between(0.3, 45)
            self._place(again, event | {"arrival_time": _written(again)})

    def _by_hand(self) -> None:
        add = self._add
        # On the edge of two windows, and two lags in the middle of two hundredths.
        add("product_impression", 180.0, 180.3)
        add("purchase", 70.0, 246.545, "bishkek")
        add("product_click", 565.0, 628.375, "astana")
        # Late for 0 and 20 seconds, and sent again with a new time: the first arrival has decided.
        lost = add("purchase", 310.0, 400.0, "almaty")
        self._again(lost, 450.0, 450.2)
        # The first event after the outage, which makes all the events in it late for 20 seconds.
        add("page_view", 441.0, 441.4, "tashkent")
        # A tie of arrivals: in the order of the file, the second is late for 20 seconds, by a millisecond.
        add("product_click", 535.0, 536.0, "tashkent", place=536.0)
        add("purchase", 514.999, 536.0, "almaty", place=536.0)
        add("product_impression", 515.0, 537.0, "almaty")
        # A copy with a new time must not move the clock: those after it are just in time.
        self._again(self._events[30][2], 539.9, 539.95)
        add("product_impression", 538.0, 540.2, "samarkand")
        add("purchase", 518.0, 540.3, "samarkand")

    def _add(
        self, kind: str, at: float, arrival: float, region: str = "", place: float | None = None
    ) -> Event:
        event = {
            "event_id": f"evt-{len(self._events) + 1:04d}",
            "event_type": kind,
            "event_time": _written(at, local=self._rng.random() < 0.1),
            "arrival_time": _written(arrival),
            "user_id": f"u-{int(self._between(1, 81)):03d}",
            "region": region or self._one_of(REGIONS),
        }
        self._events.append((at, arrival, event))
        self._place(arrival, event, place)
        return event

    def _again(self, event: Event, at: float, arrival: float) -> None:
        self._place(arrival, event | {"event_time": _written(at), "arrival_time": _written(arrival)})

    def _place(self, arrival: float, event: Event, place: float | None = None) -> None:
        self._placed.append((arrival + self._between(0, 25) if place is None else place, event))

    def _between(self, low: float, high: float) -> float:
        return round(low + self._rng.random() * (high - low), 3)

    def _one_of(self, shares: Mapping[Choice, float]) -> Choice:
        luck = self._rng.random() * sum(shares.values())
        for choice, share in shares.items():
            luck -= share
            if luck < 0:
                return choice
        return choice


def _written(seconds: float, local: bool = False) -> str:
    moment = NINE + timedelta(milliseconds=round(seconds * 1000))
    if local:
        return moment.astimezone(LOCAL).isoformat(timespec="milliseconds")
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def files() -> dict[str, str]:
    """The name and the text of every file of the sample."""
    lines = Sample().lines()
    results = {f"expected-{late}.csv": expected_csv(lines, WINDOW, late, BY) for late in LATENESSES}
    return {"events.jsonl": "".join(f"{line}\n" for line in lines)} | results


if __name__ == "__main__":
    for name, text in files().items():
        (FOLDER / name).write_text(text)
