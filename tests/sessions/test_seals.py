"""Hundreds of small streams: to look at sessions only when a suspect comes is as good as to look every time.

The store is played by a dictionary here; spans of sessions and late events must be the oracle's.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from headrace import App, count
from headrace.views.session_pieces import SuspectEvent
from headrace.views.session_seals import OPEN, Span, chains, seal
from tests.oracle.metrics_oracle import Event
from tests.oracle.sessions_oracle import Oracle, SessionSpec

UNIT = 1_000_000
VISITS = App("seals").sessions(
    "visits",
    of="sales",
    key="who",
    gap="10 seconds",
    max_length="25 seconds",
    measures={"n": count()},
    final_after="5 seconds",
)
GAP, LONGEST, FINAL = VISITS.gap_us, VISITS.max_us, VISITS.final_us
SPEC = SessionSpec("who", GAP, LONGEST, 0, FINAL, {})
Pieces = dict[str, dict[int, Span]]


class Played:
    """The reducer and the store, without measures."""

    def __init__(self, idle_after: int) -> None:
        self.clocks: dict[int, int] = {}
        self.watermark: int | None = None
        self.pieces: Pieces = {}
        self.sealed: list[tuple[str, int, int]] = []
        self.late: list[str] = []
        self._idle_after = idle_after

    def batch(self, events: list[Event]) -> None:
        found: list[SuspectEvent] = []
        for e in sorted(events, key=lambda e: (e.partition, e.offset)):
            own = self.clocks.get(e.partition)
            clock = max((c for c in (own, self.watermark) if c is not None), default=None)
            is_suspect = clock is not None and e.event_time + FINAL <= clock
            at, who = e.event_time, e.fields["who"]
            place = (e.partition, e.offset, e.event_id, at)
            found.append(SuspectEvent(*place, clock if is_suspect else None, own, who, at - at % GAP, ""))
            self.clocks[e.partition] = at if own is None else max(own, at)
        apart = {e.key for e in found if e.clock is not None}
        for e in found:
            if e.key not in apart:
                self._add(e.key, e.cell, e.event_time)
        mine = [e for e in found if e.key in apart]
        became = seal(VISITS, mine, {key: dict(self.pieces.get(key, {})) for key in apart})
        self.late += [e.event_id for e in became.late]
        over: dict[tuple[str, int], list[int]] = {}
        for key, cell, number in became.pieces:
            span = self.pieces[key].pop(cell)
            over.setdefault((key, number), []).extend((span.first, span.last))
        for e, number in became.taken:
            if number == OPEN:
                self._add(e.key, e.cell, e.event_time)
            else:
                over.setdefault((e.key, number), []).append(e.event_time)
        self.sealed += [(key, min(times), max(times)) for (key, _), times in over.items()]
        moved = min(self.clocks.values())
        self.watermark = moved if self.watermark is None else max(moved, self.watermark)
        self._finish(self.watermark)

    def rows(self) -> list[tuple[str, int, int]]:
        live = [(key, first, last) for key in self.pieces for first, last in self._spans(key).values()]
        return sorted(self.sealed + live)

    def _add(self, key: str, cell: int, at: int) -> None:
        mine = self.pieces.setdefault(key, {})
        span = mine.get(cell, Span(at, at))
        mine[cell] = Span(min(span.first, at), max(span.last, at))

    def _finish(self, watermark: int) -> None:
        for key in self.pieces:
            for cells, (first, last) in self._spans(key).items():
                if last + GAP + FINAL <= watermark:
                    self.sealed.append((key, first, last))
                    for cell in cells:
                        del self.pieces[key][cell]

    def _spans(self, key: str) -> dict[tuple[int, ...], tuple[int, int]]:
        mine = self.pieces[key]
        found = chains([(cell, span.first, span.last) for cell, span in mine.items()], GAP, LONGEST)
        return {tuple(cells): (mine[cells[0]].first, mine[cells[-1]].last) for cells in found}


def stream_of(r: random.Random, number: int) -> list[Event]:
    """Both partitions begin at the same time: one that is new could be behind the watermark."""
    offsets = [0, 0]
    now, events = 1_772_355_600, []
    for n in range(number):
        now += r.choice([0, 0, 1, 1, 2, 5, 12])
        partition = r.randrange(2) if n > 1 else n
        back = 0 if n < 2 else r.choice([0, 0, 0, 0, 1, 3, 5, 6, 8, 10, 12, 15, 16, 20, 25, 40])
        fields = {"who": f"{partition}-{r.randrange(2)}"}
        at = (now - back) * UNIT
        events.append(Event(partition, offsets[partition], f"e{n}", at, now * UNIT, fields))
        offsets[partition] += 1
    return events


@pytest.mark.parametrize("seed", range(150))
def test_spans_and_late_events_are_the_oracles_whatever_the_batches(seed: int) -> None:
    r = random.Random(seed)
    events = stream_of(r, 90)
    idle = 10**12
    found = []
    for size in (1, 7, r.randint(2, 40), 1000):
        played, oracle = Played(idle), Oracle(SPEC, idle)
        for first in range(0, len(events), size):
            played.batch(events[first : first + size])
            oracle.batch(events[first : first + size])
        wanted = oracle.outcome()
        assert played.rows() == sorted((row.key, row.start, row.last) for row in wanted.rows)
        assert sorted(played.late) == sorted(late.event_id for late in wanted.late)
        found.append((played.rows(), sorted(played.late)))
    assert all(one == found[0] for one in found)


def test_the_streams_are_worth_it() -> None:
    """They have late events, sessions that were sealed, and sessions that overlap."""
    late = overlaps = 0
    for seed in range(20):
        played = Played(10**12)
        played.batch(stream_of(random.Random(seed), 90))
        late += len(played.late)
        rows = played.rows()
        overlaps += sum(a[0] == b[0] and b[1] <= a[2] for a, b in pairwise(rows))
    assert late > 20 and overlaps > 0
