"""headrace demo: see it all work, on this machine, now."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.errors import UsageError

if TYPE_CHECKING:
    from headrace.connections import Connections
    from headrace.ops.audit_report import AuditReport


def demo(
    app: Annotated[
        Path | None, typer.Argument(help="The app: a folder, or its app.py.", show_default="the setting app")
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long traffic flows; 0 until Ctrl-C.")] = 60.0,
    rate: Annotated[float, typer.Option(help="Records per second, over all streams.")] = 1000.0,
    seed: Annotated[int, typer.Option(help="The same seed makes the same shoppers.")] = 7,
    recount: Annotated[bool, typer.Option(help="End with an independent recount of every event.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Start Kafka, Postgres and Spark, let shoppers shop, and account for every event.

    \b
    Examples:
      headrace demo
      headrace demo --seconds 40 --json
      headrace demo --rate 3000 --seconds 0
    """
    from headrace.cli.audit import show
    from headrace.cli.live import LiveView
    from headrace.local.demo import DemoOptions, run_demo
    from headrace.ops.audit import audit_source
    from headrace.ops.load import load_app
    from headrace.settings import load

    if rate <= 0 or seconds < 0:
        raise UsageError("--rate must be above 0 and --seconds not below 0")
    settings = load()
    loaded = load_app(app or settings.folder / settings.app)
    reports: list[AuditReport] = []

    def audit(connections: Connections) -> None:
        for stream in sorted(loaded.contracts):
            contract, source = loaded.contract(stream), loaded.source(stream)
            report = audit_source(
                *(loaded.name, contract, source, connections),
                metrics=loaded.accounts_of(stream),
                flows=loaded.flow_accounts_of(stream),
                enriched=loaded.enriched_topics_of(stream),
                lane=loaded.lane_of(stream),
                recount=recount,
            )
            reports.append(report)

    with LiveView(quiet=as_json) as view:
        run_demo(loaded, settings, DemoOptions(seconds, rate, seed), view.show, view.announce, audit)
    if as_json:
        print(json.dumps(summary(reports)))
    else:
        show(reports)
    if not all(report.clean for report in reports):
        raise typer.Exit(1)


def summary(reports: Sequence[AuditReport]) -> dict[str, Any]:
    """The demo in one object: the fates of all sources together, then of each, and what flows made of it."""
    fates = ("received", "accepted", "rejected", "duplicate", "late")
    totals = {fate: sum(getattr(report.fates, fate) for report in reports) for fate in fates}
    unaccounted = sum(report.unaccounted for report in reports)
    sources = {report.source: report.to_json()["totals"] for report in reports}
    flows = [{"source": report.source, **flow.to_json()} for report in reports for flow in report.flows]
    told = {"unaccounted": unaccounted, "clean": all(report.clean for report in reports)}
    return {**totals, **told, "sources": sources, "flows": flows}
