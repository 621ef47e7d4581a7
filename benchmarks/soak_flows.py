"""One of each flow with the store's own folds; the parts of their batches are made up, Spark is left out."""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from headrace import App, count, distinct, seconds_since_last, sum_of, times_last
from headrace.contracts.model import Contract
from headrace.flows.join_resolve import ResolvedJoin, SideColumns
from headrace.flows.pattern_rule import PatternRule
from headrace.flows.signals import ResolvedSignals
from headrace.flows.taken import Taken, TakenRow
from headrace.joins import SIDES, Side
from headrace.store.join_fold import JoinFold
from headrace.store.pattern_fold import pattern_fold
from headrace.store.session_fold import SessionFold
from headrace.store.signal_fold import SignalFold
from headrace.store.source_accounts import Fold
from headrace.views.resolve import ResolvedMetric
from headrace.views.session_pieces import SESSIONS, Pieces, ResolvedSessions, SuspectEvent

APP = "soak"
SECOND = 1_000_000
KEPT = "1 hour"  # how long results are shown, so that a day of them says something
TOPIC = "soak.results.v1"
Parts = dict[str, Any]


class Event(NamedTuple):
    """An accepted event; `clock` is its partition's before it, `arrived` the simulated time of its log."""

    offset: int
    at: int
    clock: int
    arrived: int
    key: str
    kind: str
    amount: str

    @property
    def id(self) -> str:
        return f"e-{self.offset}"

    def taken(self, *values: str | None, clock: int | None = None) -> TakenRow:
        return TakenRow(0, self.offset, self.id, self.at, clock, self.arrived, values)


class Flow(Protocol):
    """Folds by the name of their part, for each source that it rides on; and the parts of a batch."""

    def folds(self, source: str) -> Mapping[str, Fold]: ...
    def parts(self, source: str, events: Sequence[Event]) -> Parts: ...


class Visits:
    """Sessions; events that are so old that a session may be over for them are handed over one by one."""

    def __init__(self, query: str) -> None:
        sessions = App(APP).sessions(
            "visits",
            of="orders",
            key="customer_id",
            gap="5 minutes",  # shorter than events may be late, so that some come too late
            max_length="1 hour",
            measures={"failures": count("kind = 'failed'"), "amount": sum_of("amount")},
            final_after="2 minutes",
            retain=KEPT,
        )
        measured = ResolvedMetric(sessions.measured, {"amount": "decimal(12,2)"}, ())
        self._sessions, self._resolved = sessions, ResolvedSessions(sessions, measured, {})
        self._fold = SessionFold(APP, query, [self._resolved])

    def folds(self, source: str) -> Mapping[str, Fold]:
        return {SESSIONS: self._fold} if source == "orders" else {}

    def parts(self, source: str, events: Sequence[Event]) -> Parts:
        if source != "orders":
            return {}
        old = {e.key for e in events if self._is_old(e)}
        pieces = Pieces(self._resolved, accepted=len(events))
        alone = [e for e in events if e.key in old]
        together = sorted((e for e in events if e.key not in old), key=lambda e: (e.key, self._cell(e)))
        for (_, _), mine in groupby(together, lambda e: (e.key, self._cell(e))):
            pieces.lines.append(self._line(list(mine)))
        pieces.in_lines = len(events) - len(alone)
        pieces.suspects = [
            SuspectEvent(
                *(0, e.offset, e.id, e.at, e.clock if self._is_old(e) else None, e.clock, e.key),
                *(self._cell(e), self._line([e])),
            )
            for e in alone
        ]
        return {SESSIONS: [pieces]}

    def _is_old(self, event: Event) -> bool:
        return event.at + self._sessions.final_us <= event.clock

    def _cell(self, event: Event) -> int:
        return event.at - event.at % self._sessions.gap_us

    def _line(self, events: list[Event]) -> str:
        times = [e.at for e in events]
        failures = sum(e.kind == "failed" for e in events)
        amount = sum(float(e.amount) for e in events)
        values = (events[0].key, self._cell(events[0]), min(times), max(times), len(events), failures)
        return "\t".join(map(str, (*values, f"{amount:.2f}")))


class Patterns:
    """A sequence, a velocity and an absence."""

    def __init__(self, query: str, lateness: timedelta) -> None:
        app, of = App(APP), {"of": "orders", "key": "customer_id", "topic": TOPIC}
        declared = (
            app.pattern(
                "tested",
                sequence="F{3,} P",
                define={"F": "kind = 'failed'", "P": "kind = 'paid'"},
                within="10 minutes",
                quiet="30 minutes",
                **of,
            ),
            app.pattern("many", where="kind = 'failed'", count=3, within="2 minutes", **of),
            app.pattern(
                "gone",
                starts="kind = 'checkout'",
                without="kind = 'paid'",
                within="10 minutes",
                final_after="1 minute",
                **of,
            ),
        )
        self._rules = [PatternRule(pattern, lateness, (), ()) for pattern in declared]
        names = [pattern.name for pattern in declared]
        keep = timedelta(days=90)
        self._folds = {r.part: pattern_fold(APP, query, r, names, keep) for r in self._rules}
        self._symbols = (
            {"failed": "F", "paid": "P"},
            {"failed": "EACH"},
            {"checkout": "START", "paid": "END"},
        )

    def folds(self, source: str) -> Mapping[str, Fold]:
        return self._folds if source == "orders" else {}

    def parts(self, source: str, events: Sequence[Event]) -> Parts:
        if source != "orders":
            return {}
        found: Parts = {}
        for rule, symbols in zip(self._rules, self._symbols, strict=True):
            bits, closest = rule.pattern.bits, rule.want().closest
            slack = None if closest is None else closest // timedelta(microseconds=1)
            found[rule.part] = Taken(
                [
                    e.taken(
                        *(str(bits[symbols[e.kind]]), e.key),
                        clock=e.clock if slack is not None and e.at < e.clock - slack else None,
                    )
                    for e in events
                    if e.kind in symbols
                ]
            )
        return found


class Fraud:
    """Signals of what is paid, with a count of suspicious activity for each customer."""

    def __init__(self, query: str, lateness: timedelta) -> None:
        signals = App(APP).signals(
            "fraud",
            of="orders",
            key="card",
            memory="5 minutes",
            features={
                "amount_now": "amount",
                "orders_5m": count(),
                "amount_5m": sum_of("amount"),
                "kinds_5m": distinct("kind"),
                "times_last": times_last("amount"),
                "seconds_since": seconds_since_last(),
            },
            score="least(1.0, orders_5m / 10 + coalesce(times_last, 0) / 40)",
            decision={"block": 0.9, "review": 0.5},
            activity_by="customer_id",
            topic=TOPIC,
            retain=KEPT,
        )
        types = {"amount_now": "numeric", "orders_5m": "bigint", "amount_5m": "numeric"}
        types |= {"kinds_5m": "bigint", "times_last": "double precision"}
        types |= {"seconds_since": "double precision"}
        micros = lateness // timedelta(microseconds=1)
        self._resolved = ResolvedSignals(signals, types, (), frozenset(), micros)
        self._fold = SignalFold(APP, query, self._resolved)

    def folds(self, source: str) -> Mapping[str, Fold]:
        return {self._resolved.fold: self._fold} if source == "orders" else {}

    def parts(self, source: str, events: Sequence[Event]) -> Parts:
        if source != "orders":
            return {}
        columns = list(self._resolved.want.columns)
        rows = [e.taken(*(self._value(column, e) for column in columns)) for e in events]
        return {self._resolved.fold: Taken(rows)}

    def _value(self, column: str, event: Event) -> str:
        if column.startswith("label "):
            return event.key
        return event.kind if column == "value kinds_5m" else event.amount


class Paid:
    """A join of two sources. Nine of ten orders are paid within ten minutes, some with another amount."""

    def __init__(self, queries: dict[Side, str], contracts: Mapping[str, Contract], keys: int) -> None:
        self._random, self._keys = random.Random(3), keys
        self._due: list[tuple[int, str]] = []  # payments to come: a heap
        self._payments = 0
        join = App(APP).join(
            "paid",
            left="orders",
            right="payments",
            on="order_id",
            within="30 minutes",
            check={"amount_differs": "left.total = right.amount"},
            columns={"amount": "right.amount"},
            order="log",
            topic=TOPIC,
            retain=KEPT,
        )
        columns: dict[Side, SideColumns] = {
            side: SideColumns("", "`order_id`", {"v0": ("`amount`", "numeric")}) for side in SIDES
        }
        resolved = ResolvedJoin(
            *(join, contracts["orders"], contracts["payments"], "log", columns),
            {"amount": ('r."v0"', "numeric", "right")},
            {"amount_differs": 'l."v0" = r."v0"'},
        )
        self._folds = {side: JoinFold(APP, queries, resolved, side) for side in SIDES}

    def folds(self, source: str) -> Mapping[str, Fold]:
        side: Side = "left" if source == "orders" else "right"
        return {f"paid:{side}": self._folds[side]}

    def parts(self, source: str, events: Sequence[Event]) -> Parts:
        return self._ordered(events) if source == "orders" else self._paid(events[-1].arrived)

    def _ordered(self, events: Sequence[Event]) -> Parts:
        r, rows = self._random, []
        for event in events:
            key = f"o-{r.randrange(self._keys)}"
            rows.append(event.taken(key, "10.00"))
            if r.random() < 0.9:
                heapq.heappush(self._due, (event.arrived + r.randrange(600) * SECOND, key))
        return {"paid:left": Taken(rows)}

    def _paid(self, now: int) -> Parts:
        rows = []
        while self._due and self._due[0][0] <= now:
            at, key = heapq.heappop(self._due)
            amount = "9.00" if self._random.random() < 0.02 else "10.00"
            rows.append(TakenRow(0, self._payments, f"p-{self._payments}", at, None, at, (key, amount)))
            self._payments += 1
        return {"paid:right": Taken(rows)}
