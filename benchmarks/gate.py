"""The gate against its ceiling: what Spark needs to read and parse the same events and throw them away."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
from psycopg import sql
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.meter import Meter, Reading
from headrace.app import App, Source
from headrace.contracts import Contract, load_contract
from headrace.contracts.spark_schema import spark_schema
from headrace.declared import Declared
from headrace.enrich import Enrich
from headrace.joins import SIDES, Join, JoinSide
from headrace.local.connect import connections_of
from headrace.local.services import Services
from headrace.log.produce import produce
from headrace.log.record import Record
from headrace.log.topics import ensure_outputs, ensure_topics
from headrace.metrics import Metric
from headrace.ops.gate_query import GateQuery
from headrace.patterns import Pattern
from headrace.sessions import Sessions
from headrace.store.connection import Store

CONTRACT = Path(__file__).parents[1] / "apps" / "turanmart" / "contracts" / "clickstream.yaml"
LEFT_OUT = ("campaign", "trace_id", "checkout_ms")  # 13 of the 16 fields are filled
DUPLICATES = 0.01
ACTIVE_VISITS = 4_000
TYPES = ("page_view", "product_impression", "product_click", "add_to_cart", "checkout_started", "purchase")
WEIGHTS = (30, 45, 15, 6, 2.5, 1.5)
REGIONS = ("tashkent", "almaty", "bishkek", "samarkand", "astana")
DEVICES = ("ios", "android", "web", "mobile_web")
BATCH = 500_100  # Spark rounds a partition's share down: without the rest, a last tiny batch would follow


@dataclass(frozen=True)
class Result:
    """One way to process the events; `net` is the time inside Spark's triggers, start-up left out."""

    name: str
    events: int
    net: float
    reading: Reading

    @property
    def cpu_per_event(self) -> float:
        return self.reading.cpu_seconds / self.events * 1e6


class GateBench:
    """One broker, one Spark session, one topic of events; every run reads the same."""

    def __init__(
        self, spark: SparkSession, services: Services, folder: Path, stream: str, events: int
    ) -> None:
        self.spark, self.folder, self.events = spark, folder, events
        self.contract: Contract = replace(load_contract(CONTRACT), name=stream)
        self.connections = connections_of(services)
        self._services = {s.keeper_pid for s in services.embedded}
        ensure_topics(self.contract, self.connections.librdkafka)
        Store(self.connections.store_url).prepare()

    def load(self) -> None:
        produce(
            made_events(self.contract.name, self.events),
            self.connections.librdkafka,
            lambda _: self.contract.topics.raw,
            rate=None,
        )

    def ceiling(self, name: str, fetch: dict[str, str]) -> Result:
        options = {f"kafka.{key}": value for key, value in self.connections.java.items()}
        schema = [f for f in spark_schema(self.contract).fields if f.name not in LEFT_OUT]
        ddl = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in schema)
        reader = self.spark.readStream.format("kafka").options(**options, **fetch)
        raw = reader.option("subscribe", self.contract.topics.raw).option("startingOffsets", "earliest")
        raw_stream = raw.option("maxOffsetsPerTrigger", BATCH).load()
        parsed = raw_stream.select(F.from_json(F.col("value").cast("string"), ddl).alias("e")).select("e.*")
        with Meter(self._services) as meter:
            writer = parsed.writeStream.format("noop").option("checkpointLocation", self._checkpoint())
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
        net = sum(p.durationMs["triggerExecution"] for p in query.recentProgress) / 1000
        return Result(name, self.events, net, meter.reading)

    def gate(
        self,
        name: str,
        *,
        publish: bool,
        metrics: Sequence[Metric] = (),
        joins: Sequence[Join] = (),
        patterns: Sequence[Pattern] = (),
        enrich: Sequence[Enrich] = (),
        sessions: Sequence[Sessions] = (),
    ) -> Result:
        run = uuid.uuid4().hex[:8]
        for each in enrich:
            ensure_outputs(self.contract, each.topics, self.connections.librdkafka)
        source = Source(self.contract.name, publish=publish, max_batch=BATCH)
        sides = [JoinSide(join, side, self.contract, self.contract) for join in joins for side in SIDES]
        declared = Declared(
            tuple(metrics),
            joins=tuple(sides),
            patterns=tuple(patterns),
            enrich=tuple(enrich),
            sessions=tuple(sessions),
        )
        gate = self.query(run, source, declared)
        with Meter(self._services) as meter:
            query = gate.start(available_now=True)
            query.awaitTermination()
        net = sum(p.durationMs["triggerExecution"] for p in query.recentProgress) / 1000
        # Postgres would look after the tables of this run while the next one is measured.
        with psycopg.connect(self.connections.store_url) as store:
            store.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(f"bench_{run}")))
        return Result(name, self.events, net, meter.reading)

    def trigger(self, rate: float, seconds: float, metrics: Sequence[Metric] = ()) -> float:
        """The median duration of a trigger while events come in at a rate.

        The gate remembers the ids of `events` from before: forgetting looks at each of them in every batch.
        """
        declared = Declared(tuple(metrics))
        gate = self.query(uuid.uuid4().hex[:8], Source(self.contract.name), declared)
        query = gate.start()
        while query.lastProgress is None or query.status["isDataAvailable"]:
            time.sleep(0.1)
        before = query.lastProgress.batchId
        live = made_events(self.contract.name, int(rate * seconds), start=datetime.now(UTC), seed=99)
        produce(live, self.connections.librdkafka, lambda _: self.contract.topics.raw, rate=rate)
        durations = [
            p.durationMs["triggerExecution"] / 1000
            for p in query.recentProgress
            if p.batchId > before and p.numInputRows > 0
        ]
        gate.stop()
        return median(durations)

    def join(self, name: str, left: str, right: str, **more: Any) -> Join:
        """Two kinds of events of one visit, or of one product in it."""
        app = App("bench")
        stream = self.contract.name
        where = {"left_where": f"event_type = '{left}'", "right_where": f"event_type = '{right}'"}
        return app.join(name, left=stream, right=stream, order="log", topic=f"{name}.v1", **where, **more)

    def query(self, run: str, source: Source, declared: Declared, **more: Any) -> GateQuery:
        return GateQuery(
            self.spark,
            f"bench_{run}",
            self.contract,
            source,
            self.connections,
            checkpoints=self._checkpoint(),
            slots=self.folder / "slots",
            salt="bench",
            declared=declared,
            **more,
        )

    def _checkpoint(self) -> str:
        return str(self.folder / "checkpoints" / uuid.uuid4().hex)


def made_events(
    stream: str, count: int, start: datetime | None = None, seed: int = 1, delay: float = 5.0
) -> Iterator[Record]:
    """Seeded events of about 330 bytes, 13 fields each, at 2,000 a second, the last ones of now.

    As in a shop: a visit is some twenty events of one customer, few products get most of the clicks, and few
    clicks end in a purchase. An event is up to `delay` seconds old when it comes.
    """
    r = random.Random(seed)
    step = 0.0005
    begin = start or datetime.now(UTC) - timedelta(seconds=count * step)
    visits = [_Visit(r) for _ in range(ACTIVE_VISITS)]
    again: Record | None = None
    for number in range(count):
        if again is not None and r.random() < DUPLICATES:
            yield again
            continue
        moment = begin + timedelta(seconds=number * step - r.random() * delay)
        place = r.randrange(ACTIVE_VISITS)
        visit = visits[place]
        if r.random() < 0.05:
            visit = visits[place] = _Visit(r)
        [kind] = r.choices(TYPES, WEIGHTS)
        product = int(5000 * r.random() ** 3)
        value = (
            f'{{"event_id":"{r.getrandbits(128):032x}","event_type":"{kind}",'
            f'"event_time":"{moment.isoformat(timespec="milliseconds")[:-6]}Z",'
            f'"session_id":"{visit.session}","customer_id":"{visit.customer}",'
            f'"region":"{visit.region}","device_type":"{visit.device}",'
            f'"page":"/catalogue/{product % 200}","product_id":"p-{product}",'
            f'"price":{r.randrange(100, 99_999) / 100},"quantity":{r.randrange(1, 4)},'
            f'"schema_version":"1.0","producer":"storefront-web"}}'
        )
        record = Record(stream, visit.customer.encode(), value.encode(), moment.timestamp())
        if number % 50 == 0:
            again = record
        yield record


class _Visit:
    def __init__(self, r: random.Random) -> None:
        self.customer = f"c-{r.randrange(200_000):06d}"
        self.session = f"s-{r.getrandbits(40):010x}"
        self.region, self.device = r.choice(REGIONS), r.choice(DEVICES)
