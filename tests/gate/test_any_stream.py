"""Shuffled, repeated, late and broken records over several partitions: the whole gate against the oracle."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from headrace.contracts import Contract
from headrace.log.arrivals import arrivals
from headrace.ops.simulate import Input, simulate
from headrace.testing.fuzz import NOW, fuzz_records
from tests.gate.frames import turanmart
from tests.oracle.gate_oracle import Raw, judgement

PARTITIONS = 3
ALL = 10**6


def stream(contract: Contract, seed: int, count: int = 240) -> list[bytes]:
    """Valid events that drift by minutes, some repeated, some far behind, and hostile ones among them."""
    rng = Random(seed)
    lines = []
    at = NOW - timedelta(hours=6)
    for number in range(count):
        at += timedelta(seconds=rng.choice([0, 1, 30, 200]))
        behind = timedelta(seconds=rng.choice([0, 0, 0, 5, 300, 599, 600, 601, 3000]))
        event = {
            "event_id": f"e-{number}",
            "event_type": "page_view",
            "event_time": (at - behind).isoformat().replace("+00:00", "Z"),
            "session_id": "s",
            "customer_id": f"c-{rng.randrange(9)}",
            "region": rng.choice(["tashkent", "astana"]),
            "device_type": "web",
            "schema_version": "1",
            "producer": "test",
        }
        lines.append(json.dumps(event).encode())
        if rng.random() < 0.15:
            lines.append(rng.choice(lines))
    lines += [v for v in fuzz_records(contract, 60, seed) if v is not None and b"\n" not in v and v.isascii()]
    for _ in range(len(lines) // 4):  # some change places with a neighbour
        place = rng.randrange(len(lines) - 5)
        other = place + rng.randrange(5)
        lines[place], lines[other] = lines[other], lines[place]
    return lines


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def expected(contract: Contract, file: Path, arrival: str | None) -> tuple[list[str], dict[int, int]]:
    """Fates in the order of the lines, and the clocks."""
    records = list(arrivals(file, contract.key, PARTITIONS, arrival))
    raws = [Raw(a.partition, a.offset, a.key, a.value, _moment(a.log_time)) for a in records]
    outcome = judgement(contract, raws)
    by_line = sorted(zip((a.line for a in records), outcome.verdicts, strict=True), key=lambda pair: pair[0])
    return [verdict.fate for _, verdict in by_line], outcome.clocks


@pytest.mark.parametrize(("seed", "size", "arrival"), [(1, 50, None), (2, ALL, "event_time"), (3, ALL, None)])
def test_fates_are_those_of_the_oracle(
    spark: SparkSession, tmp_path: Path, seed: int, size: int, arrival: str | None
) -> None:
    contract = turanmart("clickstream")
    check(spark, tmp_path, contract, stream(contract, seed), size, arrival)


def test_tiny_batches_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    contract = turanmart("clickstream")
    check(spark, tmp_path, contract, stream(contract, seed=4, count=240)[:36], 3, None)


def test_many_old_records_are_looked_up_by_a_join(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.gate.clock.LOOKUPS", 0)
    contract = turanmart("clickstream")
    check(spark, tmp_path, contract, stream(contract, seed=5, count=240), 120, None)


def held(spark: SparkSession) -> set[int]:
    return set(spark.sparkContext._jsc.getPersistentRDDs().keySet())


def check(
    spark: SparkSession, folder: Path, contract: Contract, lines: list[bytes], size: int, arrival: str | None
) -> None:
    file = folder / "events.jsonl"
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    given = Input(contract, file, PARTITIONS, arrival)
    others = held(spark)
    audit = simulate(spark, [given], folder / "out", salt="", batch_size=size)
    assert held(spark) <= others, "rows of a batch are still in memory"
    with (folder / "out" / f"{contract.name}.fates.csv").open(newline="") as rows:
        got = [row["fate"] for row in csv.DictReader(rows)]
    fates, clocks = expected(contract, file, arrival)
    assert got == fates
    assert {*fates} >= {"accepted", "duplicate"}
    partitions = audit["sources"][contract.name]["partitions"]
    shown = {int(p): counts["clock"] for p, counts in partitions.items() if counts["clock"]}
    assert {p: round(datetime.fromisoformat(clock).timestamp() * 1e6) for p, clock in shown.items()} == clocks
