"""headrace status: what runs in this folder, and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from headrace.local.services import RunningServices, ServiceFact

NOT_RUNNING = 3


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show the services of this folder. Ends with 3 if nothing runs."""
    from headrace.local.services import Services

    running = Services.running(Path.cwd())
    if as_json:
        print(json.dumps(document(running), indent=1))
    elif running:
        service_table(running)
    else:
        print("nothing is running in this folder; start with: headrace up")
    if running is None:
        raise typer.Exit(NOT_RUNNING)


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
