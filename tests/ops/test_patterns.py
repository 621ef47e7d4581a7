"""Patterns of a real gate: found with its batches, published by the engine's threads, listed, simulated."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headrace.app import Source
from headrace.cli import app as cli
from headrace.connections import query_name
from headrace.local.connect import connections_of
from headrace.local.scratch_store import scratch_store
from headrace.local.services import Services
from headrace.log.produce import partition_of
from headrace.log.scan import TopicReader
from headrace.log.topics import ensure_topics
from headrace.ops.delivery import Delivery
from headrace.ops.gate_query import GateQuery
from headrace.ops.load import LoadedApp, load_app
from headrace.ops.simulate import Input, simulate
from headrace.settings import Settings
from headrace.store.connection import Store
from tests.oracle.patterns_oracle import Happened, absence_outcome, alert_id, sequence_outcome

SALES = Path(__file__).parents[1] / "views" / "sales.yaml"
START = datetime(2026, 3, 1, 9, tzinfo=UTC)
SECOND = 1_000_000
MINUTE = 60 * SECOND
APP = """
from headrace import App, count, tumbling

app = App("NAME")
of = {"of": "STREAM", "key": "customer"}
app.metric("seen", of="STREAM", window=tumbling("1 minute"), measures={"n": count()})
app.pattern(
    "tested",
    sequence="F{2,} !R H",
    define={"F": "kind = 'failed'", "H": "kind = 'sale' AND price >= 500", "R": "kind = 'refund'"},
    within="3 minutes",
    quiet="2 minutes",
    topic="NAME_suspicions.v1",
    show=["price", "region"],
    message="{customer} paid {price:,.2f} in {region} after {events} events",
    **of,
)
app.pattern("busy", where="kind = 'sale'", count=4, within="1 minute", quiet="0 seconds", **of)
gone = {"starts": "kind = 'visit'", "without": "kind = 'sale'"}
app.pattern("left", within="30 seconds", final_after="1 minute", **gone, **of)
"""


def made_app(folder: Path, name: str, stream: str) -> LoadedApp:
    (folder / "contracts").mkdir(parents=True)
    text = SALES.read_text().replace("name: sales", f"name: {stream}").replace("tests-sales", stream)
    (folder / "contracts" / "sales.yaml").write_text(text)
    (folder / "app.py").write_text(APP.replace("NAME", name).replace("STREAM", stream))
    return load_app(folder)


def shopping(count: int) -> list[bytes]:
    """Six customers; some events come a few minutes late, and one in ten comes again."""
    r = random.Random(5)
    lines: list[bytes] = []
    for n in range(count):
        back = r.choice([0, 0, 0, 1, 5, 20, 100, 300])
        at = START + timedelta(seconds=3 * n - back)
        event = {
            "event_id": f"e{r.randrange(10**6)}-{n}",
            "event_time": f"{at:%Y-%m-%dT%H:%M:%SZ}",
            "customer": f"c{r.randrange(6)}",
            "kind": r.choice(["failed", "failed", "sale", "sale", "visit", "refund", None]),
            "region": "tashkent",
            "price": r.choice([1.5, 499.99, 500.0, 12345.67]),
        }
        lines.append(json.dumps(event).encode())
        if n and r.random() < 0.1:
            lines.append(r.choice(lines[-20:]))
    return lines


def happened(lines: list[bytes], partitions: int) -> list[tuple[Happened, dict[str, object]]]:
    """The unique events in the order of arrival, as the oracle wants them."""
    found, seen = [], set()
    for offset, line in enumerate(lines):
        event = json.loads(line)
        if event["event_id"] in seen:
            continue
        seen.add(event["event_id"])
        at = datetime.fromisoformat(event["event_time"])
        partition = partition_of(event["customer"].encode(), partitions)
        us = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        found.append(
            (Happened(partition, offset, event["event_id"], us, us, event["customer"], frozenset()), event)
        )
    return found


def expected(app: str, lines: list[bytes], partitions: int) -> dict[tuple[str, str], tuple[int, str]]:
    """By pattern and id: the number of matches, and the state."""
    log = happened(lines, partitions)

    def seen_as(**symbols: object) -> list[Happened]:
        return [
            Happened(**{**vars(e), "symbols": frozenset(s for s, test in symbols.items() if test(f))})  # type: ignore[operator]
            for e, f in log
        ]

    tree = (
        "then",
        [("times", ("is", "F"), 2, None), ("never", "R", ("is", "H"))],
    )
    tested = seen_as(
        F=lambda f: f["kind"] == "failed",
        H=lambda f: f["kind"] == "sale" and f["price"] >= 500,
        R=lambda f: f["kind"] == "refund",
    )
    sales = seen_as(E=lambda f: f["kind"] == "sale")
    visits = seen_as(START=lambda f: f["kind"] == "visit", END=lambda f: f["kind"] == "sale")
    late = 10 * MINUTE
    outcomes = {
        "tested": sequence_outcome(tree, frozenset("FH"), tested, late, 3 * MINUTE, 2 * MINUTE),
        "busy": sequence_outcome(("times", ("is", "E"), 4, 4), frozenset("E"), sales, late, MINUTE, 0),
        "left": absence_outcome(visits, late, 30 * SECOND, MINUTE, 30 * SECOND),
    }
    return {
        (name, alert_id(app, name, raised)): (raised.matches, "open" if raised.open else "resolved")
        for name, outcome in outcomes.items()
        for raised in outcome.raised
    }


def test_a_simulation_finds_what_the_oracle_finds(spark: SparkSession, tmp_path: Path) -> None:
    loaded = made_app(tmp_path / "app", "simulated", "sales")
    lines = shopping(400)
    file = tmp_path / "sales.jsonl"
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    given = Input(loaded.contract("sales"), file, 2, declared=loaded.declared("sales"))
    written = []
    for size in (150, 1000):
        output = tmp_path / f"out-{size}"
        with scratch_store() as url:
            audit = simulate(spark, [given], output, salt="", store_url=url, app=loaded.name, batch_size=size)
        written.append((output / "alerts.csv").read_bytes())
        flows = audit["sources"]["sales"]["flows"]
        assert [(f["flow"], f["unaccounted"]) for f in flows] == [("busy", 0), ("left", 0), ("tested", 0)]
        for name in ("tested", "busy", "left"):
            counts = audit["sources"]["sales"][f"pattern.{name}"]
            kept = sum(counts[part] for part in ("remembered", "forgotten", "late", "again"))
            assert counts["taken"] == kept > 0
    assert written[0] == written[1]
    rows = list(csv.DictReader(written[0].decode().splitlines()))
    found = {(r["alert"], r["id"]): (json.loads(r["values"])["matches"], r["state"]) for r in rows}
    wanted = expected("simulated", lines, 2)
    assert found == wanted
    assert {name for name, _ in wanted} == {"tested", "busy", "left"}
    told = next(r for r in rows if r["alert"] == "tested")
    assert told["message"].startswith(f"{json.loads(told['dimensions'])['customer']} paid ")
    assert "in tashkent after" in told["message"]


@contextmanager
def _running(spark: SparkSession, services: Services, folder: Path) -> Iterator[tuple[LoadedApp, GateQuery]]:
    loaded = made_app(folder / "app", "found", "found_sales")
    contract, connections = loaded.contract("found_sales"), connections_of(services)
    ensure_topics(contract, connections.librdkafka)
    Store(connections.store_url).prepare()
    query = GateQuery(
        *(spark, "found", contract, Source("found_sales", max_batch=100), connections),
        checkpoints=str(folder / "checkpoints"),
        slots=folder / "slots",
        salt="",
        declared=loaded.declared("found_sales"),
    )
    yield loaded, query


def test_the_engine_publishes_and_the_list_shows(
    spark: SparkSession, services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _running(spark, services, tmp_path) as (loaded, query):
        lines = shopping(250)
        connections = connections_of(services)
        producer = Producer({**connections.librdkafka, "partitioner": "murmur2_random"})
        for line in lines:
            key = json.loads(line)["customer"].encode()
            producer.produce(loaded.contract("found_sales").topics.raw, line, key)
        producer.flush(30)
        query.start(available_now=True).awaitTermination()
        delivery = Delivery(loaded, Settings(folder=tmp_path), connections, ["found_sales"])
        delivery.start()
        delivery.stop()
        reader = TopicReader(connections.librdkafka)
        topic = "found_suspicions.v1"
        events = [json.loads(r.value or b"") for r in reader.records(topic, reader.ends(topic))]
        wanted = expected("found", lines, loaded.contract("found_sales").partitions)
        opened = {event["id"] for event in events if event["kind"] == "opened"}
        assert opened == {id_ for name, id_ in wanted if name == "tested"}
        assert len({event["event_id"] for event in events}) == len(events)
        monkeypatch.chdir(services.folder)
        asked = ["alerts", "--app", str(tmp_path / "app"), "--json", "--limit", "1000"]
        listed = json.loads(CliRunner().invoke(cli, [*asked, "--alert", "busy"]).output)["alerts"]
        assert {a["id"] for a in listed} == {id_ for name, id_ in wanted if name == "busy"}
        assert {a["grouping"] for a in listed} == {"customer"}
        with Store(connections.store_url)._connected() as connection:
            sums = connection.execute(
                "SELECT flow, sum(accepted) FROM headrace.flow_ledger WHERE query = %s GROUP BY flow",
                (query_name("found", "found_sales"),),
            ).fetchall()
        assert len(sums) == 3 and len({accepted for _, accepted in sums}) == 1
