"""headrace up: start everything that the app in this folder needs, and keep it running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from headrace.errors import ServiceError

if TYPE_CHECKING:
    from headrace.local.services import RunningServices, Services


def up(
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when healthy; stop with: headrace down.")
    ] = False,
) -> None:
    """Start the broker, the database and the app of this folder and keep them running.

    \b
    Examples:
      headrace up
      headrace up --detach && headrace status && headrace down
    """
    from headrace.local.services import Services

    folder = Path.cwd()
    if detach:
        _detach(folder)
        _show(folder)
        return
    services = Services(folder)
    with stopped_by_signals(), services:
        run_app(services)


def run_app(services: Services) -> NoReturn:
    """Run the folder's app beside its services until a signal ends us; report the first part that dies."""
    from headrace.local.engine import EngineProcess
    from headrace.local.serve import ServeProcess

    parts = list(services.embedded)
    settings = services.settings
    app = services.folder / settings.app
    engine = EngineProcess(services.state, app)
    serve = ServeProcess(services.state, app, settings.serve_host, settings.serve_port)
    try:
        if app.exists():
            engine.begin()
            parts.append(engine)
            # It shows what there is, whether or not the engine is ready.
            serve.start()
            services.tell_of(serve)
            parts.append(serve)
        _show(services.folder)
        print("Ctrl-C stops everything; the data stays in .headrace", flush=True)
        if app.exists():
            asks = "a token is asked for" if settings.serve_tokens else "no token is asked for"
            print(f"dashboard: {serve.url} ({asks})", flush=True)
            engine.wait()
            print(f"the app {settings.app} runs; its log is {engine.log}", flush=True)
        else:
            print(f"no app at {app}: only the services run", flush=True)
        while True:
            for part in parts:
                if not part.is_running():
                    raise ServiceError(
                        f"{part.name} ended unexpectedly; its last words:\n{part.log_tail()}",
                        hint=f"the whole log is {part.log}; start again with: headrace up",
                    )
            time.sleep(0.5)
    finally:
        engine.stop()
        serve.stop()


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """SIGTERM ends the block as an exit, Ctrl-C as an interrupt; then stopping is left alone."""

    def stop(number: int, _frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("stopping", flush=True)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(0)

    before = [(number, signal.signal(number, stop)) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _detach(folder: Path) -> None:
    from headrace.local.services import Services
    from headrace.settings import load

    settings = load(folder)
    log = folder / ".headrace" / "log" / "up.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        begin = stream.tell()
        child = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", "up"],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    # A first start may have to fetch the jars before the clock of a service begins to run.
    until = time.monotonic() + settings.start_seconds + 300
    parts = {"kafka", "postgres"} | ({"serve"} if (folder / settings.app).exists() else set())
    while not is_up(Services.running(folder, settings), child.pid, parts):
        if child.poll() is not None:
            said = log.read_bytes()[begin:].decode(errors="replace").strip().removeprefix("error: ")
            raise ServiceError(
                said or f"headrace up ended with {child.returncode}", hint="" if said else f"see {log}"
            )
        if time.monotonic() > until:
            child.terminate()
            raise ServiceError("headrace up is not healthy yet and was stopped", hint=f"see {log}")
        time.sleep(0.05)


def is_up(running: RunningServices | None, pid: int, parts: set[str]) -> bool:
    return running is not None and running.pid == pid and parts <= {fact.name for fact in running.facts}


def _show(folder: Path) -> None:
    from headrace.cli.status import service_table
    from headrace.local.services import Services

    if running := Services.running(folder):
        service_table(running)
