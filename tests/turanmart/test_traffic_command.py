"""headrace traffic with TuranMart's shoppers: files, options, and errors that say what to do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from headrace.cli.traffic import traffic
from headrace.contracts import load_contracts
from headrace.errors import HeadraceError, ServiceError, UsageError
from headrace.local.services import Services

ROOT = Path(__file__).parents[2]
APP = ROOT / "apps" / "turanmart"
FIXED = ("--start", "2026-07-01T09:00:00Z", "--seed", "5")

command = typer.Typer()
command.command()(traffic)


def run(*arguments: str) -> str:
    """Standard output of the command; its error is raised."""
    result = CliRunner().invoke(command, [str(APP), *arguments])
    if isinstance(result.exception, HeadraceError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_one_stream_goes_to_one_file_and_is_repeatable(tmp_path: Path) -> None:
    for name in ("one.jsonl", "two.jsonl"):
        run("--streams", "orders", "--events", "300", *FIXED, "--output", name)
    one = (tmp_path / "one.jsonl").read_bytes()
    assert one == (tmp_path / "two.jsonl").read_bytes()
    assert one.count(b"\n") == 300


def test_several_streams_go_to_a_folder(tmp_path: Path) -> None:
    said = json.loads(run("--events", "2000", *FIXED, "--output", "out/", "--json"))
    assert said["written"] == 2000
    lines = {file.stem: file.read_bytes().count(b"\n") for file in (tmp_path / "out").iterdir()}
    assert lines == said["streams"]
    assert set(lines) == {"clickstream", "payments", "orders", "logins"}


def test_broken_records_stay_on_their_line(tmp_path: Path) -> None:
    run("--streams", "clickstream", "--events", "500", "--malformed", "0.9", *FIXED, "--output", "bad.jsonl")
    lines = (tmp_path / "bad.jsonl").read_bytes().split(b"\n")
    assert len(lines) == 501
    assert any(b"\xff" in line for line in lines) and b"" in lines[:-1]


def test_standard_output_carries_records_only() -> None:
    program = "from tests.turanmart.test_traffic_command import command; command()"
    arguments = [
        str(APP),
        "--streams",
        "logins",
        "--events",
        "20",
        "--malformed",
        "0",
        *FIXED,
        "--output",
        "-",
    ]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        check=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert len([json.loads(line) for line in done.stdout.splitlines()]) == 20
    assert b"20 records written" in done.stderr


def test_weights_choose_the_mix() -> None:
    said = json.loads(
        run("--streams", "clickstream=1,orders=3", "--events", "4000", *FIXED, "--output", "o/", "--json")
    )
    assert said["streams"]["orders"] / 4000 == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--output", "x.jsonl", "--events", "1"], "one file holds one stream"),
        (["--late", "2"], "late is a share between 0 and 1, not 2"),
        (["--rate", "0"], "rate must be above 0"),
        (["--rate", "nan"], "rate must be above 0"),
        (["--seconds", "-1"], "--seconds cannot be -1"),
        (["--streams", "orders,klicks"], "no stream 'klicks'"),
        (["--streams", "orders=many"], "'many' is not a weight"),
        (["--start", "yesterday"], "'yesterday' is not a time"),
        (["--seconds", "0", "--fast"], "never end"),
        (["--idle-for", "3"], "need --idle-partition"),
        (["--idle-partition", "1", "--output", "x"], "a file has no partitions"),
        (
            ["--output", "missing/x.jsonl", "--streams", "orders", "--events", "1"],
            "cannot write missing/x.jsonl",
        ),
    ],
)
def test_wrong_values_are_explained(arguments: list[str], text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(text)):
        run(*arguments)


def test_without_kafka_it_says_how_to_start_one() -> None:
    with pytest.raises(ServiceError, match="no Kafka is running") as failure:
        run("--events", "1")
    assert "headrace up" in str(failure.value)


@pytest.fixture
def raw_topics(services: Services) -> Iterator[list[str]]:
    admin = AdminClient({"bootstrap.servers": services.bootstrap})
    names = [contract.topics.raw for contract in load_contracts(APP / "contracts").values()]
    have = admin.list_topics(timeout=30).topics
    new = [NewTopic(name, 4, 1) for name in names if name not in have]
    for made in admin.create_topics(new).values() if new else ():
        made.result(30)
    yield names
    for gone in admin.delete_topics([topic.topic for topic in new]).values() if new else ():
        gone.result(30)


def test_records_reach_the_raw_topics_at_the_rate(
    services: Services, raw_topics: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_KAFKA_BOOTSTRAP", services.bootstrap)
    said: dict[str, Any] = json.loads(run("--rate", "1000", "--seconds", "1", "--json"))
    assert said["delivered"] == said["sent"] == sum(said["streams"].values()) == pytest.approx(1000, abs=2)
    assert said["seconds"] > 0.95
    assert "records delivered in" in run("--events", "500", "--fast")


def test_the_readme_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    (code,) = re.findall(r"```python\n(.*?)```", (APP / "README.md").read_text(), re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out.count("\n") == 1000
