"""A user's first hour: init, check, simulate. No broker, no database."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headrace.cli import app
from headrace.errors import AppError, ContractError, DataError, HeadraceError, UsageError
from headrace.log.arrivals import arrivals
from headrace.log.produce import partition_of
from headrace.ops.load import load_app
from headrace.ops.simulate import Input, simulate

EXPECTED = [
    ("accepted", "", "e-1"),
    ("accepted", "", "e-2"),
    ("accepted", "", "e-3"),
    ("accepted", "", "e-4"),
    ("rejected", "not_json:", ""),
    ("duplicate", "", "e-4"),
    ("rejected", "not_allowed:action", ""),
    ("accepted", "", "e-7"),
    ("late", "", "e-8"),
    ("accepted", "", "e-9"),
]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["init", "my-shop"])
    assert result.exit_code == 0, result.output
    return tmp_path / "my-shop"


def fates(folder: Path, source: str = "visits") -> list[dict[str, str]]:
    with (folder / f"{source}.fates.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def run(
    spark: SparkSession, shop: Path, output: Path, file: Path | None = None, **options: Any
) -> dict[str, Any]:
    contract = load_app(shop).contract("visits")
    partitions, arrival = options.pop("partitions", contract.partitions), options.pop("arrival", None)
    given = Input(contract, file or shop / "events.jsonl", partitions, arrival)
    return simulate(spark, [given], output, salt="", **options)


def event(number: int, at: str, visitor: str = "v-1", **more: object) -> bytes:
    fields = {"event_id": f"e-{number}", "event_time": f"2026-03-01T{at}Z", "visitor_id": visitor}
    return json.dumps({**fields, "action": "view", **more}).encode()


# A metric that needs no field of its source is a metric like any other.
NO_FIELD = """
from headrace import count, running, top, tumbling

app.metric("visits_1m", of="visits", window=tumbling("1 minute"), measures={"n": count()})
today = running(reset="1 day", trigger="10 seconds")
app.metric("today", of="visits", window=today, measures={"n": count(), "actions": top("action", 1)})
"""


def test_the_printed_commands_work_as_printed(tmp_path: Path) -> None:
    def shell(command: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "headrace.cli", *command.split()]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=180)

    made = shell("init my-shop")
    commands = [line.strip() for line in made.stdout.splitlines() if line.startswith("  headrace ")]
    assert [command.split()[1] for command in commands] == ["check", "simulate"]
    with (tmp_path / "my-shop" / "app.py").open("a") as app:
        app.write(NO_FIELD)
    for command in commands:
        done = shell(command.removeprefix("headrace "))
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
    assert "unaccounted" in done.stdout
    rows = fates(tmp_path / "my-shop" / "out")
    assert [(row["fate"], row["reasons"], row["event_id"]) for row in rows] == EXPECTED
    with (tmp_path / "my-shop" / "out" / "visits_1m.csv").open() as lines:
        assert sum(int(row["n"]) for row in csv.DictReader(lines)) == 6
    with (tmp_path / "my-shop" / "out" / "today.csv").open() as lines:
        [today] = csv.DictReader(lines)
    assert (today["state"], today["revision"], today["n"]) == ("open", "1", "6")
    assert [sorted(item) for item in json.loads(today["actions"])] == [["count", "item"]]
    assert sorted(p.name for p in (tmp_path / "my-shop").iterdir() if p.name.startswith(".")) == []


def test_outputs_and_audit_tell_the_same_story(spark: SparkSession, shop: Path) -> None:
    audit = run(spark, shop, shop / "out")
    lines = (shop / "events.jsonl").read_bytes().splitlines(keepends=True)
    files = bytes_of(shop / "out")
    assert files["visits.validated.jsonl"] == b"".join(lines[n] for n in (0, 1, 2, 3, 7, 9))
    assert files["visits.invalid.jsonl"] == lines[4] + lines[6]
    assert files["visits.late.jsonl"] == lines[8]
    assert json.loads(files["audit.json"]) == audit
    source = audit["sources"]["visits"]
    counts = {name: source[name] for name in ("received", "accepted", "rejected", "late", "duplicate")}
    assert counts == {"received": 10, "accepted": 6, "rejected": 2, "late": 1, "duplicate": 1}
    assert source["unaccounted"] == 0
    assert source["partitions"]["1"]["clock"] == "2026-03-01T09:20:10Z"
    for partition in source["partitions"].values():
        parts = ("accepted", "rejected", "late", "duplicate", "unaccounted")
        assert partition["received"] == sum(partition[part] for part in parts)


@pytest.mark.parametrize("partitions", [1, 4])
def test_batches_do_not_change_a_byte(spark: SparkSession, shop: Path, partitions: int) -> None:
    lines = [event(n, f"09:{n * 17 % 60:02d}:00", f"v-{n % 5}") for n in range(8)]
    lines += [lines[3], b"", b"\r", b'{"broken', lines[0], b"\xff\xfe"]
    file = shop / "more.jsonl"
    file.write_bytes(b"\n".join(lines) + b"\n")
    sizes = (1, 7, 1000) if partitions == 1 else (7, 1000)
    results = []
    for size in sizes:
        run(spark, shop, shop / f"out-{size}", file, batch_size=size, partitions=partitions)
        results.append(bytes_of(shop / f"out-{size}"))
    assert all(result == results[0] for result in results)
    rows = fates(shop / "out-7")
    assert [int(row["line"]) for row in rows] == list(range(1, 15))
    assert [row["fate"] for row in rows[8:]] == ["duplicate", *["rejected"] * 3, "duplicate", "rejected"]
    assert partitions > 1 or "late" in {row["fate"] for row in rows}
    keys = [partition_of(f"v-{n % 5}".encode(), partitions) for n in range(8)]
    assert [int(row["partition"]) for row in rows[:8]] == keys


def test_arrival_orders_the_lines_and_is_the_log_time(spark: SparkSession, shop: Path) -> None:
    file = shop / "shuffled.jsonl"
    lines = [
        event(2, "09:30:00"),
        event(1, "09:00:00"),
        b"nonsense",
        event(3, "09:31:00"),
        event(1, "09:00:00"),
    ]
    file.write_bytes(b"\n".join(lines))
    run(spark, shop, shop / "as-is", file, partitions=1)
    assert [row["fate"] for row in fates(shop / "as-is")] == [
        "accepted",
        "late",
        "rejected",
        "accepted",
        "duplicate",
    ]
    for size in (2, 100):
        output = shop / f"sorted-{size}"
        run(spark, shop, output, file, partitions=1, arrival="event_time", batch_size=size)
        rows = fates(output)
        assert [(row["line"], row["offset"], row["fate"]) for row in rows] == [
            ("1", "3", "accepted"),
            ("2", "0", "accepted"),
            ("3", "1", "rejected"),  # right after the line before it
            ("4", "4", "accepted"),
            ("5", "2", "duplicate"),
        ]
        assert (output / "visits.validated.jsonl").read_bytes().splitlines() == [lines[1], lines[0], lines[3]]


def test_lines_are_bytes(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b'{"k":"a"}\r\n\n{"k":7}\n{"k":true}\n{"k":"\\ud800"}\n\xff')
    found = list(arrivals(file, "k", 3))
    assert [a.value for a in found] == file.read_bytes().split(b"\n")
    assert [a.key for a in found] == [b"a", None, b"7", None, None, None]
    assert [a.partition for a in found if a.key is None] == [0, 0, 0, 0]
    assert [a.line for a in found] == [1, 2, 3, 4, 5, 6]
    file.write_bytes(b"")
    assert list(arrivals(file, "k", 3)) == []


def test_an_empty_file_is_no_error(spark: SparkSession, shop: Path) -> None:
    empty = shop / "empty.jsonl"
    empty.touch()
    audit = run(spark, shop, shop / "out", empty)
    assert audit["sources"]["visits"]["received"] == 0
    assert fates(shop / "out") == []


def test_an_error_leaves_nothing_behind(
    spark: SparkSession, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.log.file_topics import FileTopics

    def broken(*_: object) -> None:
        raise DataError("no space left")

    before = sorted(shop.iterdir())
    monkeypatch.setattr(FileTopics, "publish", broken)
    with pytest.raises(DataError, match="no space left"):
        run(spark, shop, shop / "out")
    assert sorted(shop.iterdir()) == before


def test_overwrite_replaces_the_whole_folder(spark: SparkSession, shop: Path) -> None:
    output = shop / "out"
    output.mkdir()
    (output / "old.txt").touch()
    with pytest.raises(UsageError, match="not empty"):
        run(spark, shop, output)
    run(spark, shop, output, overwrite=True)
    assert not (output / "old.txt").exists() and (output / "audit.json").exists()


@pytest.mark.parametrize(
    ("words", "error", "says"),
    [
        (["--input", "visit=events.jsonl"], AppError, "did you mean 'visits'"),
        (["--input", "visits"], UsageError, "SOURCE=FILE"),
        (["--input", "visits=none.jsonl"], DataError, "none.jsonl: cannot be read: No such file"),
        (["--input", "visits=contracts"], DataError, "is a folder"),
        (["--input", "visits=events.jsonl", "--partitions", "0"], UsageError, "at least 1, not 0"),
        (["--input", "visits=events.jsonl", "--batch-size", "0"], UsageError, "at least 1, not 0"),
        (["--input", "visits=events.jsonl", "--arrival", "at"], AppError, "timestamps of visits: event_time"),
        (["--input", "visits=events.jsonl", "--arrival", "action"], AppError, "is not a timestamp"),
        (["--input", "visits=events.jsonl", "--input", "visits=app.py"], UsageError, "'visits' twice"),
    ],
)
def test_mistakes_are_explained(
    shop: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], error: type[HeadraceError], says: str
) -> None:
    monkeypatch.chdir(shop)
    result = CliRunner().invoke(app, ["simulate", ".", "--output", "out", *words])
    assert isinstance(result.exception, error)
    assert says in str(result.exception)
    assert not (shop / "out").exists()


@pytest.mark.parametrize("name", ["My Shop", "", "../x y", "1st", "a" * 49])
def test_init_refuses_a_bad_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(CliRunner().invoke(app, ["init", name]).exception, UsageError)
    assert list(tmp_path.iterdir()) == []


def test_init_refuses_a_folder_with_something_in_it(shop: Path) -> None:
    assert isinstance(CliRunner().invoke(app, ["init", "my-shop"]).exception, UsageError)


def test_check_without_spark_is_about_files_only(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop)
    result = CliRunner().invoke(app, ["check", "--no-spark"])
    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == "ok"
    assert result.output.startswith("visits 1.0.0: 5 fields, key visitor_id")


def test_check_names_the_field_of_a_bad_pattern(spark: SparkSession, shop: Path) -> None:
    from headrace.ops.check import check_plans

    file = shop / "contracts" / "visits.yaml"
    text = file.read_text()
    pattern = "^a{3000000000}$"  # more than Java can count, but not more than Python can
    changed = text.replace(
        "partitioned: true # the Kafka key: events of one visitor share a partition\n"
        "        logicalTypeOptions: {minLength: 1, maxLength: 64}",
        f'partitioned: true\n        logicalTypeOptions: {{pattern: "{pattern}"}}',
    )
    assert changed != text
    file.write_text(changed)
    with pytest.raises(ContractError) as caught:
        check_plans(spark, load_app(shop))
    line = changed.splitlines().index("      - name: visitor_id") + 1
    assert f"visits.yaml:{line}: field 'visitor_id': Java cannot read the pattern" in str(caught.value)
    assert "repetition" in str(caught.value) and "\tat " not in str(caught.value)
