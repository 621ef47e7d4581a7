"""headrace lag: how far the gates are behind, partition by partition."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def lag(
    source: Annotated[
        str | None, typer.Argument(help="A stream of the app; all of them if left out.")
    ] = None,
    app: Annotated[Path | None, typer.Option("--app", help="The app file or its folder.")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show the lag of each partition in records and in seconds: the age of its next unread record.

    \b
    Examples:
      headrace lag
      headrace lag clickstream --watch
      headrace lag --json
    """
    from headrace.cli.pipeline_tables import lag_picture
    from headrace.cli.watching import pipeline_view, show

    with pipeline_view(app) as view:
        if source:
            view.loaded.contract(source)

        def look() -> dict[str, Any]:
            now = view.now()
            kept = ("source", "query", "lag", "freshness_seconds", "slo", "last_failure", "last_failure_at")
            sources = [
                {name: s[name] for name in (*kept, "partitions")}
                for s in now["sources"]
                if source in (None, s["source"])
            ]
            return {"at": now["at"], "sources": sources, "problems": now["problems"]}

        show(look, lag_picture, as_json=as_json, watch=watch)
