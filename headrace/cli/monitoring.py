"""headrace monitoring: files for the Prometheus and the Grafana that you have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def monitoring(
    app: Annotated[
        Path | None, typer.Argument(help="The app: a folder, or its app.py.", show_default="the setting app")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write to.", show_default="monitoring")
    ] = None,
    base_url: Annotated[
        str,
        typer.Option(
            "--base-url",
            help="Where people reach headrace serve, for links to runbooks.",
            show_default="as Prometheus reaches it",
        ),
    ] = "",
) -> None:
    """Write alert rules from the contracts' promises, tests of these rules, and a dashboard.

    \b
    Examples:
      headrace monitoring apps/turanmart
      headrace monitoring --output /etc/prometheus/rules --base-url https://headrace.example.com
      promtool check rules monitoring/headrace-alerts.yml
    """
    from headrace.errors import UsageError
    from headrace.ops.load import load_app
    from headrace.ops.monitoring_files import monitoring_files
    from headrace.settings import load

    settings = load()
    loaded = load_app(app or settings.folder / settings.app)
    folder = output or Path("monitoring")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in monitoring_files(loaded, base_url).items():
            (folder / name).write_text(text)
            print(folder / name)
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", where=str(folder)) from error
