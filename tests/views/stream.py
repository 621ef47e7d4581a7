"""Accepted events through the views and the store, batch by batch, as the gate hands them over."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession

from headrace.contracts import Contract, load_contract
from headrace.contracts.spark_schema import spark_type
from headrace.gate.clock import measure_extent, with_fates
from headrace.gate.ledger import Batch, Entry, Outcome
from headrace.gate.look import look
from headrace.metrics import Metric
from headrace.store.connection import Store
from headrace.store.metric_fold import MetricFold
from headrace.store.metric_tables import key_columns, table_name
from headrace.store.source_accounts import SourceAccounts
from headrace.views.batch import METRICS, MetricReducer, Views
from headrace.views.resolve import resolve
from tests.oracle.metrics_oracle import Event

CONTRACT = Path(__file__).parent / "sales.yaml"
LATENESS = timedelta(days=3650)  # nothing is late at the gate: the views are what is tested
_numbers = itertools.count()


class Stream:
    """One source with metrics on a real store; `feed` is one batch."""

    def __init__(self, spark: SparkSession, store_url: str, *metrics: Metric) -> None:
        self.app = f"views_{next(_numbers)}_{datetime.now(UTC):%H%M%S%f}"
        self.contract: Contract = load_contract(CONTRACT)
        self._spark, self._url = spark, store_url
        self.store = Store(store_url)
        self.store.prepare()
        resolved = resolve(spark, metrics, self.contract)
        self.views = Views([MetricReducer(resolved)])
        self.accounts = SourceAccounts(
            self.store, self.app, self.contract, {METRICS: MetricFold(self.app, self.app, resolved)}
        )
        self.accounts.prepare()
        self._clocks: dict[int, int | None] = {}
        self._batches = 0

    def feed(self, events: Iterable[Event]) -> None:
        events = list(events)
        if not events:
            return
        held = self._frame(events)
        guess = self.views.guess
        extent, guessed = look(held, guess) if guess is not None else (measure_extent(held), None)
        judged, _, old, _ = with_fates(held, extent, self._clocks, LATENESS, self.views.closest)
        watermarks = self.accounts.watermarks()
        guessed = None if old else guessed
        parts = self.views.reduce(judged, watermarks, extent, self._clocks, len(events), guessed)
        entries = []
        for partition in sorted({event.partition for event in events}):
            mine = [event for event in events if event.partition == partition]
            before = self._clocks.get(partition)
            clock = max([event.event_time for event in mine] + ([] if before is None else [before]))
            log_time = max(event.log_time for event in mine)
            entries.append(Entry(partition, 0, 0, len(mine), len(mine), 0, 0, 0, {}, clock, log_time))
            self._clocks[partition] = clock
        batch = Batch(self.app, self._batches, datetime.now(UTC), Outcome(tuple(entries), 0, 0))
        self.keep(batch, parts)
        self._batches += 1

    def keep(self, batch: Batch, parts: Mapping[str, Any]) -> None:
        self.store.transact(lambda connection: self.accounts.record(connection, batch, parts))

    def silence(self, microseconds: int) -> None:
        """As if nothing had come for so long."""
        with psycopg.connect(self._url) as connection:
            found = connection.execute(
                "SELECT max(active_at) FROM headrace.watermarks WHERE query = %s", (self.app,)
            ).fetchone()
        assert found is not None
        if found[0] is not None:
            self.accounts.tick(found[0] + timedelta(microseconds=microseconds))

    def rows(self, metric: Metric) -> dict[tuple[Any, ...], dict[str, Any]]:
        """By key: start and end in microseconds, grouping, labels."""
        with psycopg.connect(self._url) as connection:
            cursor = connection.execute(sql.SQL("SELECT * FROM {}").format(table_name(self.app, metric)))
            names = [column.name for column in cursor.description or ()]
            found = [dict(zip(names, row, strict=True)) for row in cursor]
        keyed = {}
        for row in found:
            start, end, *rest = (row[name] for name in key_columns(metric))
            keyed[(_micros(start), _micros(end), *rest)] = row
        return keyed

    def query(self, text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._url) as connection:
            return connection.execute(text, {"app": self.app}).fetchall()  # type: ignore[arg-type]

    def _frame(self, events: list[Event]) -> DataFrame:
        carried = self.views.carried
        kinds = {f.name: spark_type(f.type).simpleString() for f in self.contract.fields}
        fields = ", ".join(f"`{name}`: {kinds[name]}" for name in carried)
        rows = [
            (
                *(e.partition, e.offset, datetime.fromtimestamp(0, UTC) + timedelta(microseconds=e.log_time)),
                *(b"{}", None, e.event_time, "e" + e.event_id, tuple(e.fields.get(name) for name in carried)),
            )
            for e in events
        ]
        return self._spark.createDataFrame(
            rows,
            "partition int, offset bigint, log_time timestamp, value binary,"
            f" reasons array<struct<code:string,field:string>>, event_time bigint, dedupe_id string,"
            f" fields struct<{fields}>",
        )


def _micros(time: datetime) -> int:
    return (time - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
