"""The real-time lane on a real broker: at least once, with the same id, through kill -9."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psycopg
from click.testing import Result
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headrace.cli import app as cli
from headrace.connections import Connections
from headrace.local.connect import connections_of
from headrace.local.services import Services
from headrace.log.topics import ensure_topics
from headrace.ops.lane_reports import LaneReporter
from headrace.ops.load import load_app
from headrace.ops.realtime_query import RealtimeQuery
from headrace.settings import Settings, load
from headrace.store.connection import Store
from tests.views.stream import CONTRACT

APP = """
from headrace import App, rule, table

app = App("lane")
app.signals(
    "fast",
    of="lane_sales",
    key="customer",
    where="kind = 'sale'",
    features={"price_now": "price", "risk": "risks.risk"},
    with_=table("risks", key="customer", file="risks.csv", types={"risk": "number"}),
    score=rule("price_now / 100 + coalesce(risk, 0)", version="1"),
    decision={"block": 0.5},
    topic="lane_fast.v1",
    lane="realtime",
)
"""
DEADLINE = 150.0
Records = list[dict[str, Any]]


def test_every_event_has_its_signal_after_a_kill(
    spark: SparkSession, services: Services, tmp_path: Path
) -> None:
    (tmp_path / "contracts").mkdir()
    text = CONTRACT.read_text().replace("name: sales", "name: lane_sales").replace("tests-sales", "lane")
    (tmp_path / "contracts" / "lane_sales.yaml").write_text(text)
    (tmp_path / "risks.csv").write_text("customer,valid_from,risk\nc1,,0.4\n")
    (tmp_path / "app.py").write_text(APP)
    loaded, to = load_app(tmp_path), connections_of(services)
    contract = loaded.contract("lane_sales")
    ensure_topics(contract, to.librdkafka)
    environment = {
        **os.environ,
        "HEADRACE_KAFKA_BOOTSTRAP": to.bootstrap,
        "HEADRACE_STORE_URL": to.store_url,
        "HEADRACE_MASK_SALT": "salt",
    }
    sent = _send(contract.topics.raw, to.librdkafka, range(40))
    with (tmp_path / "engine.log").open("wb") as log:
        command = [sys.executable, "-m", "headrace.cli", "run", str(tmp_path)]
        engine = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    try:
        _wait(lambda: {r["id"] for r in _read(to.librdkafka)} == _wanted(sent), engine, tmp_path)
        _wait(lambda: len(_rows(to.store_url)) == len(_sales(sent)), engine, tmp_path)
    finally:
        engine.kill()
        engine.wait(30)
    assert engine.returncode == -signal.SIGKILL
    before = _read(to.librdkafka)
    # The gate has kept the same in its table, once; the topic is the lane's alone.
    blocked = {key: row for key, row in _rows(to.store_url).items() if row["decision"] == "block"}
    assert blocked.keys() == _wanted(sent)
    assert all(blocked[r["id"]]["score"] == r["score"] for r in before)
    # Nothing of the batch was noted when the engine died: the next one sends it again, and then the rest.
    sent += _send(contract.topics.raw, to.librdkafka, range(40, 60))
    settings: Settings = load(tmp_path, environment)
    lane = RealtimeQuery(
        *(spark, loaded.name, contract, loaded.lane_of("lane_sales"), to),
        checkpoints=str(settings.folder / settings.checkpoint_dir),
        salt="salt",
        batch_seconds=5.0,
    )
    reporter = LaneReporter(Store(to.store_url), loaded.name, lane)
    query = lane.start()
    try:
        _wait(lambda: {r["id"] for r in _read(to.librdkafka)} == _wanted(sent), None, tmp_path)
        _wait(lambda: query.lastProgress is not None, None, tmp_path)
        [told] = [p for p in query.recentProgress if p.batchId == query.lastProgress.batchId]
        assert told.observedMetrics["lane"].signals == told.sink.numOutputRows > 0
        _wait(lambda: _is_reported(reporter), None, tmp_path)
        (tmp_path / "risks.csv").write_text("customer,valid_from,risk\nc1,,0.45\nc2,,0.2\n")
        lane._dimensions.live(loaded.lane_of("lane_sales")[0].tables[0])._checked = 0.0
        lane.tick()
        assert lane.query is not query and len(lane.table_changes) == 1
        fresh = _send(contract.topics.raw, to.librdkafka, range(60, 70))
        _wait(lambda: {r["id"] for r in _read(to.librdkafka)} >= _wanted(fresh, c2=0.2), None, tmp_path)
    finally:
        lane.stop()
    copies = defaultdict(set)
    for record in _read(to.librdkafka):
        if record["source"]["offset"] < 40:
            copies[record["id"]].add(json.dumps(record | {"source": ""}, sort_keys=True))
    assert {len(found) for found in copies.values()} == {1}
    repeated = [r["id"] for r in _read(to.librdkafka)[len(before) :] if r["id"] in _wanted(sent[:40])]
    assert set(repeated) == {r["id"] for r in before}
    _check_audit(to, tmp_path, environment, blocked)


def _check_audit(
    to: Connections, folder: Path, environment: dict[str, str], blocked: Mapping[str, Any]
) -> None:
    """Every row is in the topic; then one is there that is not, and a signal of nobody's event."""

    def audit(*options: str) -> Result:
        command = ["audit", "--recount", "--app", str(folder), *options]
        with contextlib.chdir(folder):
            return CliRunner().invoke(cli, command, env=environment)

    clean = audit("--json")
    [source] = json.loads(clean.stdout)["sources"]
    [lane] = source["lanes"]
    assert (clean.exit_code, source["findings"]) == (0, [])
    assert (lane["rows"], lane["in_topic"], lane["unaccounted"]) == (len(blocked), len(blocked), 0)
    assert lane["repeated"] >= len(blocked), "the second engine has sent all of them again"
    with psycopg.connect(to.store_url, autocommit=True) as store:
        store.execute("UPDATE lane.fast SET decision = 'block' WHERE event_id = 'e3'")
    ghost = {"id": "fast:ghost", "signals": "fast", "version": "1"}
    ghost |= {"source": {"stream": "lane_sales", "partition": 0, "offset": 0}}
    producer = Producer(to.librdkafka)
    producer.produce("lane_fast.v1", json.dumps(ghost).encode())
    assert producer.flush(20) == 0
    leak = audit()
    assert leak.exit_code == 1
    assert "rows of fast whose signals are not in lane_fast.v1: fast:e3" in leak.stdout
    assert "signals fast of no sound event of lane_sales: fast:ghost" in leak.stdout
    [line] = [line.split() for line in leak.stdout.splitlines() if " lane_fast.v1 " in line]
    rows = len(blocked) + 1
    assert line == [
        *("lane_sales", "fast", "lane_fast.v1", str(rows), str(rows - 1), "0", "0"),
        *(str(lane["repeated"]), "2"),
    ]


def _is_reported(reporter: LaneReporter) -> bool:
    """What Spark has told of is in the store, with the offsets that the lane has passed."""
    reporter.turn()
    progress = reporter.report.progress
    return bool(progress) and sum(progress["offsets"].values()) >= 40


def _send(topic: str, options: dict[str, str], numbers: range) -> Records:
    """Sales and visits; some come twice, some are no events at all."""
    producer = Producer(options)
    sent = []
    for n in numbers:
        event = {
            "event_id": f"e{n}",
            "event_time": f"2026-03-01T09:{n // 60:02}:{n % 60:02}Z",
            "customer": f"c{n % 3}",
            "kind": "visit" if n % 5 == 4 else "sale",
            "price": n,
        }
        sent.append(event)
        copies = 2 if n % 7 == 0 else 1
        for _ in range(copies):
            producer.produce(topic, json.dumps(event).encode(), partition=n % 2)
        if n % 6 == 0:
            producer.produce(topic, json.dumps(event | {"event_id": f"x{n}", "price": "dear"}).encode())
    assert producer.flush(20) == 0
    return sent


def _sales(sent: Records) -> Records:
    return [event for event in sent if event["kind"] == "sale"]


def _wanted(sent: Records, c2: float = 0.0) -> set[str]:
    """The ids of events that are blocked, by plain arithmetic."""
    risks = {"c0": 0.0, "c1": 0.4, "c2": c2}
    return {f"fast:{e['event_id']}" for e in _sales(sent) if e["price"] / 100 + risks[e["customer"]] >= 0.5}


def _read(options: dict[str, str]) -> Records:
    """All that is in the topic by now."""
    consumer = Consumer({**options, "group.id": "lane-test", "enable.partition.eof": "true"})
    try:
        consumer.assign([TopicPartition("lane_fast.v1", 0, 0)])
        found: Records = []
        until = time.monotonic() + 20
        while time.monotonic() < until:
            for message in consumer.consume(1000, 1.0):
                if message.error():
                    return found
                found.append(json.loads(message.value() or b""))
        return found
    finally:
        consumer.close()


def _rows(store_url: str) -> dict[str, dict[str, Any]]:
    with psycopg.connect(store_url) as store:
        found = store.execute("SELECT to_regclass('lane.fast')").fetchone()
        if found is None or found[0] is None:
            return {}
        rows = store.execute("SELECT id, decision, score FROM lane.fast")
        return {row[0]: {"decision": row[1], "score": row[2]} for row in rows}


def _wait(condition: Callable[[], bool], engine: subprocess.Popen[bytes] | None, folder: Path) -> None:
    until = time.monotonic() + DEADLINE
    while not condition():
        log = folder / "engine.log"
        assert engine is None or engine.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < until, f"not in time; {log.read_text()[-3000:]}"
        time.sleep(0.3)
