"""What a join must say, recomputed in plain Python from all events at once.

It shares no code with the join and no idea with its implementation. A first pass walks through the batches
and finds, from the clocks of the partitions, the bound of each source (watermark less lateness) and the
events that came behind it. A second pass looks at the events that are left as at two finished sets, key by
key, and fills the grid of lefts and rights from its definition. Times are microseconds since 1970.

Where the rules leave a choice, the oracle chooses:
- a cell is looked at only if both events are certain: always, where the order is that of the log; once both
  are before the bounds of their sources, where it is that of event times;
- a pair that fails a check is a dead letter for each cell that was looked at, and uses up nobody;
- an event that leaves without a match is unmatched, and a dead letter of its own if no pair told of it;
- an event without a key is unmatched at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")


@dataclass(frozen=True)
class Event:
    partition: int
    offset: int
    event_id: str
    event_time: int
    log_time: int
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SideSpec:
    source: str
    key: Callable[[Mapping[str, Any]], str | None]
    lateness: int
    idle_after: int
    where: Callable[[Mapping[str, Any]], bool] = lambda _: True
    unmatched: str | None = "none"


@dataclass(frozen=True)
class JoinSpec:
    left: SideSpec
    right: SideSpec
    within: int
    kind: Literal["one_to_one", "one_to_many", "first_match"]
    order: Literal["log", "event_time"]
    check: Callable[[Mapping[str, Any], Mapping[str, Any]], str | None] = lambda _l, _r: None

    def side(self, side: Side) -> SideSpec:
        return self.left if side == "left" else self.right


@dataclass(frozen=True)
class Batch:
    """Events of one source; without any, silence of so many microseconds after its last batch."""

    source: str
    events: Sequence[Event] = ()
    silence: int = 0


@dataclass
class Outcome:
    matches: set[tuple[str, str]] = field(default_factory=set)  # ids
    letters: set[tuple[str, str | None, str | None]] = field(default_factory=set)  # reason, left, right
    late: dict[Side, set[str]] = field(default_factory=lambda: {"left": set(), "right": set()})
    taken: dict[Side, int] = field(default_factory=lambda: {"left": 0, "right": 0})
    matched: dict[Side, int] = field(default_factory=lambda: {"left": 0, "right": 0})
    unmatched: dict[Side, int] = field(default_factory=lambda: {"left": 0, "right": 0})
    pending: dict[Side, int] = field(default_factory=lambda: {"left": 0, "right": 0})


class _Source:
    def __init__(self, spec: SideSpec) -> None:
        self.spec = spec
        self.clocks: dict[int, int] = {}
        self.heard: dict[int, int] = {}
        self.watermark: int | None = None
        self.base: int | None = None

    def hear(self, events: Sequence[Event]) -> None:
        for event in events:
            p = event.partition
            self.clocks[p] = max(event.event_time, self.clocks.get(p, event.event_time))
            self.heard[p] = max(event.log_time, self.heard.get(p, event.log_time))
        newest = max(self.heard.values())
        live = [c for p, c in self.clocks.items() if newest - self.heard[p] <= self.spec.idle_after]
        self._move(min(live))
        self.base = self.watermark

    def keep_silent(self, microseconds: int) -> None:
        if self.base is not None and microseconds > self.spec.idle_after:
            self._move(self.base + microseconds - self.spec.idle_after)

    def _move(self, watermark: int) -> None:
        self.watermark = watermark if self.watermark is None else max(self.watermark, watermark)

    @property
    def bound(self) -> int | None:
        return None if self.watermark is None else self.watermark - self.spec.lateness


def outcome(spec: JoinSpec, batches: Sequence[Batch]) -> Outcome:
    result = Outcome()
    sources = {s: _Source(spec.side(s)) for s in SIDES}
    there: dict[Side, list[Event]] = {"left": [], "right": []}
    for batch in batches:
        for side in SIDES:
            if spec.side(side).source != batch.source:
                continue
            source = sources[side]
            for event in batch.events:
                if not spec.side(side).where(event.fields):
                    continue
                result.taken[side] += 1
                if source.bound is not None and event.event_time < source.bound:
                    result.late[side].add(event.event_id)
                else:
                    there[side].append(event)
            if batch.events:
                source.hear(batch.events)
            else:
                source.keep_silent(batch.silence)
    bounds = {s: sources[s].bound for s in SIDES}
    keyed: dict[Side, dict[str, list[Event]]] = {"left": defaultdict(list), "right": defaultdict(list)}
    for side in SIDES:
        for event in there[side]:
            key = spec.side(side).key(event.fields)
            if key is None:
                result.unmatched[side] += 1
                result.letters.add(_alone("no_key", side, event))
            else:
                keyed[side][key].append(event)
    for key in {*keyed["left"], *keyed["right"]}:
        _decide(spec, keyed["left"][key], keyed["right"][key], bounds, result)
    return result


def _decide(
    spec: JoinSpec,
    lefts: list[Event],
    rights: list[Event],
    bounds: Mapping[Side, int | None],
    result: Outcome,
) -> None:
    def place(event: Event) -> tuple[Any, ...]:
        if spec.order == "log":
            return (event.partition, event.offset)
        return (event.event_time, event.event_id, event.partition, event.offset)

    def certain(side: Side, event: Event) -> bool:
        bound = bounds[side]
        at_once = spec.order == "log" or spec.kind == "one_to_many"
        return at_once or (bound is not None and event.event_time < bound)

    matched: dict[Side, set[tuple[int, int]]] = {"left": set(), "right": set()}
    failed: dict[Side, set[tuple[int, int]]] = {"left": set(), "right": set()}
    for left in sorted(lefts, key=place):
        for right in sorted(rights, key=place):
            if abs(left.event_time - right.event_time) > spec.within:
                continue
            if not (certain("left", left) and certain("right", right)):
                continue
            at = {"left": (left.partition, left.offset), "right": (right.partition, right.offset)}
            if spec.left.source == spec.right.source and at["left"] == at["right"]:
                continue
            if spec.kind != "one_to_many" and at["left"] in matched["left"]:
                continue
            if spec.kind == "one_to_one" and at["right"] in matched["right"]:
                continue
            reason = spec.check(left.fields, right.fields)
            if reason is None:
                result.matches.add((left.event_id, right.event_id))
            else:
                result.letters.add((reason, left.event_id, right.event_id))
            for side in SIDES:
                (matched if reason is None else failed)[side].add(at[side])
    for side, events in (("left", lefts), ("right", rights)):
        theirs = bounds["right" if side == "left" else "left"]
        for event in events:
            at_ = (event.partition, event.offset)
            over = theirs is not None and event.event_time + spec.within < theirs
            if at_ in matched[side]:
                result.matched[side] += 1
            elif over and certain(side, event):
                result.unmatched[side] += 1
                reason = spec.side(side).unmatched
                if reason is not None and at_ not in failed[side]:
                    result.letters.add(_alone(reason, side, event))
            else:
                result.pending[side] += 1


def _alone(reason: str, side: Side, event: Event) -> tuple[str, str | None, str | None]:
    return (reason, event.event_id, None) if side == "left" else (reason, None, event.event_id)
