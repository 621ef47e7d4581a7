"""What sessions must say, recomputed one event at a time in plain Python.

It shares no code with the product: every session keeps all its events, and every event looks at all sessions
of its key. Times are microseconds since 1970. A test hands both the same events, in the same batches.

Where the rules leave a choice, the oracle chooses:
- a filtered event, and one without a key, moves the clock of its partition, as every accepted event does;
- a chain that is longer than `max_length` is cut between cells (multiples of the gap since 1970);
- a session that is over for an event (the clock before it has passed the session's end and `final_after`) is
  over for all that follow;
- a session takes over from those of the batch before whose first events it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.oracle.metrics_oracle import Event

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class SessionSpec:
    key: str
    gap: int
    max_length: int
    preliminary_after: int
    final_after: int
    measures: Mapping[str, Callable[[list[Fields]], Any]]  # of the events in order of time
    where: Callable[[Fields], bool | None] | None = None


class SessionRow(NamedTuple):
    key: str
    start: int
    last: int
    events: int
    state: str
    revision: int
    values: tuple[Any, ...]


class LateEvent(NamedTuple):
    event_id: str
    partition: int
    offset: int
    event_time: int
    window_end: int
    clock: int
    how_late: int
    reason: str


@dataclass
class Counts:
    accepted: int
    counted: int = 0
    filtered: int = 0
    late: int = 0


@dataclass(frozen=True)
class Outcome:
    rows: list[SessionRow]
    late: list[LateEvent]
    counts: list[Counts]


@dataclass(eq=False)
class _Session:
    events: list[Event]
    over: bool = False
    state: str = "open"
    revision: int = 0

    @property
    def first(self) -> Event:
        return self.events[0]

    @property
    def last(self) -> int:
        return self.events[-1].event_time


@dataclass
class _Key:
    """The sessions of a key that are over, and the events of all others, in order of time."""

    over: list[_Session] = field(default_factory=list)
    open: list[Event] = field(default_factory=list)


class Oracle:
    def __init__(self, spec: SessionSpec, idle_after: int) -> None:
        self._spec, self._idle_after = spec, idle_after
        self._clocks: dict[int, int] = {}
        self._log_times: dict[int, int] = {}
        self._watermark: int | None = None
        self._keys: dict[str, _Key] = {}
        self._rows: dict[str, list[_Session]] = {}
        self._late: list[LateEvent] = []
        self._counts: list[Counts] = []

    def batch(self, events: Sequence[Event], silence: int = 0) -> None:
        counts = Counts(len(events))
        self._counts.append(counts)
        for event in sorted(events, key=lambda e: (e.partition, e.offset)):
            self._one(event, counts)
        self._show()
        self._move_watermark()
        self._age()
        if silence > self._idle_after and self._watermark is not None:
            self._watermark += silence - self._idle_after
            self._age()

    def outcome(self) -> Outcome:
        rows = [self._row(key, session) for key, found in self._rows.items() for session in found]
        return Outcome(sorted(rows, key=repr), sorted(self._late), self._counts)

    def _one(self, event: Event, counts: Counts) -> None:
        spec, partition, at = self._spec, event.partition, event.event_time
        own = self._clocks.get(partition)
        self._clocks[partition] = at if own is None else max(own, at)
        before = self._log_times.get(partition, event.log_time)
        self._log_times[partition] = max(before, event.log_time)
        name = event.fields.get(spec.key)
        if name is None or (spec.where is not None and not spec.where(event.fields)):
            counts.filtered += 1
            return
        known = [clock for clock in (own, self._watermark) if clock is not None]
        clock = max(known, default=None)
        key = self._keys.setdefault(name, _Key())
        if clock is not None:
            self._close(key, clock)
            touched = any(
                s.first.event_time - spec.gap <= at <= s.last + spec.gap for s in self._sessions(key.open)
            )
            ends = at + spec.gap + spec.final_after
            if not touched and ends <= clock:
                counts.late += 1
                reason = "late" if own is not None and ends <= own else "idle_wake"
                self._late.append(
                    LateEvent(
                        *(event.event_id, partition, event.offset, at, at + spec.gap),
                        *(clock, clock - ends, reason),
                    )
                )
                return
        counts.counted += 1
        key.open.append(event)
        key.open.sort(key=lambda e: (e.event_time, e.partition, e.offset))

    def _close(self, key: _Key, clock: int) -> None:
        kept: list[Event] = []
        for session in self._sessions(key.open):
            if session.last + self._spec.gap + self._spec.final_after <= clock:
                session.over = True
                key.over.append(session)
            else:
                kept += session.events
        key.open = kept

    def _sessions(self, events: list[Event]) -> list[_Session]:
        gap = self._spec.gap
        chains: list[list[Event]] = []
        for event in events:
            if chains and event.event_time - chains[-1][-1].event_time <= gap:
                chains[-1].append(event)
            else:
                chains.append([event])
        return [session for chain in chains for session in self._cut(chain)]

    def _cut(self, chain: list[Event]) -> list[_Session]:
        """By whole cells: one that would make its session too long begins the next."""
        cells: dict[int, list[Event]] = {}
        for event in chain:
            cells.setdefault(event.event_time // self._spec.gap, []).append(event)
        found: list[_Session] = []
        for events in cells.values():
            fits = found and events[-1].event_time - found[-1].first.event_time <= self._spec.max_length
            if fits:
                found[-1].events += events
            else:
                found.append(_Session(list(events)))
        return found

    def _show(self) -> None:
        """The rows after a batch, which take over states and revisions from those before it."""
        for name, key in self._keys.items():
            before = self._rows.get(name, [])
            now = [*key.over, *self._sessions(key.open)]
            for row in before:
                if row.state == "final":
                    assert any(set(_ids(row)) == set(_ids(s)) for s in now), "a final row never changes"
            for session in now:
                mine = [row for row in before if id(row.first) in {id(e) for e in session.events}]
                published = [row for row in mine if row.state != "open"]
                same = next((row for row in mine if _ids(row) == _ids(session)), None)
                if same is not None:
                    session.state, session.revision = same.state, same.revision
                elif published:
                    assert all(row.state != "final" for row in published)
                    session.state = "corrected"
                    session.revision = max(row.revision for row in published) + 1
            self._rows[name] = now

    def _move_watermark(self) -> None:
        if not self._clocks:
            return
        newest = max(self._log_times.values())
        live = [p for p, log_time in self._log_times.items() if newest - log_time <= self._idle_after]
        lowest = min(self._clocks[p] for p in live)
        self._watermark = lowest if self._watermark is None else max(self._watermark, lowest)

    def _age(self) -> None:
        if self._watermark is None:
            return
        for key in self._keys.values():
            self._close(key, self._watermark)
        for session in (session for found in self._rows.values() for session in found):
            end = session.last + self._spec.gap
            if session.state == "open" and end + self._spec.preliminary_after <= self._watermark:
                session.state, session.revision = "preliminary", 1
            if end + self._spec.final_after <= self._watermark:
                session.state, session.revision = "final", max(session.revision, 1)

    def _row(self, key: str, session: _Session) -> SessionRow:
        fields = [event.fields for event in session.events]
        values = tuple(measure(fields) for measure in self._spec.measures.values())
        first, last = session.first.event_time, session.last
        return SessionRow(key, first, last, len(fields), session.state, session.revision, values)


def _ids(session: _Session) -> list[str]:
    return [event.event_id for event in session.events]
