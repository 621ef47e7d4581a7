"""headrace status: what runs in this folder, and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.errors import ServiceError

if TYPE_CHECKING:
    from headrace.local.services import RunningServices, ServiceFact
    from headrace.ops.snapshot import SourceNow

NOT_RUNNING = 3


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show the services of this folder and how far its sources are. Ends with 3 if nothing runs.

    \b
    Examples:
      headrace status
      headrace status --json
    """
    from headrace.local.services import Services

    running = Services.running(Path.cwd())
    sources = snapshot() if running else []
    if as_json:
        print(json.dumps(document(running) | {"sources": [s.to_json() for s in sources]}, indent=1))
    elif running:
        service_table(running)
        show_sources(sources)
    else:
        print("nothing is running in this folder; start with: headrace up")
    if running is None:
        raise typer.Exit(NOT_RUNNING)


def snapshot() -> list[SourceNow]:
    """The sources of the folder's app, if it has one and its topics exist."""
    from headrace.local.connect import found_connections
    from headrace.ops.load import load_app
    from headrace.ops.snapshot import Snapshots
    from headrace.settings import load

    settings = load()
    app = settings.folder / settings.app
    if not app.exists():
        return []
    snapshots = Snapshots(load_app(app), found_connections(settings))
    try:
        return snapshots.take()
    except ServiceError:
        return []  # the engine has not made the topics yet
    finally:
        snapshots.close()


def show_sources(sources: list[SourceNow]) -> None:
    from rich.console import Console

    from headrace.cli.live import clock_table, source_table

    if sources:
        console = Console()
        width = None if console.is_terminal else 140
        console.print(source_table(sources), clock_table(sources), width=width)


def document(running: RunningServices | None) -> dict[str, Any]:
    """The status as plain values; no address in it carries a password."""
    if running is None:
        return {"running": False, "services": []}
    services = [
        {
            "name": fact.name,
            "state": state(fact),
            "address": fact.address,
            "embedded": fact.embedded,
            "pid": fact.pid or None,
            "since": fact.since or None,
        }
        for fact in running.facts
    ]
    return {"running": True, "pid": running.pid, "since": running.since, "services": services}


def service_table(running: RunningServices) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table("service", "state", "address", "pid", "up since", box=box.SIMPLE_HEAD)
    for fact in running.facts:
        table.add_row(fact.name, state(fact), fact.address, str(fact.pid or "-"), fact.since or "-")
    Console().print(table)


def state(fact: ServiceFact) -> str:
    import psutil

    if not fact.embedded:
        return "external"
    return "up" if psutil.pid_exists(fact.pid) else "down"
