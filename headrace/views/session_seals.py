"""Keys with old events, one event after the other: which sessions are over, which events come too late.

Only times matter here; measures are merged in the store. A session is over for an event if the clock just
before it has passed the session's end and `final_after`. It is sealed then: its pieces get a number and never
meet another event. Events that are no suspects cannot touch such a session, so it is enough to look when a
suspect comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.sessions import Sessions
from headrace.views.session_pieces import SuspectEvent

OPEN = 0  # the number of pieces that are not sealed


@dataclass(frozen=True)
class Span:
    """The events of a key in one cell: when the first and the last of them were."""

    first: int
    last: int


@dataclass
class Sealed:
    """What became of the events and pieces of the keys with suspects."""

    taken: list[tuple[SuspectEvent, int]] = field(default_factory=list)  # with the number of their seal
    late: list[SuspectEvent] = field(default_factory=list)
    pieces: list[tuple[str, int, int]] = field(default_factory=list)  # key, cell, seal, of those in the store


def seal(
    sessions: Sessions, events: Iterable[SuspectEvent], stored: Mapping[str, Mapping[int, Span]]
) -> Sealed:
    """`events` in order of partition and offset; `stored` are the open pieces by key and cell."""
    found = Sealed()
    keys: dict[str, _Key] = {}
    for event in events:
        key = keys.get(event.key)
        if key is None:
            key = keys[event.key] = _Key(sessions, stored.get(event.key, {}))
        key.add(event, found)
    for name, key in keys.items():
        key.finish(name, found)
    return found


@dataclass
class _Piece:
    first: int
    last: int
    is_stored: bool
    events: list[SuspectEvent] = field(default_factory=list)


class _Key:
    """The open pieces of one key while its events come in."""

    def __init__(self, sessions: Sessions, stored: Mapping[int, Span]) -> None:
        self._gap, self._max, self._final = sessions.gap_us, sessions.max_us, sessions.final_us
        self._open = {cell: _Piece(span.first, span.last, True) for cell, span in stored.items()}
        self._sealed: list[tuple[int, int, _Piece]] = []  # seal, cell, piece
        self._seals = OPEN

    def add(self, event: SuspectEvent, found: Sealed) -> None:
        if event.clock is not None and not self._has_room(event, event.clock):
            found.late.append(event)
            return
        piece = self._open.setdefault(event.cell, _Piece(event.event_time, event.event_time, False))
        piece.first, piece.last = min(piece.first, event.event_time), max(piece.last, event.event_time)
        piece.events.append(event)

    def finish(self, name: str, found: Sealed) -> None:
        for number, cell, piece in self._sealed:
            if piece.is_stored:
                found.pieces.append((name, cell, number))
            found.taken += [(event, number) for event in piece.events]
        found.taken += [(event, OPEN) for piece in self._open.values() for event in piece.events]

    def _has_room(self, event: SuspectEvent, clock: int) -> bool:
        """Whether the event belongs to a session that is not over for it, or can be one of its own."""
        touches = False
        for cells in chains([(c, p.first, p.last) for c, p in self._open.items()], self._gap, self._max):
            first, end = self._open[cells[0]].first, self._open[cells[-1]].last + self._gap
            if end + self._final <= clock:
                self._seals += 1
                self._sealed += [(self._seals, cell, self._open.pop(cell)) for cell in cells]
            else:
                touches = touches or first - self._gap <= event.event_time <= end
        return touches or event.event_time + self._gap + self._final > clock


def chains(pieces: Iterable[tuple[int, int, int]], gap: int, max_length: int) -> list[Sequence[int]]:
    """The cells of each session, from pieces (cell, first, last) of one key."""
    found: list[list[int]] = []
    start = end = 0
    for cell, first, last in sorted(pieces):
        if found and first - end <= gap and last - start <= max_length:
            found[-1].append(cell)
        else:
            found.append([cell])
            start = first
        end = last
    return list(found)
