"""Joins over files: the same bytes in any batches, and everything accounted for."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace.local.services import Services
from headrace.ops.load import load_app
from headrace.ops.simulate import Input, simulate
from tests.ops.books import own_database

APP = """
from headrace import App

app = App("files")
app.join(
    "order_paid",
    left="orders",
    right="payments",
    on=("order_id", "order_ref"),
    within="10 minutes",
    order="log",
    check={"amount_differs": "left.amount = right.amount"},
    columns={"amount": "left.amount", "paid_time": "right.event_time", "day": "left.day"},
    left_unmatched="no_payment",
    topic="paid.v1",
    dead_letters="unpaid.v1",
)
app.signals(
    "full_price",
    of="payments",
    key="customer",
    features={"paid": "amount"},
    score="paid / 10",
    decision={"review": 1.0},
    topic="full_price.v1",
    lane="realtime",
)
"""


def written(folder: Path) -> None:
    (folder / "contracts").mkdir(parents=True)
    for name in ("orders", "payments"):
        shutil.copy(Path(__file__).parent / f"{name}.yaml", folder / "contracts")
    (folder / "app.py").write_text(APP)
    orders, payments = [], []
    for n in range(200):
        at = f"2026-03-01T{9 + n // 60:02d}:{n % 60:02d}:00Z"
        orders.append(
            {"event_id": f"o{n}", "event_time": at, "order_id": f"k{n}", "amount": 10, "day": "2026-03-02"}
        )
        if n % 4 != 3:
            paid = {"event_id": f"p{n}", "event_time": at.replace(":00Z", ":30Z"), "customer": f"c{n % 9}"}
            payments.append({**paid, "order_ref": f"k{n}", "amount": 9 if n % 10 == 0 else 10})
    for name, events in (("orders", orders), ("payments", payments)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


def run(spark: SparkSession, url: str, folder: Path, output: Path, size: int) -> dict[str, Any]:
    loaded = load_app(folder)
    inputs = [
        Input(loaded.contract(name), folder / f"{name}.jsonl", 2, None, loaded.declared(name))
        for name in ("orders", "payments")
    ]
    return simulate(spark, inputs, output, salt="", store_url=url, app="files", batch_size=size)


def test_batches_do_not_change_a_byte(spark: SparkSession, services: Services, tmp_path: Path) -> None:
    written(tmp_path / "app")
    results = []
    for size in (60, 1000):
        url = own_database(services, f"join_files_{size}").store_url
        audit = run(spark, url, tmp_path / "app", tmp_path / f"out{size}", size)
        results.append({f.name: f.read_bytes() for f in sorted((tmp_path / f"out{size}").iterdir())})
    assert results[0] == results[1]
    left, right = (
        audit["sources"]["orders"]["order_paid:left"],
        audit["sources"]["payments"]["order_paid:right"],
    )
    assert left["taken"] == 200 and right["taken"] == 150
    flows = [flow for source in audit["sources"].values() for flow in source["flows"]]
    taken = [(f["side"], f["taken"], f["notes"]) for f in flows]
    assert taken == [("left", 200, ()), ("right", 150, ()), ("", 150, ())]
    for side in (left, right):
        assert side["taken"] == side["matched"] + side["unmatched"] + side["pending"] + side["late"]
    assert left["matched"] == right["matched"] > 100 and left["unmatched"] > 40 and left["pending"] > 0
    with (tmp_path / "out60" / "order_paid.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == left["matched"] and {row["day"] for row in rows} == {"2026-03-02"}
    lines = results[0]["paid.v1.jsonl"].decode().splitlines()
    assert {json.loads(line)["id"] for line in lines} == {row["id"] for row in rows}
    letters = [json.loads(line) for line in results[0]["unpaid.v1.jsonl"].decode().splitlines()]
    assert {letter["reason"] for letter in letters} == {"no_payment", "amount_differs"}
    fast = [json.loads(line)["id"] for line in results[0]["full_price.v1.jsonl"].decode().splitlines()]
    paid = [f"full_price:p{n}" for n in range(200) if n % 4 != 3 and n % 10 != 0]
    assert sorted(fast) == sorted(paid)
    assert audit["sources"]["payments"]["signals.full_price"]["decisions"]["review"] == len(paid)
