"""headrace up, status and down as a user runs them, and what is left after kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from headrace.local.services import Services

HEADRACE = (sys.executable, "-m", "headrace.cli")


def headrace(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HEADRACE, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("up")
    yield folder
    headrace(folder, "down")


def family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def test_up_status_second_up_down(folder: Path) -> None:
    started = headrace(folder, "up", "--detach")
    assert started.returncode == 0, started.stderr
    running = Services.running(folder)
    assert running is not None
    processes = family(running.pid)

    told = json.loads(headrace(folder, "status", "--json").stdout)
    assert [(s["name"], s["state"], s["address"]) for s in told["services"]] == [
        (fact.name, "up", fact.address) for fact in running.facts
    ]

    second = headrace(folder, "up")
    assert (second.returncode, second.stdout) == (1, "")
    assert second.stderr.startswith("error: ")
    assert f"already runs in this folder (process {running.pid})" in second.stderr
    assert "Traceback" not in second.stderr

    stopped = headrace(folder, "down")
    assert (stopped.returncode, stopped.stdout) == (0, f"stopped (process {running.pid})\n")
    assert psutil.wait_procs(processes, timeout=10)[1] == []


def test_down_and_status_when_nothing_runs(tmp_path: Path) -> None:
    again = headrace(tmp_path, "down")
    assert (again.returncode, again.stdout) == (0, "nothing is running in this folder\n")
    assert headrace(tmp_path, "status").returncode == 3


def test_kill_9_of_up_leaves_nothing_running(folder: Path) -> None:
    parent = subprocess.Popen([*HEADRACE, "up"], cwd=folder, stdout=subprocess.DEVNULL)
    until(lambda: Services.running(folder) is not None, 90)
    processes = family(parent.pid)
    assert len(processes) > 4

    parent.send_signal(signal.SIGKILL)
    parent.wait()
    _, left = psutil.wait_procs(processes[1:], timeout=40)
    assert left == []
    assert Services.running(folder) is None
    assert headrace(folder, "down").stdout == "nothing is running in this folder\n"


def test_ctrl_c_while_starting_leaves_nothing_running(folder: Path) -> None:
    parent = subprocess.Popen(
        [*HEADRACE, "up"], cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    until(lambda: len(family(parent.pid)) > 2, 60)
    processes = family(parent.pid)
    parent.send_signal(signal.SIGINT)
    _, said = parent.communicate(timeout=60)
    assert (parent.returncode, said) == (130, "")
    assert psutil.wait_procs(processes[1:], timeout=40)[1] == []


def test_a_service_that_dies_ends_up_with_its_name(services: Services, tmp_path: Path) -> None:
    # With an existing Kafka only Postgres is started, which takes a moment.
    given = {**os.environ, "HEADRACE_KAFKA_BOOTSTRAP": services.bootstrap}
    parent = subprocess.Popen(
        [*HEADRACE, "up"],
        cwd=tmp_path,
        env=given,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: Services.running(tmp_path) is not None, 60)
    running = Services.running(tmp_path)
    assert running is not None
    assert [fact.embedded for fact in running.facts] == [False, True]
    psutil.Process(running.facts[1].pid).kill()
    _, said = parent.communicate(timeout=30)
    assert parent.returncode == 1
    assert said.startswith("error: postgres ended unexpectedly")
    assert str(tmp_path / ".headrace/log/postgres.log") in said


def test_a_wrong_setting_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text("kafka_prot = 1\n")
    done = headrace(tmp_path, "up")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: {tmp_path}/headrace.toml:1: unknown setting 'kafka_prot'\n  → did you mean 'kafka_port'?\n"
    )
    assert not (tmp_path / ".headrace").exists()


def test_a_failure_of_a_detached_start_reaches_the_terminal(services: Services, tmp_path: Path) -> None:
    done = headrace(
        tmp_path,
        *("up", "--detach"),
        HEADRACE_KAFKA_BOOTSTRAP="127.0.0.1:1",
        HEADRACE_STORE_URL=services.store_url,
        HEADRACE_CONNECT_SECONDS="1",
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: Kafka at 127.0.0.1:1 did not answer in 1 s")


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys, headrace.cli; "
        "print([m for m in ('pyspark', 'pandas', 'numpy', 'psycopg', 'confluent_kafka') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
