"""Hostile records through the real gate and broker: the recount agrees with every fate."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headrace.app import Source
from headrace.contracts import load_contract
from headrace.local.connect import connections_of
from headrace.local.services import Services
from headrace.log.topics import ensure_topics
from headrace.ops.audit import audit_source
from headrace.ops.gate_query import GateQuery
from headrace.store.connection import Store
from headrace.testing.fuzz import fuzz_records

ORDERS = Path(__file__).parents[2] / "apps" / "turanmart" / "contracts" / "orders.yaml"
RECORDS = 4_000


def test_the_recount_agrees_with_the_gate(services: Services, spark: SparkSession, tmp_path: Path) -> None:
    connections = connections_of(services)
    contract, source = replace(load_contract(ORDERS), name="fuzzed"), Source("fuzzed", max_batch=1_500)
    ensure_topics(contract, connections.librdkafka)
    Store(connections.store_url).prepare()
    producer = Producer(connections.librdkafka)
    for n, value in enumerate(fuzz_records(contract, RECORDS, seed=77, now=datetime.now(UTC))):
        producer.produce(contract.topics.raw, value, partition=n % contract.partitions)
    assert producer.flush(30) == 0
    gate = GateQuery(
        *(spark, "fuzzed", contract, source, connections),
        checkpoints=str(tmp_path / "checkpoints"),
        slots=tmp_path / "slots",
        salt="salt",
    )
    assert gate.start(available_now=True).awaitTermination(120)
    report = audit_source("fuzzed", contract, source, connections, recount=True)
    assert report.clean, report.findings
    assert report.fates.received == RECORDS
    assert min(report.fates.accepted, report.fates.rejected) > RECORDS // 10
