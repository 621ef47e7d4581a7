"""A small app whose accounts a test writes itself, through the same code as the engine does."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from confluent_kafka import Producer

from headrace.connections import Connections, query_name
from headrace.gate.ledger import Batch, Entry, Outcome
from headrace.local.connect import connections_of
from headrace.local.services import Services
from headrace.log.topics import ensure_topics
from headrace.ops.load import LoadedApp, load_app
from headrace.store.connection import Store
from headrace.store.ledger import Ledger
from headrace.store.metric_tables import STATEMENTS
from headrace.store.reports import Report, read_reports, save_report
from headrace.store.times import to_micros

SALES = Path(__file__).parents[1] / "views" / "sales.yaml"
APP = """
from headrace import App, count, tumbling

app = App("{app}")
app.metric("sold", of="{stream}", window=tumbling("1 minute"), measures={{"n": count()}})
"""
LANE = """
app.signals(
    "fast",
    of="{stream}",
    key="customer",
    features={{"price_now": "price"}},
    score="price_now",
    decision={{"block": 1.0}},
    topic="{stream}_fast.v1",
    lane="realtime",
)
"""
PROMISES = (
    "slaProperties:\n  - {property: freshness, value: 30, unit: s}\n"
    "  - {property: latency, value: 5, unit: s}\n  - {property: errorRate, value: 10, unit: percent}\n"
)


@dataclass
class Books:
    """`write` records a batch that ended just now; `send` puts records into the raw topic."""

    loaded: LoadedApp
    connections: Connections
    store: Store
    stream: str
    batches: int = 0

    @property
    def query(self) -> str:
        return query_name(self.loaded.name, self.stream)

    def send(self, partition: int, count: int) -> None:
        producer = Producer({**self.connections.librdkafka})
        for _ in range(count):
            producer.produce(self.loaded.contract(self.stream).topics.raw, b"{}", partition=partition)
        assert producer.flush(20) == 0

    def write(
        self,
        partition: int,
        fates: tuple[int, int, int, int],
        *,
        at: int = 0,
        reasons: dict[str, int] | None = None,
        oldest: timedelta = timedelta(),
        clock: datetime | None = None,
    ) -> None:
        """`fates` are accepted, rejected, late and duplicate; `oldest` is how old the oldest record was."""
        now, count = datetime.now(UTC), sum(fates)
        entry = Entry(
            *(partition, at, at + count, count, *fates, reasons or {}),
            *(to_micros(clock or now), to_micros(now), to_micros(now - oldest)),
        )
        started = now - timedelta(seconds=0.4)
        batch = Batch(self.query, self.batches, started, Outcome((entry,), fates[3], 0))
        Ledger(self.store, self.query, timedelta(days=30)).record(batch, [])
        self.batches += 1

    def report(self, change: Callable[[Report], None] = lambda _: None, query: str = "") -> None:
        name = query or self.query

        def write(connection: psycopg.Connection[tuple[object, ...]]) -> None:
            now = datetime.now(UTC)
            report = read_reports(connection, [name]).get(name) or Report(name, now, now)
            change(report)
            save_report(connection, report, self.loaded.name, ["sold"])

        self.store.transact(write)

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> None:
        with psycopg.connect(self.connections.store_url) as connection:
            connection.execute(statement, values)  # type: ignore[arg-type]


def own_database(services: Services, name: str) -> Connections:
    """The shared services, with a database that no other test sees."""
    with psycopg.connect(services.store_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    url = urlsplit(services.store_url)._replace(path=f"/{name}").geturl()
    return replace(connections_of(services), store_url=url)


def open_books(connections: Connections, folder: Path, app: str, more: str = "") -> Books:
    """An app of its own: two partitions, promises, one metric, and what `more` declares; no engine."""
    stream = f"{app}_sales"
    (folder / "contracts").mkdir(parents=True)
    text = SALES.read_text().replace("name: sales", f"name: {stream}").replace("tests-sales", app)
    (folder / "contracts" / "sales.yaml").write_text(text.replace("slaProperties:\n", PROMISES))
    (folder / "app.py").write_text(APP.format(app=app, stream=stream) + more.format(stream=stream))
    loaded = load_app(folder)
    ensure_topics(loaded.contract(stream), connections.librdkafka)
    store = Store(connections.store_url)
    store.prepare()
    books = Books(loaded, connections, store, stream)
    for statement in STATEMENTS:
        books.execute(statement)
    return books


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "the condition did not come true in time"
        time.sleep(0.02)
