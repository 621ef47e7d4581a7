"""Looking for a sequence in the events of one key, each time that one of them arrives."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.flows.automaton import Automaton


@dataclass(slots=True)
class Moment:
    """An event that a pattern remembers; `at` in microseconds, `mask` the symbols that it fulfils."""

    at: int
    event_id: str
    mask: int
    used: bool
    partition: int
    offset: int
    shown: str | None = None


class Search:
    """The rule of one pattern.

    Events stand in the order of their times, then of their ids. A match is a row of events that fulfil an
    element of the sequence, with no other such event between them, all within `within`. It uses its events
    up, and no later match reaches across them. When an event arrives, a match must contain it: any other
    would have been found before. Of several, the one that begins first counts, then the longest.
    """

    def __init__(self, automaton: Automaton, elements: int, within: int) -> None:
        self._automaton, self._elements, self._within = automaton, elements, within

    def arrive(self, known: list[Moment], arrivals: Iterable[Moment]) -> list[list[Moment]]:
        """Put the arrivals among the known events, one by one; returns the matches, marked as used."""
        found = []
        for moment in arrivals:
            index = bisect_left(known, place_of(moment), key=place_of)
            known.insert(index, moment)
            if moment.mask & self._elements:
                match = self._around(known, index)
                if match is not None:
                    for part in match:
                        part.used = True
                    found.append(match)
        return found

    def _around(self, known: list[Moment], index: int) -> list[Moment] | None:
        latest = known[index].at + self._within
        first, last = index + 1, -1
        for end in range(index, len(known)):
            moment = known[end]
            if moment.at > latest:
                break
            if moment.mask & self._elements:
                if moment.used:
                    break
                start = self._start(known, end, index)
                if start is not None and start <= first:
                    first, last = start, end
        if last < 0:
            return None
        return [moment for moment in known[first : last + 1] if moment.mask & self._elements]

    def _start(self, known: list[Moment], end: int, index: int) -> int | None:
        """Where the longest match begins that ends with `end` and contains `index`."""
        automaton, elements = self._automaton, self._elements
        oldest = known[end].at - self._within
        states = automaton.begin(known[end].mask)
        found = None
        place, between = end, 0
        while states:
            if place <= index and automaton.can_start(states):
                found = place
            between = 0
            while True:
                place -= 1
                if place < 0 or known[place].at < oldest:
                    return found
                moment = known[place]
                if moment.mask & elements:
                    break
                between |= moment.mask
            if moment.used:
                return found
            states = automaton.step(states, moment.mask, between)
        return found


def place_of(moment: Moment) -> tuple[int, str]:
    """Its place in the order of events."""
    return moment.at, moment.event_id
