"""The same raw log in small and in large batches: every coordinate has the same fate."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from headrace.app import Source
from headrace.connections import Connections, query_name
from headrace.contracts import Contract, load_contract
from headrace.fates import ACCEPTED, LATE, REJECTED
from headrace.gate.ledger import Batch
from headrace.gate.restore import with_bytes
from headrace.local.connect import connections_of
from headrace.local.services import Services
from headrace.log.produce import produce
from headrace.log.record import Record
from headrace.log.topics import ensure_topics
from headrace.ops import gate_query
from headrace.ops.audit import audit_source
from headrace.ops.gate_query import GateQuery
from headrace.store.connection import Store
from headrace.store.ledger import Ledger
from headrace.testing.traffic import load_traffic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TURANMART = Path(__file__).parents[2] / "apps" / "turanmart"
EVENTS = 6_000
DEADLINE = 120.0


def test_batch_sizes_change_no_fate(services: Services, spark: SparkSession, tmp_path: Path) -> None:
    connections = connections_of(services)
    Store(connections.store_url).prepare()
    records = _records(seed=7)
    small, large = (_fates(spark, tmp_path, connections, records, size) for size in (1_000, 100_000))
    assert len(small) > EVENTS * 0.9
    assert {fate for fate, _ in small.values()} == {ACCEPTED, REJECTED, LATE}
    assert small == large
    silent = _fates(spark, tmp_path, connections, records, 90_000, publish=False)
    assert silent == {place: known for place, known in large.items() if known[0] != ACCEPTED}
    assert _ledger(connections, 90_000) == _ledger(connections, 100_000)


def test_late_records_of_a_silent_source_leave_whole(
    services: Services, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their own log times they are not late, so the batch comes without their bytes."""
    connections = connections_of(services)
    Store(connections.store_url).prepare()
    records = _records(seed=8)
    for size in (80_000, 2_000):
        ensure_topics(_contract(size), connections.librdkafka)
        _send_stamped(records, _contract(size), connections)
    whole = _fates(spark, tmp_path, connections, [], 80_000)
    restored, record_batch, attempts = [0], Ledger.record, [0]

    def counting(leaving: DataFrame, *more: Any) -> DataFrame:
        restored[0] += 1
        return with_bytes(leaving, *more)

    def failing(self: Ledger, batch: Batch, parts: Mapping[str, Any]) -> None:
        attempts[0] += 1
        if attempts[0] == 1:
            assert batch.outcome.entries  # it is published
            raise RuntimeError("the store was lost")
        record_batch(self, batch, parts)

    monkeypatch.setattr(gate_query, "with_bytes", counting)
    monkeypatch.setattr(Ledger, "record", failing)
    with pytest.raises(Exception, match="the store was lost"):
        _fates(spark, tmp_path, connections, [], 2_000, publish=False)
    silent = _fates(spark, tmp_path, connections, [], 2_000, publish=False)
    assert silent == {place: known for place, known in whole.items() if known[0] != ACCEPTED}
    assert {fate for fate, _ in silent.values()} == {REJECTED, LATE} and restored[0] > 1
    assert _ledger(connections, 2_000) == _ledger(connections, 80_000)


def _records(seed: int) -> list[Record]:
    """The first of two copies is kept where they share a partition, so every record goes by its key."""
    model = load_traffic(TURANMART)
    options = model.options(
        events=EVENTS, seed=seed, streams={"clickstream": 1}, duplicates=0.05, late=0.2, malformed=0.05
    )
    return [record for record in model.records(options) if record.key is not None]


def _send_stamped(records: list[Record], contract: Contract, connections: Connections) -> None:
    """With the time of the event as that of the record, in a topic that takes it from its producers."""
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        contract.topics.raw,
        incremental_configs=[
            ConfigEntry("message.timestamp.type", "CreateTime", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin = AdminClient(connections.librdkafka)
    [changed] = admin.incremental_alter_configs([resource]).values()
    changed.result(20)
    failures: list[Any] = []
    # Idempotent, so that both topics have the records in one order.
    producer = Producer({**connections.librdkafka, "enable.idempotence": True})
    for record in records:
        found = re.search(rb'"event_time": ?"([^"]+)"', record.value or b"")
        try:
            moment = datetime.fromisoformat(found[1].decode()) if found else datetime.now(UTC)
        except ValueError:
            moment = datetime.now(UTC)
        partition = zlib.crc32(record.key or b"") % contract.partitions
        stamp = min(max(1.0, moment.timestamp()), time.time())
        producer.produce(
            *(contract.topics.raw, record.value, record.key, partition),
            on_delivery=lambda error, _: failures.append(error) if error else None,
            timestamp=int(stamp * 1000),
        )
    assert producer.flush(20) == 0 and not failures


def test_a_batch_that_runs_again_counts_the_copies_that_it_has_published(
    services: Services, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark reads partitions in another order then, so of copies in several it keeps another one."""
    connections = connections_of(services)
    Store(connections.store_url).prepare()
    contract = replace(load_contract(TURANMART / "contracts" / "clickstream.yaml"), name="copies")
    ensure_topics(contract, connections.librdkafka)
    model = load_traffic(TURANMART)
    clean = dict.fromkeys(("duplicates", "late", "malformed", "future"), 0.0)
    records = [*model.records(model.options(events=40, seed=3, streams={"clickstream": 1}, **clean))]
    producer = Producer(connections.librdkafka)
    for record in records:
        for partition in range(contract.partitions):
            producer.produce(contract.topics.raw, record.value, record.key, partition)
    assert producer.flush(20) == 0
    record_batch, attempts = Ledger.record, [0]

    def failing(self: Ledger, batch: Batch, parts: Mapping[str, Any]) -> None:
        attempts[0] += 1
        if attempts[0] == 1:
            assert batch.outcome.accepted == len(records)  # it is published
            raise RuntimeError("the store was lost")
        record_batch(self, batch, parts)

    monkeypatch.setattr(Ledger, "record", failing)
    places = {"checkpoints": str(tmp_path / "checkpoints"), "slots": tmp_path / "slots"}
    source = Source(contract.name)
    gate = GateQuery(spark, "replay", contract, source, connections, salt="s", **places)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="the store was lost"):
        gate.start(available_now=True).awaitTermination(DEADLINE)
    published = _published(contract, connections)
    assert gate.start(available_now=True).awaitTermination(DEADLINE)
    assert attempts[0] == 2 and len(published) == len(records)
    assert _published(contract, connections) == published
    report = audit_source("replay", contract, source, connections, recount=True)
    assert report.clean, report.findings


def _ledger(connections: Connections, size: int) -> list[tuple[object, ...]]:
    """What became of the records of each partition, and how far its clock is."""
    with psycopg.connect(connections.store_url) as store:
        return store.execute(
            "SELECT partition, sum(received), sum(accepted), sum(rejected), sum(late), sum(duplicate),"
            " max(clock)"
            " FROM headrace.ledger WHERE query = %s GROUP BY 1 ORDER BY 1",
            (query_name("replay", f"replayed_{size}"),),
        ).fetchall()


def _contract(size: int) -> Contract:
    return replace(load_contract(TURANMART / "contracts" / "clickstream.yaml"), name=f"replayed_{size}")


def _fates(
    spark: SparkSession,
    folder: Path,
    connections: Connections,
    records: list[Record],
    size: int,
    *,
    publish: bool = True,
) -> dict[tuple[int, int], tuple[int, bytes | None]]:
    """Fate and value of each source coordinate; one that is missing was a duplicate."""
    contract = _contract(size)
    ensure_topics(contract, connections.librdkafka)
    produce(iter(records), connections.librdkafka, lambda _: contract.topics.raw, rate=None)
    source = Source(contract.name, publish=publish, max_batch=size)
    places = {"checkpoints": str(folder / "checkpoints"), "slots": folder / "slots"}
    gate = GateQuery(spark, "replay", contract, source, connections, salt="s", **places)  # type: ignore[arg-type]
    assert gate.start(available_now=True).awaitTermination(DEADLINE)
    return _published(contract, connections)


def _published(
    contract: Contract, connections: Connections
) -> dict[tuple[int, int], tuple[int, bytes | None]]:
    found = {}
    consumer = Consumer(
        {
            **connections.librdkafka,
            "group.id": "replay-test",
            "isolation.level": "read_committed",
            "enable.partition.eof": "true",
        }
    )
    for fate, topic in enumerate(contract.topics.outputs):
        left, until = contract.partitions, time.monotonic() + DEADLINE
        consumer.assign([TopicPartition(topic, p, 0) for p in range(left)])
        while left:
            assert time.monotonic() < until, f"{topic} could not be read to its end"
            message = consumer.poll(1.0)
            if message is not None and message.error():
                left -= 1
            elif message is not None:
                [place] = [v for name, v in message.headers() or () if name == "headrace-source"]
                _, partition, offset, _ = bytes(place).decode().split("/")  # type: ignore[arg-type]
                assert (int(partition), int(offset)) not in found
                value = message.value()
                found[(int(partition), int(offset))] = (fate, value)  # type: ignore[assignment]
    consumer.close()
    return found  # type: ignore[return-value]
