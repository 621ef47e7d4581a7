"""Features of events: what their key did just before. A function of the log, whatever the batches are.

The events of a key are taken in order of arrival. Each looks back at those that arrived before it and
happened in `(t - memory, t]`; a window over them, sorted by time, moves to where it is needed. Sums are
exact, so that what goes in and out again leaves no trace; a burst on one key costs each event a step, not a
scan.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import Any, NamedTuple

from headrace.signals import WITH_MEMORY, Feature

EXACT = Context(prec=80)
NUMERIC = ("sum", "mean", "times_last")
Value = int | float | str | Decimal | None


class Arrived(NamedTuple):
    """An event of a key; `values` are those of the features that look at it, as texts."""

    key: str
    log_time: int | None
    partition: int
    offset: int
    event_time: int
    event_id: str
    values: tuple[str | None, ...]
    is_new: bool


@dataclass(frozen=True)
class FeaturePlan:
    """`features` are those with a memory; one with an expression or a condition has a value in each event."""

    features: tuple[Feature, ...]
    memory: int

    @property
    def valued(self) -> tuple[Feature, ...]:
        return tuple(f for f in self.features if f.expression or f.where)


def features_of(plan: FeaturePlan, events: Iterable[Arrived]) -> dict[tuple[int, int], list[Value]]:
    """The features of the new events, by partition and offset."""
    # Without a log time nobody knows the order across partitions: each is then a world of its own.
    keys: dict[tuple[str, int], list[Arrived]] = defaultdict(list)
    for event in events:
        keys[event.key, -1 if event.log_time is not None else event.partition].append(event)
    found = {}
    for mine in keys.values():
        window = _Window(plan)
        for event in sorted(mine, key=_arrival):
            values = window.parsed(event.values)
            if event.is_new:
                found[event.partition, event.offset] = window.features(event.event_time, values)
            window.insert(event.event_time, event.event_id, values)
    return found


def _arrival(event: Arrived) -> tuple[int, int, int]:
    """The broker stamps log times, so that in a partition they go with the offsets."""
    return (event.log_time or 0, event.partition, event.offset)


class _Window:
    """The events of a key so far in order of time, and the running totals of some neighbours among them."""

    def __init__(self, plan: FeaturePlan) -> None:
        self._plan = plan
        self._slots = _slots(plan)
        self._places: list[tuple[int, str]] = []
        self._values: list[Sequence[Any]] = []
        self._low = self._high = 0
        self._totals = [_total(feature) for feature in plan.valued]

    def parsed(self, values: Sequence[str | None]) -> list[Any]:
        return [
            _decimal(value) if feature.kind in NUMERIC else value
            for feature, value in zip(self._plan.valued, values, strict=True)
        ]

    def insert(self, time: int, event_id: str, values: Sequence[Any]) -> None:
        at = bisect_left(self._places, (time, event_id))
        self._places.insert(at, (time, event_id))
        self._values.insert(at, values)
        if at < self._low:
            self._low, self._high = self._low + 1, self._high + 1
        elif at < self._high:
            self._high += 1
            self._change(at, 1)

    def features(self, time: int, values: Sequence[Any]) -> list[Value]:
        self._move(time)
        return [
            self._feature(feature, slot, time, values)
            for feature, slot in zip(self._plan.features, self._slots, strict=True)
        ]

    def _feature(self, feature: Feature, slot: int | None, time: int, values: Sequence[Any]) -> Value:
        is_first = self._high == self._low
        total = self._totals[slot] if slot is not None else None
        match feature.kind:
            case "count":
                return self._high - self._low if total is None else total.n
            case "sum":
                assert total is not None
                return total.sum if total.n else Decimal(0)
            case "mean":
                assert total is not None
                return float(EXACT.divide(total.sum, Decimal(total.n))) if total.n else None
            case "distinct":
                assert total is not None
                return len(total.values)
            case "times_last":
                assert slot is not None
                last = None if is_first else self._values[self._high - 1][slot]
                return float(EXACT.divide(values[slot], last)) if last and values[slot] is not None else None
            case _:
                return None if is_first else (time - self._places[self._high - 1][0]) / 1_000_000

    def _move(self, time: int) -> None:
        """To the events in `(time - memory, time]`. It grows first, so that it is never torn apart."""
        low = bisect_left(self._places, (time - self._plan.memory + 1,))
        high = bisect_left(self._places, (time + 1,))
        while self._high < high:
            self._change(self._high, 1)
            self._high += 1
        while self._low > low:
            self._low -= 1
            self._change(self._low, 1)
        while self._high > high:
            self._high -= 1
            self._change(self._high, -1)
        while self._low < low:
            self._change(self._low, -1)
            self._low += 1

    def _change(self, at: int, sign: int) -> None:
        for total, value in zip(self._totals, self._values[at], strict=True):
            if value is not None:
                total.change(value, sign)


def _slots(plan: FeaturePlan) -> list[int | None]:
    """Which value of an event each feature looks at."""
    slots: list[int | None] = []
    taken = 0
    for feature in plan.features:
        has_value = bool(feature.expression or feature.where)
        slots.append(taken if has_value else None)
        taken += has_value
    return slots


class _Total:
    """How many values; which and how much, if the feature asks."""

    def __init__(self, adds: bool, counts: bool) -> None:
        self.n, self.sum = 0, Decimal(0)
        self.values: Counter[str] = Counter()
        self._adds, self._counts = adds, counts

    def change(self, value: Any, sign: int) -> None:
        self.n += sign
        if self._adds:
            self.sum = (EXACT.add if sign > 0 else EXACT.subtract)(self.sum, value)
        elif self._counts:
            self.values[value] += sign
            if not self.values[value]:
                del self.values[value]


def _total(feature: Feature) -> _Total:
    return _Total(feature.kind in ("sum", "mean"), feature.kind == "distinct")


def _decimal(text: str | None) -> Decimal | None:
    if text is None:
        return None
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value if value.is_finite() else None


def remembered(features: Iterable[Feature]) -> tuple[Feature, ...]:
    """The features that look at earlier events."""
    return tuple(f for f in features if f.kind in WITH_MEMORY)
