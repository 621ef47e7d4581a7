"""A small shop with metrics that has gone through the gate, for the tests that look at it afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from confluent_kafka import Producer

from headrace.app import Source
from headrace.connections import Connections
from headrace.local.connect import connections_of
from headrace.local.services import Services
from headrace.log.topics import ensure_topics
from headrace.ops.gate_query import GateQuery
from headrace.ops.load import LoadedApp, load_app
from headrace.store.connection import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SALES = Path(__file__).parents[1] / "views" / "sales.yaml"
MINE = "query = 'measured.measured_sales'"
DAY = "2026-03-01"
APP = """
from headrace import App, count, running, sliding, sum_of, tumbling

app = App("measured")
measures = {"n": count(), "revenue": sum_of("price * items")}
times = {"preliminary_after": "20 seconds", "final_after": "60 seconds"}
minute = tumbling("1 minute")
by = [[], ["region"], ["kind", "region"]]
app.metric("by_place", of="measured_sales", window=minute, by=by, measures=measures, **times)
app.metric(
    "large_sales",
    of="measured_sales",
    window=minute,
    by=[[], ["items"]],
    where="kind = 'sale' AND price * items > 10",
    measures=measures,
    **times,
)
app.metric("by_card", of="measured_sales", window=minute, by=["card"], measures=measures, **times)
app.metric("crowded", of="measured_sales", window=minute, by=["region"], limit=1, measures=measures, **times)
two = sliding("2 minutes", every="1 minute")
app.metric("two_minutes", of="measured_sales", window=two, measures=measures, **times)
today = tumbling("1 day", time="ingestion")
app.metric("arrived_today", of="measured_sales", window=today, measures=measures)
so_far = running(reset="10 minutes", trigger="1 minute")
app.metric("so_far", of="measured_sales", window=so_far, by=[[], ["region"]], measures=measures)
app.sessions(
    "card_visits",
    of="measured_sales",
    key="card",
    gap="15 seconds",
    max_length="10 minutes",
    where="kind = 'sale'",
    measures={"n": count()},
    final_after="60 seconds",
)
app.alert("busy", on="by_place", when="n >= 3", topic="measured_alerts.v1", message="{n} sales at once")
"""
# Three records are a batch; the row of 09:00 becomes preliminary, then corrected, then final.
FIRST = (
    ("e1", "09:00:10", "tashkent", "sale", "20.00", 1),
    ("e2", "09:00:20", "almaty", "sale", "5.00", 1),
    ("e3", "09:00:30", "tashkent", "refund", "20.00", 1),
    ("e4", "09:01:25", "tashkent", "sale", "40.00", 1),
    ("e5", "09:00:40", "tashkent", "sale", "30.50", 2),
    ("e6", "09:00:50", None, "sale", "12.00", 1),
    ("e7", "09:00:55", "(vip)", "sale", "11.00", 3),
    ("e8", "09:02:05", "almaty", "sale", "99.00", 1),
    ("e9", "09:00:31", "tashkent", "sale", "50.00", 1),  # the clock is at 09:02:05
    ("e10", "09:00:33", "almaty", "sale", "60.00", 2),
    ("e1", "09:00:10", "tashkent", "sale", "20.00", 1),  # a duplicate
    ("e12", "09:00:00", "tashkent", "sale", "no price", 1),
)
# A partition that was silent until its window had become final.
THEN = (("e11", "09:00:45", "tashkent", "sale", "70.00", 1),)
Line = tuple[str, str, str | None, str, str, int]


@dataclass(frozen=True)
class Measured:
    folder: Path
    loaded: LoadedApp
    connections: Connections

    def query(self, text: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.connections.store_url) as store:
            return store.execute(text).fetchall()

    @contextmanager
    def tampered(self, change: str) -> Iterator[None]:
        """Change the accounts of the metrics, and put them back."""
        with psycopg.connect(self.connections.store_url, autocommit=True) as store:
            store.execute(f"CREATE TEMP TABLE kept AS SELECT * FROM headrace.metric_ledger WHERE {MINE}")
            assert store.execute(f"{change} AND {MINE}").rowcount > 0
            try:
                yield
            finally:
                store.execute(f"DELETE FROM headrace.metric_ledger WHERE {MINE}")
                store.execute("INSERT INTO headrace.metric_ledger SELECT * FROM kept")


@pytest.fixture(scope="session")
def measured(
    services: Services, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Measured]:
    folder = tmp_path_factory.mktemp("measured")
    (folder / "contracts").mkdir()
    text = SALES.read_text().replace("name: sales", "name: measured_sales").replace("tests-sales", "measured")
    card = "      - {name: card, logicalType: string, customProperties: [{property: mask, value: hash}]}\n"
    (folder / "contracts" / "measured_sales.yaml").write_text(
        text.replace("slaProperties:", f"{card}slaProperties:")
    )
    (folder / "app.py").write_text(APP)
    loaded = load_app(folder)
    contract, connections = loaded.contract("measured_sales"), connections_of(services)
    ensure_topics(contract, connections.librdkafka)
    Store(connections.store_url).prepare()
    gate = GateQuery(
        spark,
        loaded.name,
        contract,
        Source(contract.name, max_batch=3),
        connections,
        checkpoints=str(folder / "checkpoints"),
        slots=folder / "slots",
        salt="salt",
        declared=loaded.declared(contract.name),
    )
    for partition, lines in ((0, FIRST), (1, THEN)):
        producer = Producer(connections.librdkafka)
        for line in lines:
            producer.produce(contract.topics.raw, sale(*line), partition=partition)
        assert producer.flush(20) == 0
        assert gate.start(available_now=True).awaitTermination(240)
    yield Measured(folder, loaded, connections)


def sale(event_id: str, clock: str, region: str | None, kind: str, price: str, items: int) -> bytes:
    event = {"event_id": event_id, "event_time": f"{DAY}T{clock}Z", "customer": "c", "kind": kind}
    rest = {"region": region, "items": items, "card": f"card of {region}"}
    amount = price if price == "no price" else float(price)
    return json.dumps({**event, **rest, "price": amount}).encode()
