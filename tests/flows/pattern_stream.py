"""A source with one pattern on a real store, without Spark: events arrive as a gate hands them on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from headrace import Pattern
from headrace.contracts import load_contract
from headrace.flows.pattern_rule import PatternRule
from headrace.flows.taken import Taken, TakenRow
from headrace.gate.ledger import Batch, Entry, Outcome
from headrace.store.connection import Store
from headrace.store.ledger import Ledger
from headrace.store.pattern_fold import pattern_fold
from headrace.store.source_accounts import SourceAccounts
from tests.oracle.patterns_oracle import Happened

CONTRACT = Path(__file__).parents[1] / "views" / "sales.yaml"
_numbers = itertools.count()


class PatternStream:
    """`feed` is one batch; events that the gate would turn away as late are turned away here."""

    def __init__(self, store_url: str, pattern: Pattern, lateness: timedelta, app: str = "") -> None:
        self.app = app or f"patterns_{next(_numbers)}_{datetime.now(UTC):%H%M%S%f}"
        contract = replace(load_contract(CONTRACT), lateness=lateness)
        self._url, self._lateness = store_url, lateness // timedelta(microseconds=1)
        self.store = Store(store_url)
        self.store.prepare()
        self.rule = PatternRule(pattern, lateness, (), (False,) * len(pattern.show))
        keep = timedelta(days=90)
        self.fold = pattern_fold(self.app, self.app, self.rule, [pattern.name], keep)
        self.accounts = SourceAccounts(self.store, self.app, contract, {self.rule.part: self.fold})
        self.accounts.prepare()
        self._ledger = Ledger(self.store, self.app, keep, self.accounts)
        self._clocks: dict[int, int] = {}
        self.batches = 0

    def feed(self, events: Sequence[Happened], *, again: int = 0) -> None:
        """`again`: how often the batch is handed over once more, as after a crash."""
        rows, entries = [], []
        bits, closest = self.rule.pattern.bits, self.rule.want().closest
        allowed = self._lateness if closest is None else closest // timedelta(microseconds=1)
        for partition in sorted({event.partition for event in events}):
            mine = [event for event in events if event.partition == partition]
            accepted = 0
            for event in sorted(mine, key=lambda e: e.offset):
                clock = self._clocks.get(partition)
                if clock is not None and event.event_time < clock - self._lateness:
                    continue
                accepted += 1
                old = clock is not None and event.event_time < clock - allowed
                mask = sum(bits[symbol] for symbol in event.symbols)
                if mask:
                    rows.append(
                        TakenRow(
                            *(partition, event.offset, event.event_id, event.event_time),
                            *(clock if old else None, event.log_time, (str(mask), event.key)),
                        )
                    )
                self._clocks[partition] = max(event.event_time, clock or event.event_time)
            count, clock = len(mine), self._clocks.get(partition)
            log_time = max(event.log_time for event in mine)
            late = count - accepted
            entries.append(Entry(partition, 0, 0, count, accepted, 0, late, 0, {}, clock, log_time))
        batch = Batch(self.app, self.batches, datetime.now(UTC), Outcome(tuple(entries), 0, 0))
        for _ in range(1 + again):
            self._ledger.record(batch, {self.rule.part: Taken(rows)})
        self.batches += 1

    def silence(self, microseconds: int) -> None:
        """As if nothing had come for so long."""
        [[active]] = self.query("SELECT max(active_at) FROM headrace.watermarks WHERE query = %(app)s")
        self.accounts.tick(active + timedelta(microseconds=microseconds))

    def totals(self) -> dict[str, Any]:
        return self.store.transact(lambda connection: self.fold.export(connection, Path()))

    def alerts(self) -> dict[str, tuple[Any, ...]]:
        """By id: key, ids of the matched events, number of matches, state."""
        rows = self.query('SELECT id, dimensions, "values", state FROM headrace.alerts WHERE app = %(app)s')
        return {
            id_: (
                next(iter(labels.values())),
                tuple(e["event_id"] for e in values["matched"]),
                values["matches"],
                state,
            )
            for id_, labels, values, state in rows
        }

    def told(self) -> list[tuple[str, int, str]]:
        return self.query(
            "SELECT id, seq, kind FROM headrace.alert_events WHERE app = %(app)s ORDER BY position"
        )

    def query(self, text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._url) as connection:
            return connection.execute(text, {"app": self.app}).fetchall()  # type: ignore[arg-type]
