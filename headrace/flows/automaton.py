"""A sequence as an automaton that reads events backwards, from the last one of a match to the first.

Each place of a symbol is a state (Glushkov's construction); a set of states is one integer, and each step
from a set is computed once. Backwards, because the newest event is the one that may complete a match: most
events are no possible end, and are done after one look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.sequences import Choice, Guarded, Node, Repeat, Series, Symbol

MOST_STATES = 5_000
MOST_LINKS = 200_000
_MOST_KEPT = 50_000


class TooLongError(Exception):
    """The sequence has more places for events than we compute with."""


@dataclass(frozen=True)
class _Part:
    """Where it may begin, each place with what must not come just before it, and where it may end."""

    entries: dict[int, set[int]]
    exits: set[int]
    optional: bool


@dataclass
class _Builder:
    bits: Mapping[str, int]
    symbols: list[int] = field(default_factory=list)  # the bit that each place wants
    before: list[dict[int, set[int]]] = field(default_factory=list)  # place → earlier place → forbidden bits
    links: int = 0

    def build(self, node: Node) -> _Part:
        match node:
            case Symbol(name):
                return self._place(self.bits[name])
            case Series(parts):
                whole = _Part({}, set(), True)
                for part in parts:
                    whole = self._then(whole, self.build(part))
                return whole
            case Choice(options):
                made = [self.build(option) for option in options]
                entries = {place: never for part in made for place, never in part.entries.items()}
                exits = set().union(*(part.exits for part in made))
                return _Part(entries, exits, any(part.optional for part in made))
            case Repeat(part, least, most):
                return self._repeat(part, least, most)
            case Guarded(part, never):
                made_part = self.build(part)
                forbidden = sum(self.bits[name] for name in never)
                entries = {place: {f | forbidden for f in fs} for place, fs in made_part.entries.items()}
                return _Part(entries, made_part.exits, made_part.optional)

    def _place(self, bit: int) -> _Part:
        if len(self.symbols) >= MOST_STATES:
            raise TooLongError
        place = len(self.symbols)
        self.symbols.append(bit)
        self.before.append({})
        return _Part({place: {0}}, {place}, False)

    def _then(self, first: _Part, second: _Part) -> _Part:
        self._link(first, second)
        entries = dict(first.entries) | (second.entries if first.optional else {})
        exits = second.exits | (first.exits if second.optional else set())
        return _Part(entries, exits, first.optional and second.optional)

    def _link(self, first: _Part, second: _Part) -> None:
        self.links += len(first.exits) * len(second.entries)
        if self.links > MOST_LINKS:
            raise TooLongError
        for place, never in second.entries.items():
            for earlier in first.exits:
                self.before[place].setdefault(earlier, set()).update(never)

    def _repeat(self, part: Node, least: int, most: int | None) -> _Part:
        whole = _Part({}, set(), True)
        for _ in range(least if most is not None else max(least - 1, 0)):
            whole = self._then(whole, self.build(part))
        if most is None:
            last = self.build(part)
            self._link(last, last)
            return self._then(whole, last if least else _Part(last.entries, last.exits, True))
        tail = _Part({}, set(), True)
        for _ in range(most - least):  # from the inside: a (a (a)?)?
            inner = self.build(part)
            joined = self._then(inner, tail)
            tail = _Part(joined.entries, joined.exits, True)
        return self._then(whole, tail)


class Automaton:
    """`begin` with the last event of a match, `step` to those before it, until one `can_start` it."""

    def __init__(self, tree: Node, bits: Mapping[str, int]) -> None:
        builder = _Builder(bits)
        whole = builder.build(tree)
        self._symbols, self._before = builder.symbols, builder.before
        self._starts = _set_of(whole.entries)
        self._ends = _set_of(whole.exits)
        self._guards = 0
        for edges in self._before:
            for never in edges.values():
                for forbidden in never:
                    self._guards |= forbidden
        self._fitting: dict[int, int] = {}
        self._steps: dict[tuple[int, int, int], int] = {}

    def begin(self, mask: int) -> int:
        """The states after the last event; `mask` are the symbols that it fulfils."""
        return self._ends & self._fits(mask)

    def step(self, states: int, mask: int, between: int) -> int:
        """The states after one event more; `between` are the symbols of what lies between the two."""
        key = (states, mask, between & self._guards)
        found = self._steps.get(key)
        if found is None:
            if len(self._steps) >= _MOST_KEPT:
                self._steps.clear()
            found = self._steps[key] = self._earlier(states, between) & self._fits(mask)
        return found

    def can_start(self, states: int) -> bool:
        return bool(states & self._starts)

    def _earlier(self, states: int, between: int) -> int:
        found = 0
        while states:
            place = states.bit_length() - 1
            states ^= 1 << place
            for earlier, never in self._before[place].items():
                if any(forbidden & between == 0 for forbidden in never):
                    found |= 1 << earlier
        return found

    def _fits(self, mask: int) -> int:
        found = self._fitting.get(mask)
        if found is None:
            places = (place for place, bit in enumerate(self._symbols) if bit & mask)
            found = self._fitting[mask] = _set_of(places)
        return found


def _set_of(places: Iterable[int]) -> int:
    found = 0
    for place in places:
        found |= 1 << place
    return found
