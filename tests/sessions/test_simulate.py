"""Sessions of files: the same tables whatever the batches, and accounts that add up."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.local.scratch_store import scratch_store
from headrace.ops.load import load_app
from headrace.ops.simulate import Input, simulate
from tests.views.stream import CONTRACT

APP = """
from headrace import App, count, first_of, last_of

app = App("simulated")
app.sessions(
    "visits",
    of="sales",
    key="customer",
    gap="1 minute",
    max_length="5 minutes",
    where="kind <> 'ping'",
    measures={"sold": count("kind = 'sale'"), "entry": first_of("region"), "exit": last_of("region")},
    derived={"converted": "sold > 0"},
    final_after="2 minutes",
)
"""


def lines(seed: int, number: int) -> list[str]:
    r = random.Random(seed)
    found = []
    for n in range(number):
        at = n * 7 - r.choice([0, 0, 0, 0, 3, 40, 100, 200, 500])
        time = f"2026-03-01T{10 + at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}Z"
        event = {"event_id": f"e{n}", "event_time": time, "customer": f"c{r.randrange(12)}"}
        rest = {"kind": r.choice(["sale", "visit", "ping"]), "region": r.choice("abc")}
        found.append(json.dumps(event | rest))
    return found


def test_a_simulation_writes_the_same_sessions_whatever_its_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts" / "sales.yaml").write_text(CONTRACT.read_text())
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "sales.jsonl").write_text("\n".join(lines(3, 300)) + "\n")
    loaded = load_app(tmp_path)
    given = Input(loaded.contract("sales"), tmp_path / "sales.jsonl", 2, declared=loaded.declared("sales"))
    tables, late = [], []
    for size in (70, 1000):
        output = tmp_path / f"out-{size}"
        with scratch_store() as url:
            audit = simulate(spark, [given], output, salt="", store_url=url, app=loaded.name, batch_size=size)
        source = audit["sources"]["sales"]
        visits = source["sessions"]["visits"]
        assert visits["accepted"] == source["accepted"] == 300 - source["late"]
        assert visits["accepted"] == visits["counted"] + visits["filtered"] + visits["late"]
        [flow] = source["flows"]
        assert (flow["kind"], flow["unaccounted"], flow["in_sessions"]) == ("sessions", 0, visits["counted"])
        rows = list(csv.DictReader((output / "visits.csv").open(newline="")))
        assert visits["rows"] == len(rows)
        assert sum(int(row["events"]) for row in rows) == visits["counted"]
        tables.append([{n: v for n, v in row.items() if n != "revision"} for row in rows])
        late.append((output / "visits.late.csv").read_bytes())
        assert len(late[-1].splitlines()) - 1 == visits["late"] > 0
    assert late[0] == late[1]
    assert [_settled(row) for row in tables[0]] == [_settled(row) for row in tables[1]]
    assert {"final", "open"} <= {row["state"] for row in tables[0]}


def _settled(row: dict[str, str]) -> dict[str, str]:
    """How often a row was published depends on the batches; what it says, and that it is final, does not."""
    return row if row["state"] == "final" else row | {"state": ""}
