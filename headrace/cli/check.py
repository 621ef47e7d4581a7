"""headrace check: find the mistakes in an app and its contracts before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def check(
    app: Annotated[
        Path | None, typer.Argument(help="The app: a folder, or its app.py.", show_default="setting 'app'")
    ] = None,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Only read the app and its contracts: quick.")
    ] = False,
) -> None:
    """Load the app and its contracts, and build the gate of every source without running it."""
    from headrace import settings
    from headrace.ops.load import load_app

    chosen = settings.load()
    loaded = load_app(app or Path(chosen.app))
    if not no_spark:
        from headrace.ops.check import check_plans
        from headrace.ops.local_session import local_session

        with local_session(f"check {loaded.name}", chosen) as spark:
            check_plans(spark, loaded)
    for name, contract in sorted(loaded.contracts.items()):
        fields = "1 field" if len(contract.fields) == 1 else f"{len(contract.fields)} fields"
        print(f"{name} {contract.version}: {fields}, key {contract.key}, {contract.file}")
    print("ok")
