"""Events and a Delta table: through the engine's gate, through a simulation, and checked beforehand."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headrace.cli import app as cli
from headrace.errors import AppError
from headrace.local.services import Services
from headrace.ops.check import check_plans
from headrace.ops.load import LoadedApp, load_app
from headrace.ops.simulate import Input, simulate
from tests.enrich.test_publishing import (
    APP,
    CONTRACT,
    EVENTS,
    TABLE,
    app_of,
    event,
    gate_of,
    prepared,
    records,
)

LAKE = APP.replace('file="products.csv"', 'lake="lake/products"')
WANTED = {event_id: (category, is_known) for event_id, _, _, category, is_known in EVENTS}


def append(folder: Path, text: str) -> None:
    """Lines like those of the file, as a new version of the Delta table."""
    ids, times, kinds, prices = zip(*(line.split(",") for line in text.splitlines()), strict=True)
    starts = [datetime.fromisoformat(at).astimezone(UTC) for at in times]
    columns = {
        "product_id": pa.array(ids),
        "valid_from": pa.array(starts, pa.timestamp("us", "UTC")),
        "category": pa.array(kinds),
        "list_price": pa.array(map(float, prices)),
    }
    write_deltalake(str(folder / "lake" / "products"), pa.table(columns), mode="append")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tests.enrich.test_publishing.APP", LAKE)
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts" / "clicks.yaml").write_text(CONTRACT)
    append(tmp_path, TABLE.partition("\n")[2])
    return tmp_path


def simulated(
    spark: SparkSession, services: Services, folder: Path, loaded: LoadedApp, run: str
) -> list[str]:
    file = folder / "clicks.jsonl"
    file.write_bytes(b"".join(event(e[0], e[1], e[2]) + b"\n" for e in EVENTS))
    given = Input(loaded.contract("clicks"), file, 1, None, loaded.declared("clicks"))
    out, name = folder / run, f"{loaded.name}_{run}"
    simulate(spark, [given], out, salt="salt", store_url=services.store_url, app=name, batch_size=3)
    return (out / f"{loaded.name}.enriched.v1.jsonl").read_text().splitlines()


def test_simulate_replays_events_as_of_their_time(
    spark: SparkSession, services: Services, folder: Path
) -> None:
    loaded, _ = app_of(folder, "lake_files", "keep")
    first = simulated(spark, services, folder, loaded, "first")
    found = {e["event_id"]: (e["category"], e["products_found"]) for e in map(json.loads, first)}
    assert found == WANTED
    append(folder, "p-1,2026-03-01T10:00:00Z,samovars,99\np-2,2026-03-01T10:00:00Z,lids,1\n")
    assert simulated(spark, services, folder, loaded, "again") == first


def test_the_engine_uses_a_new_version_without_a_restart(
    services: Services, spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.store.dimensions.CHECK_SECONDS", 0.0)
    loaded, contract = app_of(folder, "lake_engine", "keep")
    to = prepared(services, loaded, contract)
    topic = loaded.app.enrichments["clicks_enriched"].topic
    gate = gate_of(spark, folder, loaded, contract, to)
    query = gate.start()
    producer = Producer(to.librdkafka)

    def send(*events: bytes) -> None:
        for value in events:
            producer.produce(contract.topics.raw, value, partition=0)
        assert producer.flush(20) == 0

    def wait_for(count: int) -> dict[str, str | None]:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            found = [json.loads(m.value()) for m in records(topic, 2, to.librdkafka)]
            if len(found) >= count:
                return {e["event_id"]: e["category"] for e in found}
            time.sleep(0.2)
        raise AssertionError(f"{count} records did not come in time")

    def known() -> tuple[str, int, str] | None:
        with psycopg.connect(to.store_url) as store:
            return store.execute(
                "SELECT place, rows, problem FROM headrace.dimensions WHERE app = %s", (loaded.name,)
            ).fetchone()

    place = str(folder / "lake" / "products")
    try:
        send(*(event(*e[:3]) for e in EVENTS))
        wanted = {event_id: category for event_id, (category, _) in WANTED.items()}
        assert wait_for(len(EVENTS)) == wanted
        append(folder, "p-9,2026-03-01T09:00:00Z,cups,3\np-1,2026-03-01T09:20:00Z,samovars,99")
        send(event("a1", "09:11:00", "p-9"), event("a2", "09:19:00", "p-1"), event("a3", "09:20:00", "p-1"))
        wanted |= {"a1": "cups", "a2": "teapots", "a3": "samovars"}
        assert wait_for(len(wanted)) == wanted
        append(folder, "p-9,2026-03-01T09:00:00Z,mugs,3")  # wrong: what was there stays
        send(event("a4", "09:20:00", "p-9"))
        assert wait_for(len(wanted) + 1)["a4"] == "cups"
    finally:
        gate.stop()
        assert not query.isActive
    found = known()
    assert found is not None and found[:2] == (place, 5)
    assert "product_id 'p-9' has two versions of the same moment" in found[2]


def test_check_reads_tables_of_the_lake(spark: SparkSession, folder: Path) -> None:
    loaded, _ = app_of(folder, "lake_check", "keep")
    check_plans(spark, loaded)
    app = folder / "app.py"
    text = app.read_text()
    app.write_text(text.replace("products.category", "products.categry"))
    with pytest.raises(AppError, match="table 'products' has no column 'categry'"):
        check_plans(spark, load_app(folder))
    app.write_text(text.replace("lake/products", "lake/nothing"))
    with pytest.raises(AppError, match=r"there is no .*/lake/nothing") as error:
        check_plans(spark, load_app(folder))
    line = next(n for n, line in enumerate(text.splitlines(), 1) if "lake=" in line)
    assert error.value.where == f"{app}:{line}"
    # An address is for those who may reach it: loading and checking do not.
    app.write_text(text.replace("lake/products", "s3://bucket/products"))
    check_plans(spark, load_app(folder))
    app.write_text(text.replace("lake=", "replica="))
    result = CliRunner().invoke(cli, ["check", "--no-spark", str(folder)])
    assert result.exit_code == 1
    assert "tables of a CDC replica cannot be looked up yet" in str(result.exception)
