"""Two sources with joins on a real store, batch by batch; each source has its own accounts and connection."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from pyspark.sql import SparkSession

from headrace.contracts import Contract, load_contract
from headrace.contracts.spark_schema import spark_type
from headrace.declared import Declared
from headrace.flows.join_resolve import resolve_join
from headrace.flows.taken import Taken, TakenRow
from headrace.gate.clock import measure_extent, with_fates
from headrace.gate.ledger import Batch, Entry, Outcome
from headrace.joins import SIDES, Join, JoinSide
from headrace.ops.derive import derive
from headrace.store.connection import Store
from headrace.store.join_names import letter_table, result_table
from headrace.store.ledger import Ledger
from headrace.store.source_accounts import SourceAccounts
from tests.oracle.joins_oracle import Event

FOLDER = Path(__file__).parent
CONTRACTS = {name: load_contract(FOLDER / f"{name}.yaml") for name in ("orders", "payments")}
_numbers = itertools.count()
Where = Callable[[Mapping[str, Any]], bool]


class TwoStreams:
    """`feed` is one batch of one source. Without Spark, conditions are given as functions by side."""

    def __init__(
        self, spark: SparkSession, store_url: str, *joins: Join, where: Mapping[str, Where] | None = None
    ) -> None:
        self.app = f"joins_{next(_numbers)}_{datetime.now(UTC):%H%M%S%f}"
        self.url, self._spark, self._where = store_url, spark, where or {}
        Store(store_url).prepare()
        self._sides = {
            name: [
                JoinSide(join, side, CONTRACTS[join.left], CONTRACTS[join.right])
                for join in joins
                for side in SIDES
                if join.stream(side) == name
            ]
            for name in CONTRACTS
        }
        self._wants = {s.name: resolve_join(spark, s).want(s.side) for of in self._sides.values() for s in of}
        self._queries: dict[str, tuple[Ledger, SourceAccounts, Any]] = {}
        for name, contract in CONTRACTS.items():
            found = derive(
                spark, self.app, self.query(name), contract, Declared(joins=tuple(self._sides[name]))
            )
            if found is None:
                continue
            store = Store(store_url)
            accounts = SourceAccounts(store, self.query(name), contract, found.folds)
            accounts.prepare()
            ledger = Ledger(store, self.query(name), timedelta(days=30), accounts)
            self._queries[name] = (ledger, accounts, found.views)
        self._clocks: dict[str, dict[int, int | None]] = {name: {} for name in CONTRACTS}
        self._offsets: dict[str, dict[int, int]] = {name: {} for name in CONTRACTS}
        self._batches = dict.fromkeys(CONTRACTS, 0)

    def query(self, source: str) -> str:
        return f"{self.app}.{source}"

    def feed(self, source: str, events: Sequence[Event], *, through_spark: bool = False) -> None:
        ledger, accounts, views = self._queries[source]
        if through_spark:
            parts = self._reduced(source, list(events), accounts, views)
        else:
            parts = {side.name: self._taken(side, events) for side in self._sides[source]}
        entries = []
        for partition in sorted({event.partition for event in events}):
            mine = [event for event in events if event.partition == partition]
            before = self._clocks[source].get(partition)
            clock = max([e.event_time for e in mine] + ([] if before is None else [before]))
            first, end = min(e.offset for e in mine), max(e.offset for e in mine) + 1
            log_time = max(event.log_time for event in mine)
            entries.append(
                Entry(partition, first, end, len(mine), len(mine), 0, 0, 0, {}, clock, log_time, log_time)
            )
            self._clocks[source][partition] = clock
        batch = Batch(
            self.query(source), self._batches[source], datetime.now(UTC), Outcome(tuple(entries), 0, 0)
        )
        ledger.record(batch, parts)
        self._batches[source] += 1

    def silence(self, source: str, microseconds: int) -> None:
        """As if nothing had come for so long."""
        found = self.rows(
            "SELECT max(active_at) AS at FROM headrace.watermarks WHERE query = %(query)s",
            query=self.query(source),
        )
        if found[0]["at"] is not None:
            self._queries[source][1].tick(found[0]["at"] + timedelta(microseconds=microseconds))

    def forget_old(self, source: str) -> None:
        _, accounts, _ = self._queries[source]
        store = Store(self.url)
        for fold in accounts.folds.values():
            store.transact(fold.forget_old)

    def matches(self, join: Join) -> list[dict[str, Any]]:
        return self.table(result_table(self.app, join.name))

    def letters(self, join: Join) -> list[dict[str, Any]]:
        return self.table(letter_table(self.app, join.name))

    def table(self, name: sql.Identifier) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, row_factory=dict_row) as connection:
            return connection.execute(sql.SQL("SELECT * FROM {}").format(name)).fetchall()

    def outbox(self, topic: str) -> list[dict[str, Any]]:
        return self.rows(
            "SELECT key, value::jsonb AS value FROM headrace.outbox WHERE query LIKE %(mine)s"
            " AND topic = %(topic)s ORDER BY position",
            mine=f"{self.app}.%",
            topic=topic,
        )

    def rows(self, text: str, **values: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, row_factory=dict_row) as connection:
            return connection.execute(text, {"app": self.app, **values}).fetchall()  # type: ignore[arg-type]

    def _taken(self, side: JoinSide, events: Sequence[Event]) -> Taken:
        where, want = self._where.get(side.name, lambda _: True), self._wants[side.name]
        rows = [
            TakenRow(
                *(e.partition, e.offset, e.event_id, e.event_time, None, e.log_time),
                tuple(_evaluated(text, e) for text in want.columns.values()),
            )
            for e in sorted(events, key=lambda e: (e.partition, e.offset))
            if where(e.fields)
        ]
        return Taken(rows)

    def _reduced(self, source: str, events: list[Event], accounts: SourceAccounts, views: Any) -> Any:
        contract: Contract = CONTRACTS[source]
        kinds = {f.name: spark_type(f.type).simpleString() for f in contract.fields}
        fields = ", ".join(f"`{name}`: {kinds[name]}" for name in views.carried)
        rows = [
            (
                *(e.partition, e.offset, _time(e.log_time), b"{}", None, e.event_time, "e" + e.event_id),
                tuple(
                    _time(e.event_time) if name == "event_time" else e.fields.get(name)
                    for name in views.carried
                ),
            )
            for e in events
        ]
        held = self._spark.createDataFrame(
            rows,
            "partition int, offset bigint, log_time timestamp, value binary,"
            " reasons array<struct<code:string,field:string>>, event_time bigint, dedupe_id string,"
            f" fields struct<{fields}>",
        )
        extent, clocks = measure_extent(held), self._clocks[source]
        judged, *_ = with_fates(held, extent, clocks, timedelta(days=3650), views.closest)
        return views.reduce(judged, accounts.watermarks(), extent, clocks, len(events))


def _time(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def _evaluated(text: str, event: Event) -> str | None:
    """A column as Spark would hand it over; only plain fields are understood."""
    names = re.findall(r"`(\w+)`", text)
    assert len(names) == 1, text
    if names[0] == "event_time":
        return str(event.event_time)
    value = event.fields.get(names[0])
    return value.isoformat() if isinstance(value, date) else None if value is None else str(value)
