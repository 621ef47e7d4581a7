"""headrace lag, status and health as a user or a probe runs them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from headrace.cli import app as cli
from headrace.connections import lane_query_name
from headrace.errors import HeadraceError
from headrace.local.connect import connections_of
from headrace.local.services import Services
from headrace.store.reports import Report
from tests.ops.books import LANE, Books, open_books

HEADRACE = (sys.executable, "-m", "headrace.cli")


class Said(NamedTuple):
    returncode: int
    stdout: str
    error: str


class Shell:
    """The commands, in the folder of an app whose services are named in the environment."""

    def __init__(self, books: Books, folder: Path) -> None:
        self.books, self.folder = books, folder
        self.environment = {
            "HEADRACE_KAFKA_BOOTSTRAP": books.connections.bootstrap,
            "HEADRACE_STORE_URL": books.connections.store_url,
        }

    def run(self, *arguments: str, **more: str) -> Said:
        with contextlib.chdir(self.folder):
            done = CliRunner().invoke(cli, arguments, env={**self.environment, **more})
        if isinstance(done.exception, HeadraceError):
            return Said(done.exception.exit_code, done.stdout, str(done.exception))
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return Said(done.exit_code, done.stdout, "")


@pytest.fixture(scope="module")
def shell(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("watched")
    books = open_books(connections_of(services), folder / "app", "watched")
    (folder / "headrace.toml").write_text('app = "app"\n')
    books.send(0, 30)
    books.write(0, (20, 0, 0, 0), oldest=timedelta(seconds=1))
    books.report()
    yield Shell(books, folder)
    books.store.close()


def test_lag(shell: Shell) -> None:
    told = json.loads(shell.run("lag", "--json").stdout)
    [source] = told["sources"]
    assert (source["source"], source["lag"]["records"]) == ("watched_sales", 10)
    assert [p["lag_records"] for p in source["partitions"]] == [10, 0]
    assert source["partitions"][0]["lag_seconds"] > 0
    plain = shell.run("lag", "watched_sales")
    assert plain.returncode == 0, plain.error
    [first, second, total] = [line.split() for line in plain.stdout.splitlines() if "watched_sales" in line]
    assert (first[1:5], second[1:5]) == (["0", "20", "30", "10"], ["1", "0", "0", "0"])
    assert total[1:3] == ["all", "10"]
    assert "\x1b" not in plain.stdout
    wrong = shell.run("lag", "watched_sale")
    assert (wrong.returncode, "did you mean 'watched_sales'?" in wrong.error) == (1, True)


def test_status(shell: Shell) -> None:
    told = json.loads(shell.run("status", "--json").stdout)
    assert (told["sources"][0]["received"], told["sources"][0]["unaccounted"]) == (20, 0)
    plain = shell.run("status").stdout
    assert "watched_sales" in plain and "running" in plain


def test_status_has_a_line_for_each_flow(shell: Shell) -> None:
    books = shell.books
    books.execute(
        "INSERT INTO headrace.flow_sides (query, flow, side, first_batch, taken, matched, unmatched, late,"
        " accepted) VALUES (%s, 'paid', 'left', 0, 12, 6, 3, 1, 20)",
        (books.query,),
    )
    for outcome, count in {"accepted": 20, "counted": 18, "filtered": 1, "late": 1, "open": 7}.items():
        books.execute(
            "INSERT INTO headrace.flow_totals VALUES ('watched', %s, 'sessions.visits', %s, %s, 0)",
            (books.query, outcome, count),
        )
    lines = [line.split() for line in shell.run("status").stdout.splitlines()]
    source = books.query.partition(".")[2]
    said = ["6", "matched", "+", "3", "unmatched", "+", "2", "pending"]
    assert ["paid,", "left", "join", source, "12", "1", "2", "-", *said] in lines
    assert ["visits", "sessions", source, "19", "1", "7", "-", "18", "in", "sessions"] in lines
    flows = {flow["flow"]: flow for flow in json.loads(shell.run("status", "--json").stdout)["flows"]}
    assert (flows["visits"]["kind"], flows["visits"]["filtered"]) == ("sessions", 1)
    assert (flows["paid"]["side"], flows["paid"]["waiting"]) == ("left", 2)


def test_status_has_a_line_for_each_lane(shell: Shell) -> None:
    books = shell.books

    def told(report: Report) -> None:
        report.progress = {"received": 1200, "signals": 7, "latency_ms": {"p50": 9, "p99": 1060}}
        report.status, report.restarts = "restarting", 2
        report.fail("the broker was away", datetime.now(UTC))

    file = shell.folder / "app" / "app.py"
    before = file.read_text()
    file.write_text(before + LANE.format(stream=books.stream))
    try:
        books.report(told, lane_query_name("watched", books.stream))
        lines = [line.split() for line in shell.run("status").stdout.splitlines()]
        health = json.loads(shell.run("health", "--json").stdout)
    finally:
        file.write_text(before)
    assert [books.stream, "restarting", "1,200", "7", "9", "ms", "1,060", "ms", "2"] in lines
    [check] = [one for one in health["checks"] if one["name"] == f"lane {books.stream}"]
    assert (check["status"], check["runbook"]) == ("degraded", "/runbooks/realtime-lane")
    assert "the broker was away" in check["detail"]


def test_watching_in_a_pipe_gives_a_line_for_each_look(shell: Shell) -> None:
    watching = subprocess.Popen(
        [*HEADRACE, "status", "--watch", "--json"],
        cwd=shell.folder,
        env={**os.environ, **shell.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    first, second = (json.loads(watching.stdout.readline()) for _ in range(2))
    assert first["at"] < second["at"]
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=20)
    assert (watching.returncode, said) == (0, "")


def test_health(shell: Shell) -> None:
    shell.books.report(lambda report: setattr(report, "status", "running"))
    well = shell.run("health", "--json")
    assert (well.returncode, json.loads(well.stdout)["status"]) == (0, "ok")

    def fail(report: Report) -> None:
        report.status = "restarting"
        report.fail("disk full", datetime.now(UTC))

    shell.books.report(fail)
    sick = shell.run("health")
    assert sick.returncode == 1
    [line] = [line for line in sick.stdout.splitlines() if "disk full" in line]
    assert line.split()[:3] == ["degraded", "query", "watched_sales"]
    assert "docs/runbooks/restart-storms.md" in line
    assert shell.run("health", "--allow-degraded").returncode == 0
    gone: dict[str, Any] = {
        "HEADRACE_STORE_URL": "postgresql://a:secret@127.0.0.1:1/x",
        "HEADRACE_CONNECT_SECONDS": "1",
    }
    down = shell.run("health", "--allow-degraded", **gone)
    assert (down.returncode, "store" in down.stdout, "secret" in down.stdout + down.error) == (
        1,
        True,
        False,
    )
