"""headrace health: is it well? For probes, and for people in a hurry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

NOT_WELL = 1


def health(
    app: Annotated[Path | None, typer.Option("--app", help="The app file or its folder.")] = None,
    allow_degraded: Annotated[
        bool, typer.Option("--allow-degraded", help="End with 0 while it works, if not as promised.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check log, store, queries and promises. Ends with 1, and says why, when something is not well.

    \b
    Examples:
      headrace health
      headrace health --allow-degraded || restart-it
      headrace health --json
    """
    from headrace.cli.watching import pipeline_view
    from headrace.ops.health import health_now

    with pipeline_view(app) as view:
        verdict = health_now(view)
    if as_json:
        print(json.dumps(verdict, indent=1))
    else:
        _tell(verdict)
    if verdict["status"] == "down" or (verdict["status"] == "degraded" and not allow_degraded):
        raise typer.Exit(NOT_WELL)


def _tell(verdict: dict[str, Any]) -> None:
    """A line for each check, the bad ones first."""
    from rich.console import Console
    from rich.text import Text

    colours = {"ok": "green", "degraded": "yellow", "down": "red"}
    console = Console(soft_wrap=True)
    console.print(Text(verdict["status"], f"bold {colours[verdict['status']]}"))
    wide = max(len(check["name"]) for check in verdict["checks"])
    for check in sorted(verdict["checks"], key=lambda c: ("down", "degraded", "ok").index(c["status"])):
        page = f"  (docs/{check['runbook'].strip('/')}.md)" if check["runbook"] else ""
        status = Text(f"  {check['status']:<9}", colours[check["status"]])
        console.print(status + Text(f" {check['name']:<{wide}}  {check['detail']}{page}"))
