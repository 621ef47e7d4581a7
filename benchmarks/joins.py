"""python -m benchmarks.joins: a join with many keys over a long time, on the store alone.

Orders and payments of simulated hours go through the join's own transactions, without Spark and broker. What
waits must stay as large as the interval makes it, however long it runs.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
from rich.console import Console
from rich.table import Table

from headrace import App
from headrace.contracts import load_contract
from headrace.flows.join_resolve import ResolvedJoin, SideColumns
from headrace.flows.taken import Taken, TakenRow
from headrace.gate.ledger import Batch, Entry, Outcome
from headrace.joins import SIDES, Side
from headrace.local.scratch_store import scratch_store
from headrace.store.connection import Store
from headrace.store.join_fold import JoinFold
from headrace.store.ledger import Ledger
from headrace.store.source_accounts import SourceAccounts

CONTRACTS = Path(__file__).parents[1] / "apps" / "turanmart" / "contracts"
SECOND = 1_000_000
START = 1_772_355_600 * SECOND
QUERIES: dict[Side, str] = {"left": "soak.orders", "right": "soak.payments"}


class Soak:
    """Two sources and one join in the store; a turn is a batch of each."""

    def __init__(self, url: str, keys: int, seed: int = 1) -> None:
        self._random, self._keys, self._url = random.Random(seed), keys, url
        left, right = load_contract(CONTRACTS / "orders.yaml"), load_contract(CONTRACTS / "payments.yaml")
        join = App("soak").join(
            "paid",
            left="orders",
            right="payments",
            on="order_id",
            within="30 minutes",
            check={"amount_differs": "left.total = right.amount"},
            columns={"amount": "right.amount"},
            order="log",
            retain="1 hour",
        )
        columns: dict[Side, SideColumns] = {
            side: SideColumns("", "`order_id`", {"v0": ("`amount`", "numeric")}) for side in SIDES
        }
        resolved = ResolvedJoin(
            *(join, left, right, "log", columns),
            {"amount": ('r."v0"', "numeric", "right")},
            {"amount_differs": 'l."v0" = r."v0"'},
        )
        self._ledgers: dict[Side, Ledger] = {}
        for side, contract in (("left", left), ("right", right)):
            store, query = Store(url), QUERIES[side]  # type: ignore[index]
            store.prepare()
            fold = JoinFold("soak", QUERIES, resolved, side)  # type: ignore[arg-type]
            accounts = SourceAccounts(store, query, contract, {f"paid:{side}": fold})
            accounts.prepare()
            self._ledgers[side] = Ledger(store, query, timedelta(days=1), accounts)  # type: ignore[index]
        self._number = 0
        self._offsets = dict.fromkeys(SIDES, 0)

    def turn(self, at: int, span: int, events: int) -> None:
        """So many orders in a span of microseconds; nine of ten are paid within ten minutes, some wrongly."""
        r = self._random
        rows: dict[Side, list[TakenRow]] = {"left": [], "right": []}
        for n in range(events):
            moment = at + span * n // events
            key = f"o-{r.randrange(self._keys)}"
            rows["left"].append(self._row("left", key, moment, "10.00"))
            if r.random() < 0.9:
                paid = max(at, moment - r.randrange(600) * SECOND)
                rows["right"].append(self._row("right", key, paid, r.choice(["10.00"] * 50 + ["9.00"])))
        for side in SIDES:
            entry = Entry(
                *(0, self._offsets[side], self._offsets[side] + 1, 1, len(rows[side]), 0, 0, 0, {}),
                *(at + span, at + span, at),
            )
            batch = Batch(QUERIES[side], self._number, datetime.now(UTC), Outcome((entry,), 0, 0))
            self._ledgers[side].record(batch, {f"paid:{side}": Taken(rows[side])})
        self._number += 1

    def sweep(self) -> None:
        """What Postgres does by itself every minute of real time: here an hour may pass in a second."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("VACUUM soak.paid__left, soak.paid__right, soak.paid, soak.paid__unmatched")

    def state(self) -> dict[str, int]:
        with psycopg.connect(self._url) as connection:
            rows = connection.execute(
                "SELECT count(*), (SELECT count(*) FROM soak.paid__right),"
                " pg_total_relation_size('soak.paid__left') + pg_total_relation_size('soak.paid__right'),"
                " pg_total_relation_size('soak.paid') + pg_total_relation_size('soak.paid__unmatched'),"
                " (SELECT count(*) FROM headrace.outbox) FROM soak.paid__left"
            ).fetchone()
            assert rows is not None
            return dict(zip(("left", "right", "waiting_bytes", "result_bytes", "outbox"), rows, strict=True))

    def _row(self, side: Side, key: str, at: int, amount: str) -> TakenRow:
        offset = self._offsets[side]
        self._offsets[side] += 1
        return TakenRow(0, offset, f"{side}-{offset}", at, None, at, (key, amount))


def soak(url: str, keys: int, hours: float, per_minute: int) -> Iterator[tuple[float, dict[str, int], float]]:
    """A batch for each minute; after each hour, the state and the seconds that the hour took."""
    run = Soak(url, keys)
    began = time.perf_counter()
    for minute in range(int(hours * 60)):
        run.turn(START + minute * 60 * SECOND, 60 * SECOND, per_minute)
        if minute % 10 == 9:
            run.sweep()
        if minute % 60 == 59:
            yield (minute + 1) / 60, run.state(), time.perf_counter() - began
            began = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.joins", description=__doc__)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--per-minute", type=int, default=1_000, help="orders in each simulated minute")
    options = parser.parse_args()
    table = Table("hour", "waiting left", "right", "waiting MB", "results MB", "µs/event")
    with scratch_store() as url:
        for hour, state, seconds in soak(url, options.keys, options.hours, options.per_minute):
            each = seconds / (60 * options.per_minute * 1.9) * 1e6
            table.add_row(
                *(f"{hour:.0f}", f"{state['left']:,}", f"{state['right']:,}"),
                *(f"{state['waiting_bytes'] / 2**20:.1f}", f"{state['result_bytes'] / 2**20:.1f}"),
                f"{each:.0f}",
            )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
