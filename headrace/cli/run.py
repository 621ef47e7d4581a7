"""headrace run: the engine of an app, against services that already run."""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer


def run(
    app: Annotated[
        Path | None, typer.Argument(help="The app: a folder, or its app.py.", show_default="the setting app")
    ] = None,
    source: Annotated[list[str] | None, typer.Option(help="Only this source; may be repeated.")] = None,
) -> None:
    """Run the app's queries until SIGTERM or Ctrl-C; the running batches finish first.

    \b
    Examples:
      headrace run
      headrace run apps/turanmart --source clickstream
    """
    from headrace.local.connect import found_connections
    from headrace.local.engine import READY
    from headrace.ops.load import load_app
    from headrace.ops.run import Engine
    from headrace.settings import load

    settings = load()
    place = app or Path(settings.app)
    loaded = load_app(place)
    for name in source or []:
        loaded.contract(name)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S")
    found = found_connections(settings)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    engine = Engine(loaded, settings, found, source)
    ready = settings.state_dir / READY
    ready.unlink(missing_ok=True)
    try:
        engine.start()
        engine.wait_warm(stop.is_set)
        ready.touch()
        print(f"running {', '.join(engine.sources)}", flush=True)
        engine.supervise(stop.is_set)
    finally:
        ready.unlink(missing_ok=True)
        engine.stop()
