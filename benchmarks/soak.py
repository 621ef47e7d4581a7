"""python -m benchmarks.soak: sessions, a join, patterns and signals over a simulated day, on the store alone.

What they remember must stay as large as their horizons make it, however long they run. Parts of batches go
through the store's own transactions, without Spark and broker; an hour passes in seconds.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
from psycopg import sql
from rich.console import Console
from rich.table import Table

from benchmarks.soak_flows import APP, SECOND, Event, Flow, Fraud, Paid, Patterns, Visits
from headrace.contracts import load_contract
from headrace.gate.ledger import Batch, Entry, Outcome
from headrace.joins import Side
from headrace.local.scratch_store import scratch_store
from headrace.store.connection import Connection, Store
from headrace.store.ledger import Ledger
from headrace.store.outbox import FlowOutbox
from headrace.store.source_accounts import SourceAccounts

CONTRACTS = Path(__file__).parents[1] / "apps" / "turanmart" / "contracts"
START = 1_772_355_600 * SECOND
MINUTE = 60 * SECOND
LATENESS = timedelta(minutes=10)
QUERIES = {"orders": "soak.orders", "payments": "soak.payments"}
KINDS = ("view",) * 85 + ("failed",) * 7 + ("paid",) * 6 + ("checkout",) * 2
# What is remembered to decide what comes, and what has been decided and is shown for an hour.
STATE = {
    "sessions": ("visits__pieces",),
    "join": ("paid__left", "paid__right"),
    "patterns": ("pattern_events", "pattern_alerts"),
    "signals": ("fraud__memory",),
    "all": ("outbox",),
}
SHOWN = {
    "sessions": ("visits", "late_events"),
    "join": ("paid", "paid__unmatched"),
    "signals": ("fraud", "fraud__activity"),
}
WATCHED = tuple(t for group in (STATE, SHOWN) for tables in group.values() for t in tables)


@dataclass(frozen=True)
class Size:
    rows: int
    size: int  # in bytes, with indexes


class Soak:
    """Two sources with all flows in the store; a turn is a batch of each."""

    def __init__(self, url: str, keys: int, pool: int, turns: int, seed: int = 1) -> None:
        self._url, self._random = url, random.Random(seed)
        self._keys, self._pool, self._step = keys, pool, max(1, keys // turns)
        contracts = {
            name: replace(load_contract(CONTRACTS / f"{name}.yaml"), lateness=LATENESS) for name in QUERIES
        }
        sides: dict[Side, str] = {"left": QUERIES["orders"], "right": QUERIES["payments"]}
        self._flows: list[Flow] = [
            Visits(QUERIES["orders"]),
            Patterns(QUERIES["orders"], LATENESS),
            Fraud(QUERIES["orders"], LATENESS),
            Paid(sides, contracts, keys),
        ]
        self._ledgers: dict[str, Ledger] = {}
        for source, query in QUERIES.items():
            store = Store(url)
            store.prepare()
            folds = {name: fold for flow in self._flows for name, fold in flow.folds(source).items()}
            accounts = SourceAccounts(store, query, contracts[source], folds)
            accounts.prepare()
            self._ledgers[source] = Ledger(store, query, timedelta(days=1), accounts)
        self._store = Store(url)
        self._turns, self._offset, self._clock = 0, 0, START

    def turn(self, at: int, span: int, count: int) -> None:
        """So many events in a span of microseconds, one in ten of them up to the lateness old."""
        events = [self._event(at + span * n // count) for n in range(count)]
        for source, ledger in self._ledgers.items():
            parts = {name: part for flow in self._flows for name, part in flow.parts(source, events).items()}
            offset = events[0].offset
            entry = Entry(
                *(0, offset, offset + count, count, count, 0, 0, 0, {}),
                *(self._clock, at + span, at),
            )
            # Now and then the batch's number makes the folds forget what is old: here every ten turns.
            batch = Batch(QUERIES[source], self._turns * 10, datetime.now(UTC), Outcome((entry,), 0, 0))
            ledger.record(batch, parts)
        self._turns += 1
        self._store.transact(_publish)

    def sweep(self) -> None:
        """What Postgres does by itself every minute of real time: here an hour may pass in a second."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("VACUUM")

    def sizes(self) -> dict[str, Size]:
        found = {}
        with psycopg.connect(self._url) as connection:
            rows = connection.execute(
                "SELECT n.nspname, relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
                " WHERE relkind = 'r' AND nspname = ANY(%s)",
                (["headrace", APP],),
            ).fetchall()
            for schema, name in rows:
                table = sql.Identifier(schema, name)
                size = connection.execute(
                    sql.SQL("SELECT count(*), pg_total_relation_size({}) FROM {}").format(
                        sql.Literal(f'"{schema}"."{name}"'), table
                    )
                ).fetchone()
                assert size is not None
                found[name] = Size(*size)
        return found

    def _event(self, arrived: int) -> Event:
        """Customers come, stay for half an hour and go: in a day all of them are seen."""
        r = self._random
        key = f"c-{(self._turns * self._step + r.randrange(self._pool)) % self._keys}"
        back = r.randrange(LATENESS // timedelta(seconds=1)) * SECOND if r.random() < 0.1 else 0
        at = max(arrived - back, self._clock - LATENESS // timedelta(microseconds=1))
        amount = f"{r.randrange(100, 9999) / 100:.2f}"
        event = Event(self._offset, at, self._clock, arrived, key, r.choice(KINDS), amount)
        self._offset += 1
        self._clock = max(self._clock, at)
        return event


def _publish(connection: Connection) -> None:
    """As the publisher of topics does: what is in a topic leaves the outbox."""
    outbox = FlowOutbox()
    lanes = connection.execute("SELECT DISTINCT query FROM headrace.outbox_lanes").fetchall()
    for lane in outbox.lanes(connection, [query for (query,) in lanes]):
        waiting = outbox.unpublished(connection, lane, 0, 1_000_000)
        if waiting:
            outbox.note_published(connection, lane, waiting[-1].position)


def soak(
    url: str, keys: int, hours: int, per_minute: int, minutes: int = 1
) -> Iterator[tuple[dict[str, Size], float]]:
    """A batch for so many minutes; after each hour, the tables and the seconds that the hour took."""
    turns = hours * 60 // minutes
    run = Soak(url, keys, pool=per_minute * 5, turns=turns)
    began = time.perf_counter()
    for turn in range(turns):
        run.turn(START + turn * minutes * MINUTE, minutes * MINUTE, per_minute * minutes)
        done = (turn + 1) * minutes
        if done % 10 == 0:
            run.sweep()
        if done % 60 == 0:
            yield run.sizes(), time.perf_counter() - began
            began = time.perf_counter()


def growth(hours: Sequence[Mapping[str, Size]], table: str) -> tuple[float, float]:
    """Rows and bytes of the last three hours to those of the hours 2 to 4: the largest of each."""
    early, late = [h[table] for h in hours[1:4]], [h[table] for h in hours[-3:]]
    rows = max(s.rows for s in late) / max(1, *(s.rows for s in early))
    return rows, max(s.size for s in late) / max(s.size for s in early)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--per-minute", type=int, default=500, help="events in each simulated minute")
    options = parser.parse_args()
    console = Console(width=110)
    hours: list[dict[str, Size]] = []
    with scratch_store() as url:
        for sizes, seconds in soak(url, options.keys, options.hours, options.per_minute):
            hours.append(sizes)
            state = [sizes[name] for tables in STATE.values() for name in tables]
            rows, size = sum(s.rows for s in state), sum(s.size for s in state) / 2**20
            console.print(f"hour {len(hours)}: {rows:,} rows of state, {size:.1f} MB; took {seconds:.1f} s")
    last = len(hours)
    table = Table("table", "rows, hour 2", f"hour {last}", "grown", "MB, hour 2", f"hour {last}", "grown")
    others = sorted(set(hours[-1]) - set(WATCHED))
    for name in (*WATCHED, *others):
        first, end = hours[min(1, last - 1)][name], hours[-1][name]
        rows, size = growth(hours, name) if last > 4 else (0.0, 0.0)
        table.add_row(
            *(name, f"{first.rows:,}", f"{end.rows:,}", f"{rows:.2f}"),
            *(f"{first.size / 2**20:.1f}", f"{end.size / 2**20:.1f}", f"{size:.2f}"),
            end_section=name in ("outbox", WATCHED[-1]),
        )
    console.print(table)


if __name__ == "__main__":
    main()
