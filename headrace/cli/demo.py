"""headrace demo: see it all work, on this machine, now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.errors import UsageError

if TYPE_CHECKING:
    from headrace.ops.gate_query import Connections


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
    from headrace.cli.audit import print_reports, summary
    from headrace.cli.live import LiveView
    from headrace.ops.audit import audit_app
    from headrace.ops.demo import DemoOptions, run_demo
    from headrace.ops.load import load_app
    from headrace.settings import load

    if rate <= 0 or seconds < 0:
        raise UsageError("--rate must be above 0 and --seconds not below 0")
    settings = load()
    loaded = load_app(app or Path(settings.app))
    clean = False
    with LiveView(quiet=as_json) as view:

        def finish(connections: Connections) -> None:
            nonlocal clean
            reports = audit_app(loaded, connections, recount=recount)
            clean = all(report.clean for report in reports)
            view.__exit__(None, None, None)
            if as_json:
                print(summary(reports))
            else:
                print_reports(reports)

        run_demo(loaded, settings, DemoOptions(seconds, rate, seed), view.show, finish)
    if not clean:
        raise typer.Exit(1)
