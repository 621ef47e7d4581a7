"""Some producers write the first or the last date of the calendar for "no time": an event like any other."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.local.services import Services
from headrace.ops.load import load_app
from headrace.ops.simulate import Input, simulate
from tests.ops.books import own_database

CONTRACTS = Path(__file__).parents[1] / "flows"
APP = """
from headrace import App, count, distinct, running, sliding, top, tumbling

app = App("ends")
measures = {"n": count(), "orders": distinct("order_id"), "kinds": top("kind", 1)}
by = [[], ["kind"]]
app.metric("minutes", of="orders", window=tumbling("1 minute"), by=by, measures=measures)
app.metric("weeks", of="orders", window=tumbling("7 days"), by=by, measures=measures)
app.metric("rolling", of="orders", window=sliding("3 days", every="1 day"), by=by, measures=measures)
app.metric(
    "so_far", of="orders", window=running(reset="1 day", trigger="1 minute"), by=by, measures=measures
)
app.alert("any", on="minutes", when="n > 0", by=["kind"], windows=1)
app.sessions("visits", of="orders", key="kind", gap="1 hour", max_length="2 hours", measures={"m": count()})
app.pattern("two", of="orders", key="kind", where="items > 0", count=2, within="1 day")
app.pattern(
    "unpaid", of="orders", key="order_id", starts="items > 0", without="items < 0", within="1 day",
    final_after="1 hour",
)
app.signals(
    "scored", of="payments", key="customer", features={"before": count()}, score="before",
    memory="1 day",
    decision={"review": 1.0}, topic="scored.v1",
)
for name, order in (("paid", "log"), ("settled", "event_time")):
    app.join(
        name, left="orders", right="payments", on=("order_id", "order_ref"), within="1 day", order=order,
        left_unmatched="no_payment", right_unmatched="no_order",
    )
"""
FIRST, LAST = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
EARLY, NORMAL, LATER = "0001-01-02T10:00:00Z", "2026-03-01T09:00:00Z", "9999-12-31T23:00:00Z"


def run(spark: SparkSession, url: str, folder: Path, times: Sequence[str]) -> dict[str, Any]:
    """An order and its payment at each of the times."""
    (folder / "contracts").mkdir(parents=True)
    for name in ("orders", "payments"):
        shutil.copy(CONTRACTS / f"{name}.yaml", folder / "contracts")
    (folder / "app.py").write_text(APP)
    for name, key in (("orders", "order_id"), ("payments", "order_ref")):
        more = {"kind": "paid", "amount": 1, "items": 1}
        if name == "payments":
            more |= {"customer": "c"}
        events = [
            {"event_id": f"{name}{n}", "event_time": time, key: f"k{n}", **more}
            for n, time in enumerate(times)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    loaded = load_app(folder)
    inputs = [
        Input(loaded.contract(name), folder / f"{name}.jsonl", 1, None, loaded.declared(name))
        for name in ("orders", "payments")
    ]
    return simulate(spark, inputs, folder / "out", salt="", store_url=url, app="ends", batch_size=2)


@pytest.mark.parametrize(
    ("times", "accepted", "rows"),
    [
        pytest.param(
            [FIRST, FIRST, EARLY, EARLY],
            4,
            {
                "minutes": ["01-01 00:00 01-01 00:01 2 final", "01-02 10:00 01-02 10:01 2 open"],
                "weeks": ["01-01 00:00 01-04 00:00 4 open"],
                "rolling": [
                    "01-01 00:00 01-02 00:00 2 final",
                    "01-01 00:00 01-03 00:00 4 open",
                    "01-01 00:00 01-04 00:00 4 open",
                    "01-02 00:00 01-05 00:00 2 open",
                ],
                "so_far": ["01-01 00:00 01-02 00:00 2 final", "01-02 00:00 01-03 00:00 2 open"],
                "visits": ["01-01 00:00 01-01 01:00 2 final", "01-02 10:00 01-02 11:00 2 open"],
            },
            id="only-first",
        ),
        pytest.param(
            [FIRST, NORMAL, NORMAL],
            3,
            {
                "minutes": ["03-01 09:00 03-01 09:01 2 open"],
                "so_far": ["03-01 00:00 03-02 00:00 1 open"],
                "visits": ["03-01 09:00 03-01 10:00 2 open"],
            },
            id="first-then-normal",
        ),
        pytest.param(
            [NORMAL, FIRST, LATER, LATER, LAST],
            4,
            {
                "minutes": ["12-31 23:00 12-31 23:01 2 final", "12-31 23:59 12-31 23:59 1 open"],
                "weeks": ["12-30 00:00 12-31 23:59 3 open"],
                "rolling": [
                    "12-29 00:00 12-31 23:59 3 open",
                    "12-30 00:00 12-31 23:59 3 open",
                    "12-31 00:00 12-31 23:59 3 open",
                ],
                "so_far": ["12-31 00:00 12-31 23:59 3 open"],
                "visits": ["12-31 23:00 12-31 23:59 3 open"],
            },
            id="normal-then-last",
        ),
        pytest.param(
            [LAST, NORMAL, LAST],
            2,
            {
                "minutes": ["12-31 23:59 12-31 23:59 2 open"],
                "so_far": ["12-31 00:00 12-31 23:59 1 open"],
                "visits": ["12-31 23:59 12-31 23:59 2 open"],
            },
            id="last-first",
        ),
    ],
)
def test_every_event_is_accounted_for(
    spark: SparkSession,
    services: Services,
    tmp_path: Path,
    times: list[str],
    accepted: int,
    rows: dict[str, list[str]],
    request: pytest.FixtureRequest,
) -> None:
    name = "ends_" + request.node.callspec.id.replace("-", "_")
    audit = run(spark, own_database(services, name).store_url, tmp_path / "app", times)
    for source in audit["sources"].values():
        counts = {key: source[key] for key in ("received", "accepted", "late", "unaccounted")}
        late = len(times) - accepted
        assert counts == {"received": len(times), "accepted": accepted, "late": late, "unaccounted": 0}
        assert all(flow["unaccounted"] == 0 and not flow["notes"] for flow in source["flows"])
    orders = audit["sources"]["orders"]
    for counted in (*orders["metrics"].values(), *orders["sessions"].values()):
        assert (counted["counted"], counted["filtered"], counted["late"]) == (accepted, 0, 0)
        assert counted["accepted"] == accepted
    for name, wanted in rows.items():
        assert shown(tmp_path / "app" / "out" / f"{name}.csv") == wanted, name


def shown(file: Path) -> list[str]:
    """Of each total: from when to when, how many events, in which state. A trigger shows not all at once."""
    with file.open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row.get("grouping", "all") == "all"]
    times = [
        [row[name][5:16].replace("T", " ") for name in row if name.endswith(("_start", "_end"))]
        for row in rows
    ]
    return [f"{a} {b} {row['events']} {row['state']}" for (a, b), row in zip(times, rows, strict=True)]
