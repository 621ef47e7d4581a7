"""Patterns in the store: a fold for what happens, and one for what fails to happen."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from headrace.flows.pattern_rule import PatternRule, storable
from headrace.flows.search import Moment, place_of
from headrace.flows.taken import Taken
from headrace.gate.ledger import Batch
from headrace.patterns import END, START
from headrace.store.connection import Connection
from headrace.store.pattern_alerts import Match, PatternAlerts
from headrace.store.pattern_books import PatternBooks, TooLate
from headrace.store.pattern_memory import Arrival, PatternMemory
from headrace.store.source_accounts import Fold, Watermarks

CUTS = 16  # how often, in the time that an event is remembered, old ones are forgotten


def pattern_fold(app: str, query: str, rule: PatternRule, declared: Collection[str], keep: timedelta) -> Fold:
    """`declared` are the names of all patterns of the query."""
    kind = AbsenceFold if rule.pattern.kind == "absence" else SequenceFold
    return kind(app, query, rule, declared, keep)


class _PatternFold:
    """What all patterns share: late events are turned away and noted, alerts end when their time is over."""

    def __init__(
        self, app: str, query: str, rule: PatternRule, declared: Collection[str], keep: timedelta
    ) -> None:
        self._app, self._query, self._rule, self._declared = app, query, rule, declared
        self._books = PatternBooks(app, query, rule, keep)
        self._memory = PatternMemory(rule, 0)
        self._alerts = PatternAlerts(app, query, rule, 0)

    def prepare(self, connection: Connection, watermarks: Watermarks) -> None:
        self._books.open(connection, self._declared)
        self._memory = PatternMemory(self._rule, self._books.id)
        self._alerts = PatternAlerts(self._app, self._query, self._rule, self._books.id)

    def forget_old(self, connection: Connection) -> None:
        self._books.forget_old(connection)

    def export(self, connection: Connection, folder: Path) -> dict[str, Any]:
        return self._books.totals(connection)

    def _take(self, connection: Connection, batch: Batch, part: Taken, before: Watermarks) -> list[Arrival]:
        """Write down what the batch has brought, and remember what is not late."""
        late: list[TooLate] = []
        arrivals: list[Arrival] = []
        rule, slack, watermark = self._rule, self._rule.slack, before.get("event")
        for row in part.rows:
            partition, offset, event_id, at, clock, log_time, values = row
            if clock is not None and clock > at + slack:
                late.append(TooLate(row, clock, "late"))
            elif watermark is not None and watermark > at + slack:
                # Its partition has slept: nobody else comes behind the watermark without being late.
                late.append(TooLate(row, watermark, "idle_wake"))
            else:
                mask, shown = int(values[0] or 0), rule.shown_of(values)
                moment = Moment(at, storable(event_id), mask, False, partition, offset, shown)
                arrivals.append(Arrival(rule.key_of(values), moment, clock, log_time))
        self._books.record(connection, batch, len(part.rows), late)
        if arrivals:
            new = self._memory.add(connection, arrivals)
            self._books.count(connection, again=len(arrivals) - new)
        return arrivals

    def _passes_a_cut(self, before: int | None, after: int) -> bool:
        width = max(1, self._rule.memory // CUTS)
        return before is None or before // width != after // width


class SequenceFold(_PatternFold):
    """Sequences and velocities: looked for when an event arrives, and told at once."""

    def merge(
        self, connection: Connection, batch: Batch, part: Taken, before: Watermarks, after: Watermarks
    ) -> None:
        arrivals = self._take(connection, batch, part, before)
        elements = self._rule.elements
        touched = {key for key, moment, *_ in arrivals if moment.mask & elements}
        if not touched:
            return
        times = [arrival.moment.at for arrival in arrivals]
        found = self._memory.candidates(connection, touched, min(times), max(times))
        matches = list(self._matches(found, _order_of(arrivals, found)))
        if matches:
            self._memory.use(connection, ((m.key, event) for m in matches for event in m.events))
            alerts = self._alerts.tell(connection, matches)
            self._books.count(connection, matches=len(matches), alerts=alerts)

    def advance(self, connection: Connection, before: Watermarks, after: Watermarks, part: Any) -> None:
        watermark = after.get("event")
        if watermark is None:
            return
        self._alerts.end_quiet(connection, watermark)
        if self._passes_a_cut(before.get("event"), watermark):
            gone = self._memory.forget(connection, watermark)
            self._books.count(connection, forgotten=gone)
            self._alerts.forget(connection, watermark)

    def _matches(
        self, found: dict[str, list[Moment]], order: dict[tuple[int, int], tuple[int, int, int]]
    ) -> Iterator[Match]:
        """As if events came one by one: those of the batch are put aside, and then arrive."""
        for key, moments in found.items():
            known: list[Moment] = []
            arriving: list[Moment] = []
            for moment in moments:
                is_new = (moment.partition, moment.offset) in order
                (arriving if is_new else known).append(moment)
            arriving.sort(key=lambda moment: order[moment.partition, moment.offset])
            for events in self._rule.search.arrive(known, arriving):
                yield Match(key, events, events[-1].at)


class AbsenceFold(_PatternFold):
    """A start without its end: told when the watermark says that the end cannot come any more."""

    def merge(
        self, connection: Connection, batch: Batch, part: Taken, before: Watermarks, after: Watermarks
    ) -> None:
        self._take(connection, batch, part, before)

    def advance(self, connection: Connection, before: Watermarks, after: Watermarks, part: Any) -> None:
        watermark = after.get("event")
        if watermark is None:
            return
        gone = self._memory.take_due(connection, watermark)
        starts = sorted(
            (d for d in gone if d.moment.mask & self._rule.pattern.bits[START]),
            key=lambda d: place_of(d.moment),
        )
        ends = self._ends(connection, gone, {start.key for start in starts})
        matches = [
            Match(start.key, [start.moment], start.moment.at + self._rule.within)
            for start in starts
            if not self._has_end(start, ends.get(start.key, []))
        ]
        alerts = self._alerts.tell(connection, matches)
        self._books.count(connection, forgotten=len(gone), matches=len(matches), alerts=alerts)
        self._alerts.end_quiet(connection, watermark)
        if self._passes_a_cut(before.get("event"), watermark):
            self._alerts.forget(connection, watermark)

    def _ends(
        self, connection: Connection, gone: Sequence[Arrival], keys: set[str]
    ) -> dict[str, list[Arrival]]:
        """The ends of these keys in the order of their times: those that are forgotten now, and the rest."""
        bit = self._rule.pattern.bits[END]
        mine = [known for known in gone if known.key in keys and known.moment.mask & bit]
        found: dict[str, list[Arrival]] = {}
        for end in [*mine, *(self._memory.of_keys(connection, keys, bit) if keys else ())]:
            found.setdefault(end.key, []).append(end)
        for ends in found.values():
            ends.sort(key=lambda end: place_of(end.moment))
        return found

    def _has_end(self, start: Arrival, ends: list[Arrival]) -> bool:
        """An end counts if it came before its partition's clock had passed the time that a start is given."""
        first = bisect_right(ends, place_of(start.moment), key=lambda end: place_of(end.moment))
        for end in ends[first:]:
            if end.moment.at > start.moment.at + self._rule.within:
                return False
            if end.clock is None or end.clock <= start.moment.at + self._rule.slack:
                return True
        return False


def _order_of(
    arrivals: Sequence[Arrival], keys: Collection[str]
) -> dict[tuple[int, int], tuple[int, int, int]]:
    """By coordinates. In a partition the offsets count; between two, the log time that a key has reached."""
    found = {}
    reached: dict[tuple[str, int], int] = {}
    for key, moment, _, log_time in arrivals:
        if key in keys:
            place = (key, moment.partition)
            reached[place] = now = max(reached.get(place, 0), log_time or 0)
            found[moment.partition, moment.offset] = (now, moment.partition, moment.offset)
    return found
