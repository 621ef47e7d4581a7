"""headrace alerts: what is wrong right now, and what was."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.errors import UsageError

STATES = ("open", "resolved")
MOST = 1000


def alerts(
    state: Annotated[str, typer.Option(help="Only open or only resolved ones.", show_default="both")] = "",
    alert: Annotated[str, typer.Option(help="Only of this alert.", show_default="all")] = "",
    limit: Annotated[int, typer.Option(help=f"At most so many, up to {MOST}.")] = 100,
    app: Annotated[Path | None, typer.Option("--app", help="The app file or its folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the alerts of the app: open ones first, then the newest.

    \b
    Examples:
      headrace alerts
      headrace alerts --state open --json
    """
    if state and state not in STATES:
        raise UsageError(f"--state is open or resolved, not {state}")
    if not 1 <= limit <= MOST:
        raise UsageError(f"--limit is a number from 1 to {MOST}, not {limit}")
    from headrace.local.connect import found_connections
    from headrace.ops.load import load_app
    from headrace.settings import load
    from headrace.store.alert_export import list_alerts, waiting_events
    from headrace.store.connection import Store

    settings = load(Path.cwd())
    loaded = load_app(app or settings.folder / settings.app)
    if alert:
        loaded.alert(alert)
    store = Store(found_connections(settings).store_url, settings.connect_seconds)
    store.prepare()
    found, waiting = store.transact(
        lambda connection: (
            list_alerts(connection, loaded.name, state=state, alert=alert, limit=limit),
            waiting_events(connection, loaded.name),
        )
    )
    if as_json:
        print(json.dumps({"alerts": found, "events": waiting}, indent=1, ensure_ascii=False))
    else:
        _show(found, waiting)


def _show(found: list[dict[str, Any]], waiting: dict[str, int]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    if not found:
        console.print("no alerts")
    else:
        heads = ("alert", "severity", "state", "group", "from", "to", "message", "opened", "resolved")
        table = Table(*heads, box=box.SIMPLE_HEAD)
        for row in found:
            state = f"{row['state']} ({row['resolution']})" if row["resolution"] else row["state"]
            cells = (
                *(row["alert"], row["severity"], state, _group(row["dimensions"])),
                *(row["window_start"], row["window_end"], row["message"], row["opened_at"]),
                row["resolved_at"] or "-",
            )
            table.add_row(*map(Text, cells), style="bold" if row["state"] == "open" else "")
        console.print(table)
    for what, count in waiting.items():
        if count:
            console.print(f"{count} events {_WAITING[what]}", markup=False)


_WAITING = {
    "unpublished": "wait for their topic",
    "undelivered": "wait for their webhook",
    "dead": "were given up by their webhook: headrace.alert_events tells why",
}


def _group(dimensions: dict[str, str]) -> str:
    return ", ".join(f"{name}={label}" for name, label in dimensions.items()) or "all"
