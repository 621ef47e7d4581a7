"""Alerts of a real gate: found with its batches, published by the engine's threads, listed, simulated."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headrace.cli import app as cli
from headrace.local.scratch_store import scratch_store
from headrace.local.services import Services
from headrace.log.scan import TopicReader
from headrace.ops.delivery import Delivery
from headrace.ops.load import load_app
from headrace.ops.simulate import Input, simulate
from headrace.settings import Settings
from tests.ops.conftest import SALES, Measured, sale

SIMULATED = """
from headrace import App, count, tumbling

app = App("simulated")
minute = tumbling("1 minute")
app.metric("sold", of="sales", window=minute, by=["region"], measures={"n": count()}, final_after="5 minutes")
app.alert("busy", on="sold", when="n >= 3", by=["region"], windows=2, message="{region}: {n}")
app.alert("surely_busy", on="sold", when="n >= 3", by=["region"], windows=2, state="final")
"""


def test_a_batch_opens_an_alert_and_the_engine_publishes_it(measured: Measured) -> None:
    [(state, windows, n, seq)] = measured.query(
        "SELECT state, windows, \"values\" ->> 'n', seq FROM headrace.alerts WHERE app = 'measured'"
    )
    # Opened by the second batch with five sales, corrected by the third.
    assert (state, windows, n, seq) == ("open", 1, "6", 1)
    delivery = Delivery(
        measured.loaded, Settings(folder=measured.folder), measured.connections, ["measured_sales"]
    )
    delivery.start()
    delivery.stop()
    reader = TopicReader(measured.connections.librdkafka)
    records = list(reader.records("measured_alerts.v1", reader.ends("measured_alerts.v1")))
    events = [json.loads(record.value or b"") for record in records]
    assert [(e["kind"], e["alert"], e["values"]["n"], e["message"]) for e in events] == [
        ("opened", "busy", 5, "5 sales at once")
    ]


def test_the_list_shows_open_ones_and_says_json(
    measured: Measured, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(services.folder)
    asked = ["alerts", "--app", str(measured.folder)]
    table = CliRunner().invoke(cli, asked)
    assert table.exit_code == 0, table.output
    assert "busy" in table.output and "6 sales at once" in table.output
    listed = json.loads(CliRunner().invoke(cli, [*asked, "--state", "open", "--json"]).output)
    [alert] = listed["alerts"]
    assert (alert["state"], alert["dimensions"], alert["resolved_at"]) == ("open", {}, None)
    assert alert["window_start"] == "2026-03-01T09:00:00Z"
    none = json.loads(CliRunner().invoke(cli, [*asked, "--state", "resolved", "--json"]).output)
    assert none["alerts"] == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (["--state", "closed"], "--state is open or resolved"),
        (["--limit", "0"], "--limit is a number from 1 to 1000"),
        (["--alert", "buzy"], "no alert 'buzy'"),
    ],
)
def test_a_wrong_question(measured: Measured, wrong: list[str], says: str) -> None:
    result = CliRunner().invoke(cli, ["alerts", "--app", str(measured.folder), *wrong])
    assert says in str(result.exception)


def test_a_simulation_writes_the_same_alerts_whatever_its_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts" / "sales.yaml").write_text(SALES.read_text())
    (tmp_path / "app.py").write_text(SIMULATED)
    (tmp_path / "sales.jsonl").write_bytes(b"".join(line + b"\n" for line in _sales()))
    loaded = load_app(tmp_path)
    file = tmp_path / "sales.jsonl"
    given = Input(loaded.contract("sales"), file, 2, declared=loaded.declared("sales"))
    files = []
    for size in (20, 1000):
        output = tmp_path / f"out-{size}"
        with scratch_store() as url:
            simulate(spark, [given], output, salt="", store_url=url, app=loaded.name, batch_size=size)
        files.append((output / "alerts.csv").read_bytes())
    assert files[0] == files[1]
    rows = list(csv.DictReader(files[0].decode().splitlines()))
    assert {(row["alert"], row["state"], row["windows"]) for row in rows} >= {
        ("busy", "resolved", "3"),
        ("surely_busy", "resolved", "3"),
    }
    assert rows[0]["message"] == "tashkent: 4"


def _sales() -> list[bytes]:
    """Three busy minutes in one place and two in another; some events come a few minutes late."""
    start = datetime(2026, 3, 1, 9, tzinfo=UTC)
    busy = {"tashkent": (2, 3, 4), "almaty": (6, 7)}
    lines: list[tuple[datetime, dict[str, Any]]] = []
    for minute in range(20):
        for region, minutes in busy.items():
            for n in range(4 if minute in minutes else 1):
                at = start + timedelta(minutes=minute, seconds=10 * n)
                late = timedelta(minutes=2) if n == 3 else timedelta()
                lines.append((at + late, {"clock": f"{at:%H:%M:%S}", "region": region}))
    lines.sort(key=lambda line: line[0])
    return [
        sale(f"e{n}", line["clock"], line["region"], "sale", "1.00", 1) for n, (_, line) in enumerate(lines)
    ]
