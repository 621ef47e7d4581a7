"""The whole platform for a while: services, traffic, gate, a live view, and the audit at the end."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.connections import Connections
from headrace.errors import ServiceError
from headrace.local.connect import connections_of
from headrace.local.engine import EngineProcess
from headrace.local.serve import ServeProcess
from headrace.local.services import Services
from headrace.log.topics import ensure_topics
from headrace.ops.load import LoadedApp
from headrace.ops.snapshot import Snapshots, SourceNow
from headrace.settings import Settings

DRAIN_SECONDS = 120.0
Show = Callable[[str, list[SourceNow]], None]  # what is going on, and how far it is


@dataclass(frozen=True)
class DemoOptions:
    seconds: float  # of traffic; 0 goes on until interrupted
    rate: float
    seed: int


def run_demo(
    loaded: LoadedApp,
    settings: Settings,
    options: DemoOptions,
    show: Show,
    announce: Callable[[str], None],
    finish: Callable[[Connections], None],
) -> None:
    """Run in a folder of its own, fresh each time; `finish` sees the services before they stop.

    `announce` is told where the dashboard is.
    """
    folder = settings.state_dir / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    app = loaded.app.file.parent
    own = dataclasses.replace(settings, folder=folder, kafka_bootstrap="", store_url="")
    show("starting Kafka and Postgres", [])
    with Services(folder, own) as services:
        connections = connections_of(services)
        for contract in loaded.contracts.values():
            ensure_topics(contract, connections.librdkafka)
        engine = EngineProcess(services.state, app)
        serve = ServeProcess(services.state, app, port=settings.serve_port)
        try:
            # Spark takes the longest to start: the dashboard and the traffic do not wait for it.
            engine.begin()
            show("starting the dashboard", [])
            serve.start()
            announce(serve.url)
            _watch(loaded, connections, engine, app, folder, options, show)
            engine.stop()
            show("checking every event", [])
            finish(connections)
        finally:
            engine.stop()
            serve.stop()


def _watch(
    loaded: LoadedApp,
    connections: Connections,
    engine: EngineProcess,
    app: Path,
    folder: Path,
    options: DemoOptions,
    show: Show,
) -> None:
    snapshots = Snapshots(loaded, connections)
    traffic = _start_traffic(app, folder, options)
    try:
        while traffic.poll() is None:
            show(_doing(engine), snapshots.take())
            _check(engine)
            time.sleep(0.5)
        if traffic.returncode:
            raise ServiceError(f"the traffic ended with {traffic.returncode}", hint=f"see {_log(folder)}")
    except KeyboardInterrupt:
        pass
    finally:
        traffic.terminate()
        traffic.wait(30)
    try:
        _drain(snapshots, engine, show)
    finally:
        snapshots.close()


def _doing(engine: EngineProcess) -> str:
    return "traffic" if engine.is_healthy() else "Spark is starting; what comes in waits in Kafka"


def _drain(snapshots: Snapshots, engine: EngineProcess, show: Show) -> None:
    """Wait until the gates have read everything; a deadline, since a wait needs one."""
    until = time.monotonic() + DRAIN_SECONDS
    while True:
        now = snapshots.take()
        show("finishing", now)
        if all(source.lag == 0 for source in now):
            return
        _check(engine)
        if time.monotonic() > until:
            lag = sum(source.lag for source in now)
            raise ServiceError(f"{lag} records are still unread after {DRAIN_SECONDS:.0f} s")
        time.sleep(0.3)


def _check(engine: EngineProcess) -> None:
    if not engine.is_running():
        raise ServiceError(
            f"the engine ended; its last words:\n{engine.log_tail()}", hint=f"see {engine.log}"
        )


def _log(folder: Path) -> Path:
    return folder / ".headrace" / "log" / "traffic.log"


def _start_traffic(app: Path, folder: Path, options: DemoOptions) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "headrace.cli", "traffic", str(app.resolve()), "--json"]
    command += ["--rate", str(options.rate), "--seconds", str(options.seconds), "--seed", str(options.seed)]
    with _log(folder).open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ,
            start_new_session=True,
        )
