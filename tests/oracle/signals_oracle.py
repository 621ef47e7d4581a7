"""What the features and decisions of signals must be, one event at a time in plain Python.

For every event it looks through all events of its key again: those that arrived before it, by (log time,
partition, offset), and happened within the memory. Slow, and free of any idea of batches, pruning or windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from tests.oracle.metrics_oracle import Event

Kind = Literal["count", "sum", "mean", "distinct", "times_last", "seconds_since_last", "own"]
Fields = Mapping[str, Any]


@dataclass(frozen=True)
class FeatureSpec:
    kind: Kind
    value: Callable[[Fields], Any] = lambda _: 1
    where: Callable[[Fields], bool] = lambda _: True


@dataclass(frozen=True)
class SignalSpec:
    key: str
    memory: int
    features: Mapping[str, FeatureSpec]
    score: Callable[[Mapping[str, Any]], float | None]
    decisions: Mapping[str, float]
    where: Callable[[Fields], bool] = lambda _: True


@dataclass(frozen=True)
class Scored:
    features: dict[str, Any]
    score: float | None
    decision: str


def scored(spec: SignalSpec, events: Sequence[Event]) -> dict[str, Scored]:
    """By event id. The order in which the events are given means nothing."""
    mine = [e for e in events if e.fields.get(spec.key) is not None and spec.where(e.fields)]
    found = {}
    for event in mine:
        before = [
            e
            for e in mine
            if e.fields[spec.key] == event.fields[spec.key]
            and (e.log_time, e.partition, e.offset) < (event.log_time, event.partition, event.offset)
            and event.event_time - spec.memory < e.event_time <= event.event_time
        ]
        features = {name: _feature(f, event, before) for name, f in spec.features.items()}
        score = spec.score(features)
        reached = [d for d, limit in spec.decisions.items() if score is not None and score >= limit]
        decision = max(reached, key=lambda d: spec.decisions[d], default="allow")
        found[event.event_id] = Scored(features, score, decision)
    return found


def _feature(spec: FeatureSpec, event: Event, before: list[Event]) -> Any:
    chosen = [spec.value(e.fields) for e in before if spec.where(e.fields)]
    values = [value for value in chosen if value is not None]
    last = max(before, key=lambda e: (e.event_time, e.event_id), default=None)
    match spec.kind:
        case "own":
            return spec.value(event.fields)
        case "count":
            return len(values)
        case "sum":
            return sum(map(Fraction, values), Fraction(0))
        case "mean":
            return float(sum(map(Fraction, values), Fraction(0)) / len(values)) if values else None
        case "distinct":
            return len(set(values))
        case "times_last":
            now, then = spec.value(event.fields), spec.value(last.fields) if last else None
            return float(Fraction(now) / Fraction(then)) if now is not None and then else None
        case "seconds_since_last":
            return (event.event_time - last.event_time) / 1e6 if last else None
