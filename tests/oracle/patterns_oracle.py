"""Patterns by the book, in plain Python: every run of events is tried, nothing is ever forgotten."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

# ("is", "A") · ("then", [..]) · ("or", [..]) · ("times", part, least, most or None) · ("never", "X", part)
Tree = tuple[Any, ...]


@dataclass(frozen=True)
class Happened:
    """An event as it stands in the log, in the order of arrival; times in microseconds."""

    partition: int
    offset: int
    event_id: str
    event_time: int
    log_time: int
    key: str
    symbols: frozenset[str]


@dataclass
class Raised:
    key: str
    events: tuple[str, ...]
    last: int  # what the quiet time is counted from
    matches: int = 1
    open: bool = True


@dataclass
class Outcome:
    accepted: int = 0
    late: list[str] = field(default_factory=list)  # for the pattern, not for the gate
    raised: list[Raised] = field(default_factory=list)
    watermark: int | None = None


def through_the_gate(log: Sequence[Happened], lateness: int) -> Iterator[tuple[Happened, int | None]]:
    """Accepted events, each with the clock of its partition before it."""
    clocks: dict[int, int] = {}
    for event in log:
        clock = clocks.get(event.partition)
        if clock is None or event.event_time >= clock - lateness:
            yield event, clock
            clocks[event.partition] = max(event.event_time, clock or event.event_time)


def alert_id(app: str, pattern: str, raised: Raised) -> str:
    text = json.dumps([app, pattern, raised.key, *raised.events], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def sequence_outcome(
    tree: Tree, elements: frozenset[str], log: Sequence[Happened], lateness: int, within: int, quiet: int
) -> Outcome:
    """All partitions are awake: the watermark is the least of their clocks."""
    outcome = Outcome()
    clocks: dict[int, int] = {}
    known: dict[str, list[Happened]] = defaultdict(list)
    spent: set[str] = set()
    for event, _ in through_the_gate(log, lateness):
        outcome.accepted += 1
        clocks[event.partition] = max(event.event_time, clocks.get(event.partition, event.event_time))
        if not event.symbols:
            continue
        events = known[event.key]
        events.append(event)
        events.sort(key=lambda e: (e.event_time, e.event_id))
        while match := _first_match(tree, elements, events, spent, within):
            spent |= {e.event_id for e in match}
            _raise(outcome, event.key, tuple(e.event_id for e in match), match[-1].event_time, quiet)
    outcome.watermark = min(clocks.values(), default=None)
    _close(outcome, quiet)
    return outcome


def absence_outcome(
    log: Sequence[Happened], lateness: int, within: int, final_after: int, quiet: int
) -> Outcome:
    outcome = Outcome()
    clocks: dict[int, int] = {}
    taken: list[tuple[Happened, int | None]] = []
    for event, clock in through_the_gate(log, lateness):
        outcome.accepted += 1
        clocks[event.partition] = max(event.event_time, clocks.get(event.partition, event.event_time))
        if not event.symbols:
            continue
        if clock is not None and clock > event.event_time + within + final_after:
            outcome.late.append(event.event_id)
        else:
            taken.append((event, clock))
    watermark = outcome.watermark = min(clocks.values(), default=None)
    starts = [event for event, _ in taken if "START" in event.symbols]
    for start in sorted(starts, key=lambda e: (e.event_time, e.event_id)):
        over = start.event_time + within + final_after
        ended = any(
            "END" in end.symbols
            and end.key == start.key
            and (end.event_time, end.event_id) > (start.event_time, start.event_id)
            and end.event_time <= start.event_time + within
            and (clock is None or clock <= over)
            for end, clock in taken
        )
        if watermark is not None and watermark > over and not ended:
            _raise(outcome, start.key, (start.event_id,), start.event_time, quiet)
    _close(outcome, quiet)
    return outcome


def _raise(outcome: Outcome, key: str, events: tuple[str, ...], last: int, quiet: int) -> None:
    mine = [r for r in outcome.raised if r.key == key and abs(r.last - last) < quiet]
    if mine:
        near = min(mine, key=lambda r: (abs(r.last - last), r.last))
        near.matches += 1
    else:
        outcome.raised.append(Raised(key, events, last))


def _close(outcome: Outcome, quiet: int) -> None:
    for raised in outcome.raised:
        raised.open = outcome.watermark is None or raised.last + quiet > outcome.watermark


def _first_match(
    tree: Tree, elements: frozenset[str], events: list[Happened], spent: set[str], within: int
) -> list[Happened] | None:
    """The earliest beginning, then the longest: every run of neighbours is tried."""
    for begin, first in enumerate(events):
        if not first.symbols & elements or first.event_id in spent:
            continue
        row: list[Happened] = []
        between: list[frozenset[str]] = []
        seen: frozenset[str] = frozenset()
        for event in events[begin:]:
            if event.event_time - first.event_time > within:
                break
            if not event.symbols & elements:
                seen |= event.symbols
                continue
            if event.event_id in spent:
                break
            row.append(event)
            between.append(seen)
            seen = frozenset()
        for length in range(len(row), 0, -1):
            if length in _ends(tree, [e.symbols for e in row[:length]], between, 0):
                return row[:length]
    return None


def _ends(tree: Tree, row: list[frozenset[str]], between: list[frozenset[str]], at: int) -> set[int]:
    """Where a match of the tree that begins at a place may end."""
    match tree:
        case ("is", symbol):
            return {at + 1} if at < len(row) and symbol in row[at] else set()
        case ("then", parts):
            places = {at}
            for part in parts:
                places = {end for place in places for end in _ends(part, row, between, place)}
            return places
        case ("or", parts):
            return {end for part in parts for end in _ends(part, row, between, at)}
        case ("times", part, least, most):
            places, found = {at}, {at} if least == 0 else set()
            for count in range(1, (most if most is not None else least + len(row)) + 1):
                places = {end for place in places for end in _ends(part, row, between, place)}
                if count >= least:
                    found |= places
            return found
        case ("never", symbol, part):
            forbidden = 0 < at < len(row) and symbol in between[at]
            return set() if forbidden else _ends(part, row, between, at)
    raise AssertionError(tree)
