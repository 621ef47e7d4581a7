"""headrace status: what runs in this folder, and where."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.watching import pipeline_view
from headrace.settings import load

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from headrace.local.services import RunningServices, ServiceFact

NOT_RUNNING = 3


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show the services of this folder and how its sources are doing. Ends with 3 if nothing runs.

    \b
    Examples:
      headrace status
      headrace status --watch
      headrace status --json
    """
    from headrace.cli.watching import show
    from headrace.local.services import Services

    folder = Path.cwd()
    if Services.running(folder) is None and not _elsewhere(folder):
        if as_json:
            print(json.dumps(document(None) | {"sources": [], "problems": []}, indent=1))
        else:
            print("nothing is running in this folder; start with: headrace up")
        raise typer.Exit(NOT_RUNNING)
    with ExitStack() as opened:
        view = opened.enter_context(pipeline_view(None)) if _has_app(folder) else None

        def look() -> dict[str, Any]:
            told = document(Services.running(folder))
            return told | (view.now() if view is not None else {"sources": [], "problems": []})

        show(look, _picture, as_json=as_json, watch=watch)


def _picture(told: dict[str, Any]) -> RenderableType:
    from rich.console import Group

    from headrace.cli.pipeline_tables import status_picture

    parts = [_services(told["services"])] if told["services"] else []
    return Group(*parts, status_picture(told))


def _elsewhere(folder: Path) -> bool:
    """Whether the settings name a log and a store that we do not run ourselves."""
    settings = load(folder)
    return bool(settings.kafka_bootstrap and settings.store_url)


def _has_app(folder: Path) -> bool:
    settings = load(folder)
    return (settings.folder / settings.app).exists()


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
    from rich.console import Console

    Console().print(_services(document(running)["services"]))


def _services(services: list[dict[str, Any]]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table("service", "state", "address", "pid", "up since", box=box.SIMPLE_HEAD)
    for told in services:
        table.add_row(
            told["name"], told["state"], told["address"], str(told["pid"] or "-"), told["since"] or "-"
        )
    return table


def state(fact: ServiceFact) -> str:
    import psutil

    if not fact.embedded:
        return "external"
    return "up" if psutil.pid_exists(fact.pid) else "down"
