"""Enriched events in their topic: each accepted event once, as of its time, masked; and in files."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from pyspark.sql import SparkSession

from headrace import count
from headrace.app import Source
from headrace.connections import Connections
from headrace.contracts.model import Contract
from headrace.local.connect import connections_of
from headrace.local.services import Services
from headrace.log.topics import ensure_alert_topics, ensure_outputs, ensure_topics
from headrace.ops.audit import audit_source
from headrace.ops.audit_report import AuditReport
from headrace.ops.gate_query import GateQuery
from headrace.ops.load import LoadedApp, load_app
from headrace.ops.outbox_topics import OutboxTopics
from headrace.ops.simulate import Input, simulate
from headrace.store.connection import Store
from headrace.store.ledger import Ledger
from headrace.store.outbox import FlowOutbox

CONTRACT = """
kind: DataContract
apiVersion: v3.2.0
id: tests-clicks
version: 1.0.0
status: active
schema:
  - name: clicks
    properties:
      - {name: event_id, logicalType: string, required: true, primaryKey: true}
      - {name: event_time, logicalType: timestamp, required: true}
      - {name: customer, logicalType: string, required: true, partitioned: true}
      - {name: product_id, logicalType: string}
      - {name: price, logicalType: number, physicalType: "decimal(12,2)"}
      - {name: card, logicalType: string, customProperties: [{property: mask, value: hash}]}
slaProperties:
  - {property: retention, value: 7, unit: d}
customProperties:
  - {property: eventTime, value: event_time}
  - {property: lateness, value: 10 minutes}
  - {property: maxFutureSkew, value: 5 minutes}
  - {property: dedupeHorizon, value: 1 hour}
  - {property: partitions, value: 2}
"""
APP = """
from headrace import App, count, table, tumbling

app = App("APP")
products = table("products", key="product_id", file="products.csv", types={"list_price": "number"})
app.enrich(
    "clicks_enriched",
    of="clicks",
    with_=products,
    columns={"category": "products.category", "list_price": "products.list_price"},
    topic="APP.enriched.v1",
    unknown="UNKNOWN",
)
"""
WAITING = 'retry", retry_for="5 minutes", then="dead_letter'
TABLE = """product_id,valid_from,category,list_price
p-1,2026-03-01T09:00:00Z,kettles,10.00
p-1,2026-03-01T09:05:00Z,teapots,12.50
p-2,2026-03-01T09:10:00Z,pans,7
"""
EVENTS = (
    # event, time, product, what the table said
    ("e1", "09:04:59.999999", "p-1", "kettles", True),
    ("e2", "09:05:00", "p-1", "teapots", True),
    ("e3", "09:03:00", "p-1", "kettles", True),
    ("e4", "09:03:00", "p-2", None, False),
    ("e5", "09:10:00", "p-2", "pans", True),
    ("e6", "09:11:00", "p-9", None, False),
    ("e7", "09:12:00", None, None, None),
)


def event(event_id: str, clock: str, product: str | None) -> bytes:
    fields = {"event_id": event_id, "event_time": f"2026-03-01T{clock}Z", "customer": f"c-{event_id}"}
    more = {"product_id": product} if product else {}
    return json.dumps({**fields, **more, "price": 19.90, "card": f"card {event_id}"}).encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts" / "clicks.yaml").write_text(CONTRACT)
    (tmp_path / "products.csv").write_text(TABLE)
    return tmp_path


def app_of(folder: Path, name: str, unknown: str) -> tuple[LoadedApp, Contract]:
    (folder / "app.py").write_text(APP.replace("APP", name).replace("UNKNOWN", unknown))
    loaded = load_app(folder)
    return loaded, replace(loaded.contract("clicks"), name=name)


def prepared(services: Services, loaded: LoadedApp, contract: Contract) -> Connections:
    """With its topics and the store's own tables."""
    to = connections_of(services)
    ensure_topics(contract, to.librdkafka)
    ensure_outputs(contract, loaded.app.enrichments["clicks_enriched"].topics, to.librdkafka)
    Store(to.store_url).prepare()
    return to


def gate_of(
    spark: SparkSession,
    folder: Path,
    app: LoadedApp,
    contract: Contract,
    to: Connections,
    publish: bool = True,
) -> GateQuery:
    return GateQuery(
        *(spark, app.name, contract, Source(contract.name, publish, max_batch=2), to),
        checkpoints=str(folder / "checkpoints"),
        slots=folder / "slots",
        salt="salt",
        declared=app.declared("clicks"),
    )


def audited(
    loaded: LoadedApp, contract: Contract, to: Connections, *topics: str, publish: bool = True
) -> AuditReport:
    """A recount of everything, as `headrace audit --recount` does it."""
    enriched = {"clicks_enriched": topics or loaded.app.enrichments["clicks_enriched"].topics}
    source = Source(contract.name, publish)
    return audit_source(loaded.name, contract, source, to, enriched=enriched, recount=True)


def once_more(message: Message, options: dict[str, str]) -> None:
    producer = Producer(options)
    headers, place = list(message.headers() or []), (message.topic() or "", message.partition() or 0)
    producer.produce(place[0], message.value(), message.key(), place[1], headers=headers)
    assert producer.flush(20) == 0


def records(topic: str, partitions: int, options: dict[str, str]) -> list[Message]:
    consumer = Consumer({**options, "group.id": "t", "isolation.level": "read_committed"})
    found, deadline = [], time.monotonic() + 20
    try:
        places = [TopicPartition(topic, p, 0) for p in range(partitions)]
        consumer.assign(places)
        ends = {p.partition: consumer.get_watermark_offsets(p, timeout=10)[1] for p in places}
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message)
            positions = {p.partition: p.offset for p in consumer.position(places)}
            if all(positions[p] >= end or end == 0 for p, end in ends.items()):
                return found
    finally:
        consumer.close()
    raise AssertionError(f"{topic} was not read in time")


@pytest.mark.parametrize(
    ("unknown", "publish"), [("keep", True), ("dead_letter", True), ("dead_letter", False)]
)
def test_every_accepted_event_is_enriched_once(
    services: Services, spark: SparkSession, folder: Path, unknown: str, publish: bool
) -> None:
    """Also if it is published in no other way."""
    name = f"enriching_{unknown}_{publish}".lower()
    loaded, contract = app_of(folder, name, unknown)
    to = prepared(services, loaded, contract)
    enrich = loaded.app.enrichments["clicks_enriched"]
    producer = Producer(to.librdkafka)
    for event_id, clock, product, *_ in EVENTS:
        producer.produce(contract.topics.raw, event(event_id, clock, product), partition=0)
    producer.produce(contract.topics.raw, b"not json", partition=1)
    producer.produce(contract.topics.raw, event("e1", "09:00:00", "p-1"), partition=1)  # a duplicate
    assert producer.flush(20) == 0
    gate = gate_of(spark, folder, loaded, contract, to, publish)
    for _ in range(2):
        assert gate.start(available_now=True).awaitTermination(120)
    found = {json.loads(m.value())["event_id"]: m for m in records(enrich.topic, 2, to.librdkafka)}
    dead = records(enrich.dead_letters, 2, to.librdkafka) if unknown == "dead_letter" else []
    wanted = {e[0]: e for e in EVENTS if unknown == "keep" or e[4] is not False}
    assert set(found) == set(wanted)
    assert len(records(enrich.topic, 2, to.librdkafka)) == len(wanted)
    validated = {m.value() for m in records(contract.topics.validated, 2, to.librdkafka)}
    assert len(validated) == (len(EVENTS) if publish else 0)
    for event_id, message in found.items():
        fields = json.loads(message.value())
        _, _, product, category, is_known = wanted[event_id]
        assert (fields.get("product_id"), fields["category"], fields["products_found"]) == (
            *(product, category, is_known),
        )
        assert len(fields["card"]) == 64  # the mask, as in the validated topic
        headers = dict(message.headers())
        assert headers["headrace-contract"] == b"clicks_enriched:1.0.0"
        assert headers["headrace-source"].startswith(contract.topics.raw.encode())
    if dead:
        assert {json.loads(m.value())["event_id"] for m in dead} == {"e4", "e6"}
        assert all(m.value() in validated for m in dead if publish)
        reasons = json.loads(dict(dead[0].headers())["headrace-reasons"])
        assert reasons == [{"code": "unknown_key", "field": "product_id"}]
    with psycopg.connect(to.store_url) as store:
        totals = dict(
            store.execute(
                "SELECT outcome, count FROM headrace.enrich_totals WHERE app = %s", (name,)
            ).fetchall()
        )
        accounts = store.execute(
            "SELECT sum(accepted), sum(taken) FROM headrace.flow_ledger WHERE query = %s", (gate.name,)
        ).fetchone()
        known = store.execute(
            "SELECT name, rows, problem FROM headrace.dimensions WHERE app = %s", (name,)
        ).fetchall()
    unknown_as = "unknown" if unknown == "keep" else "dead_lettered"
    assert {name: n for name, n in totals.items() if n} == {"found": 4, unknown_as: 2, "no_key": 1}
    assert accounts == (7, 7)
    assert known == [("products", 3, "")]
    report = audited(loaded, contract, to, publish=publish)
    assert report.clean, report.findings
    assert [(f.kind, f.accepted, f.outcomes) for f in report.flows] == [("enrichment", 7, totals)]
    if dead:
        [lost] = audited(loaded, contract, to, enrich.topic, publish=publish).findings
        assert (lost.kind, lost.count) == ("lost", 2)
    once_more(found["e1"], to.librdkafka)
    [twice] = audited(loaded, contract, to, publish=publish).findings
    assert (twice.kind, twice.topic, twice.count) == ("repeated", enrich.topic, 1)


def test_a_batch_that_failed_after_publishing_is_neither_lost_nor_doubled(
    services: Services, spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two attempts the table learns a key that one of the batch's events waits for."""
    monkeypatch.setattr("headrace.store.dimensions.CHECK_SECONDS", 0.0)
    loaded, contract = app_of(folder, "enriching_again", WAITING)
    app = loaded.app
    app.signals(
        "velocity",
        of="clicks",
        key="card",
        features={"n": count(), "category": "products.category"},
        with_=app.enrichments["clicks_enriched"].tables,
        score="1.0",
        decision={"block": 0.5},
        topic="enriching_again.signals.v1",
    )
    to = prepared(services, loaded, contract)
    topic = app.enrichments["clicks_enriched"].topic
    ensure_alert_topics({"enriching_again.signals.v1"}, timedelta(days=1), to.librdkafka)
    producer = Producer(to.librdkafka)
    for event_id, clock, product, *_ in EVENTS:
        headers: Any = [("trace", event_id.encode())]
        value = event(event_id, clock, product)
        producer.produce(contract.topics.raw, value, b"k", partition=1, headers=headers)
    assert producer.flush(20) == 0
    record, failures = Ledger.record, [0]

    def failing(self: Ledger, *given: Any) -> None:
        failures[0] += 1
        if failures[0] == 2:
            raise RuntimeError("the store was lost")
        record(self, *given)

    monkeypatch.setattr(Ledger, "record", failing)
    gate = gate_of(spark, folder, loaded, contract, to)
    with pytest.raises(Exception, match="the store was lost"):
        gate.start(available_now=True).awaitTermination(120)
    more = TABLE + "p-2,2026-03-01T09:00:00Z,woks,5\n"
    (folder / "products.csv").write_text(more)
    assert gate.start(available_now=True).awaitTermination(120)
    outbox = OutboxTopics("flows", FlowOutbox(), Store(to.store_url), [gate.name], to.librdkafka)
    categories = {e[0]: e[3] for e in EVENTS} | {"e4": "woks"}

    def check_topic(*waiting: str) -> None:
        outbox.publish()
        found = records(topic, 2, to.librdkafka)
        assert [m.partition() for m in found] == [1] * (len(EVENTS) - len(waiting))
        shown = {json.loads(m.value())["event_id"]: json.loads(m.value())["category"] for m in found}
        assert shown == {name: kind for name, kind in categories.items() if name not in waiting}
        names = ["trace", "headrace-source", "headrace-contract", "headrace-clock"]
        assert all([name for name, _ in m.headers()] == names and m.key() == b"k" for m in found)

    check_topic("e6")
    (folder / "products.csv").write_text(more + "p-9,,lids,1\n")
    gate.tick()
    categories["e6"] = "lids"
    check_topic()
    outbox.close()
    with psycopg.connect(to.store_url) as store:
        totals = store.execute(
            "SELECT outcome, count FROM headrace.enrich_totals WHERE app = %s ORDER BY 1", (loaded.name,)
        ).fetchall()
        scored = store.execute(
            "SELECT event_id, length(card), category FROM enriching_again.velocity ORDER BY event_id"
        ).fetchall()
        accounts = store.execute(
            "SELECT sum(accepted), sum(taken) FROM headrace.flow_ledger WHERE query = %s AND flow = %s",
            (gate.name, "enrich.clicks_enriched"),
        ).fetchone()
        suspicious = store.execute(
            "SELECT sum(suspicious) FROM enriching_again.velocity__activity"
        ).fetchone()
    outcomes = {"found": 4, "no_key": 1, "retried": 2}
    assert {name: n for name, n in totals if n} == outcomes
    assert scored == [(e, 64, categories[e] if e != "e6" else None) for e in categories]  # cards are masked
    assert suspicious == (len(EVENTS),)
    signals = records("enriching_again.signals.v1", 1, to.librdkafka)
    assert len(signals) == len(EVENTS)
    assert accounts == (len(EVENTS), len(EVENTS))
    report = audited(loaded, contract, to)
    assert report.clean, report.findings
    boxes = {box.topic: (box.handed, box.published, box.in_topic, box.waiting) for box in report.outboxes}
    assert boxes["enriching_again.signals.v1"] == (7, 7, 7, 0)
    once_more(signals[0], to.librdkafka)
    [finding] = audited(loaded, contract, to).findings
    assert finding.kind == "outbox" and finding.note.endswith("7 published, 8 in the topic")


def test_a_changed_table_is_used_without_a_restart(
    services: Services, spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.store.dimensions.CHECK_SECONDS", 0.0)
    loaded, contract = app_of(folder, "enriching_anew", "keep")
    to = prepared(services, loaded, contract)
    topic = loaded.app.enrichments["clicks_enriched"].topic
    gate = gate_of(spark, folder, loaded, contract, to)
    query = gate.start()
    producer = Producer(to.librdkafka)

    def wait_for(count: int) -> list[str | None]:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            found = records(topic, 2, to.librdkafka)
            if len(found) >= count:
                return [json.loads(m.value())["category"] for m in found]
            time.sleep(0.2)
        raise AssertionError(f"{count} records did not come in time")

    try:
        producer.produce(contract.topics.raw, event("a1", "09:20:00", "p-5"), partition=0)
        producer.flush(10)
        assert wait_for(1) == [None]
        (folder / "products.csv").write_text(TABLE + "p-5,2026-03-01T09:00:00Z,cups,3\n")
        producer.produce(contract.topics.raw, event("a2", "09:20:00", "p-5"), partition=0)
        producer.flush(10)
        assert wait_for(2) == [None, "cups"]
    finally:
        gate.stop()
        assert not query.isActive


def test_simulate_writes_enriched_events(spark: SparkSession, services: Services, folder: Path) -> None:
    """Without log times an event waits by the time of the events: e4 has had its five minutes, e6 not yet."""
    loaded, _ = app_of(folder, "enriching_files", WAITING)
    file = folder / "clicks.jsonl"
    file.write_bytes(b"".join(event(e[0], e[1], e[2]) + b"\n" for e in EVENTS))
    contract = loaded.contract("clicks")
    given = Input(contract, file, 1, None, loaded.declared("clicks"))
    audit = simulate(
        spark,
        [given],
        folder / "out",
        salt="salt",
        store_url=services.store_url,
        app=loaded.name,
        batch_size=3,
    )
    lines = (folder / "out" / "enriching_files.enriched.v1.jsonl").read_text().splitlines()
    assert [(json.loads(line)["event_id"], json.loads(line)["category"]) for line in lines] == [
        *(("e1", "kettles"), ("e2", "teapots"), ("e3", "kettles"), ("e5", "pans"), ("e7", None)),
    ]
    dead = (folder / "out" / "enriching_files.enriched.unknown.v1.jsonl").read_text().splitlines()
    assert [json.loads(line)["event_id"] for line in dead] == ["e4"]
    counts = audit["sources"]["clicks"]["enrich.clicks_enriched"]
    wanted = {"found": 4, "no_key": 1, "dead_lettered": 1, "pending": 1}
    assert {name: n for name, n in counts.items() if n} == wanted
    schema = json.loads((folder / "out" / "clicks_enriched.schema.json").read_text())
    assert schema["properties"]["products_found"]["type"] in ("boolean", ["boolean", "null"])
