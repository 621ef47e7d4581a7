"""The keeper with small stand-ins for a service: what it stops, when, and how hard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from headrace.local.service import KEEPER

Kept = tuple["subprocess.Popen[str]", psutil.Process, Path]
Keep = Callable[..., Kept]

OBEDIENT = """
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(print("clean", flush=True)))
print("ready", flush=True)
time.sleep(600)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Keep]:
    started: list[subprocess.Popen[str]] = []

    def start(script: str, *options: str) -> Kept:
        said = tmp_path / "said"
        with said.open("w") as stream:
            keeper = subprocess.Popen(
                [sys.executable, "-I", str(KEEPER), *options, "--", sys.executable, "-c", script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                start_new_session=True,
            )
        started.append(keeper)
        assert keeper.stdout
        service = psutil.Process(int(keeper.stdout.readline()))
        until(lambda: "ready" in said.read_text())
        return keeper, service, said

    yield start
    for keeper in started:
        keeper.kill()
        keeper.wait()
        for pipe in (keeper.stdin, keeper.stdout):
            if pipe:
                pipe.close()


def close_pipe(keeper: subprocess.Popen[str]) -> None:
    assert keeper.stdin
    keeper.stdin.close()


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.01)


def test_a_closed_pipe_stops_the_service_with_its_own_signal(keep: Keep) -> None:
    keeper, service, said = keep(OBEDIENT, "--stop-signal", "INT")
    close_pipe(keeper)
    assert keeper.wait(10) == 0
    assert not service.is_running()
    assert "clean" in said.read_text()


def test_sigterm_to_the_keeper_stops_the_service(keep: Keep) -> None:
    keeper, service, said = keep(OBEDIENT, "--stop-signal", "INT")
    keeper.terminate()
    assert keeper.wait(10) == 0
    assert not service.is_running()
    assert "clean" in said.read_text()


def test_a_stubborn_service_is_killed_after_the_deadline(keep: Keep) -> None:
    keeper, service, _ = keep(STUBBORN, "--deadline", "0.3")
    close_pipe(keeper)
    assert keeper.wait(10) == 128 + signal.SIGKILL
    assert not service.is_running()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
def test_kill_9_of_the_keeper_stops_the_service_too(keep: Keep) -> None:
    keeper, service, said = keep(OBEDIENT, "--stop-signal", "INT")
    keeper.kill()
    until(lambda: not service.is_running() or service.status() == psutil.STATUS_ZOMBIE)
    assert "clean" in said.read_text()


def test_the_service_is_out_of_reach_of_ctrl_c_in_the_terminal(keep: Keep) -> None:
    keeper, service, _ = keep(OBEDIENT)
    groups = {os.getpgrp(), os.getpgid(keeper.pid), os.getpgid(service.pid)}
    assert len(groups) == 3


def test_a_command_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", str(KEEPER), "--", str(tmp_path / "nothing")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 125
    assert "cannot start" in done.stderr
    assert done.stdout == ""
