"""headrace simulate: an app's gate over JSON-lines files, on this machine, with nothing to start."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.errors import AppError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from headrace.ops.load import LoadedApp
    from headrace.ops.simulate import Input

TOP_REASONS = 5
UNACCOUNTED = 1


def simulate(
    app: Annotated[Path, typer.Argument(help="The app: a folder, or its app.py.")],
    inputs: Annotated[
        list[str],
        typer.Option("--input", metavar="SOURCE=FILE", help="A source and its JSON lines; repeatable."),
    ],
    output: Annotated[Path, typer.Option(help="Folder for fates, outputs and the audit.")],
    partitions: Annotated[
        int | None, typer.Option(help="Partitions of each source.", show_default="as in the contract")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Records in a micro-batch.")] = 50_000,
    arrival: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Order by this timestamp field, and use it as log time.",
            show_default="line order",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a folder that is not empty.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the audit as one JSON document.")] = False,
) -> None:
    """Run the gate over files and write the fate of every line. Ends with 0 if every line has one."""
    if partitions is not None and partitions < 1:
        raise UsageError(f"--partitions must be at least 1, not {partitions}")
    if batch_size < 1:
        raise UsageError(f"--batch-size must be at least 1, not {batch_size}")
    from headrace import settings
    from headrace.ops.load import load_app

    chosen = settings.load()
    loaded = load_app(app)
    given = [_input(loaded, text, partitions, arrival) for text in inputs]
    _refuse_repeats(given)

    from headrace.gate.mask import is_masked
    from headrace.local.scratch_store import scratch_store
    from headrace.ops.local_session import local_session
    from headrace.ops.simulate import refuse_output
    from headrace.ops.simulate import simulate as run

    refuse_output(output, overwrite)
    # The salt is made on first use, which is worth a file only if something is masked with it.
    salt = chosen.salt() if any(is_masked(each.contract) for each in given) else ""
    with ExitStack() as stack:
        store_url = stack.enter_context(scratch_store()) if any(each.declared for each in given) else ""
        spark = stack.enter_context(local_session(f"simulate {loaded.name}", chosen))
        options = {
            "salt": salt,
            "batch_size": batch_size,
            "overwrite": overwrite,
            "store_url": store_url,
            "app": loaded.name,
        }
        if sys.stderr.isatty():
            options["progress"] = _show_progress
        audit = run(spark, given, output, **options)  # type: ignore[arg-type]
    if as_json:
        print(json.dumps(audit, indent=1, ensure_ascii=False))
    else:
        _show(audit, output)
    sources = audit["sources"].values()
    flows = [flow for source in sources for flow in source.get("flows", ())]
    if any(counted["unaccounted"] for counted in (*sources, *flows)):
        raise typer.Exit(UNACCOUNTED)


def _input(loaded: LoadedApp, text: str, partitions: int | None, arrival: str | None) -> Input:
    from headrace.log.arrivals import opened
    from headrace.ops.simulate import Input

    source, equals, file = text.partition("=")
    if not (equals and source and file):
        raise UsageError(
            f"--input '{text}' is not SOURCE=FILE", hint="write --input clickstream=events.jsonl"
        )
    contract = loaded.contract(source)
    if arrival is not None:
        fields = {field.name: field.type.kind for field in contract.fields}
        times = [name for name, kind in fields.items() if kind == "timestamp"]
        if arrival not in times:
            what = "is not a timestamp" if arrival in fields else "is not in the contract"
            raise AppError(
                f"--arrival: field '{arrival}' {what}",
                where=str(contract.file),
                hint=f"timestamps of {source}: {', '.join(times)}",
            )
    opened(Path(file)).close()
    partitions = partitions or contract.partitions
    return Input(contract, Path(file), partitions, arrival, loaded.declared(source))


def _refuse_repeats(inputs: list[Input]) -> None:
    names = [each.contract.name for each in inputs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"--input gives source '{name}' twice", hint="join the files first: cat a.jsonl b.jsonl"
            )


def _show_progress(source: str, done: int, total: int) -> None:
    end = "\r\033[K" if done == total else ""
    print(f"\r{source}: {done:,} of {total:,} lines{end}", end="", file=sys.stderr, flush=True)


def _show_flows(console: Console, audit: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Table

    from headrace.cli.flow_words import flow_name, outcomes_in_words

    table = Table("source", "flow", "kind", box=box.SIMPLE_HEAD)
    for head in ("accepted", "filtered", "taken"):
        table.add_column(head, justify="right")
    table.add_column("outcomes")
    flows = [(name, flow) for name, source in audit["sources"].items() for flow in source.get("flows", ())]
    for name, flow in flows:
        counts = (f"{flow[head]:,}" for head in ("accepted", "filtered", "taken"))
        table.add_row(name, flow_name(flow), flow["kind"], *counts, outcomes_in_words(flow["outcomes"]))
    if flows:
        console.print(table)
    for name, flow in flows:
        if flow["unaccounted"]:
            console.print(f"leak: {name}: {flow['kind']} {flow_name(flow)}: {'; '.join(flow['notes'])}")


def _show(audit: dict[str, Any], output: Path) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from headrace.gate.reasons import REASONS
    from headrace.ops.simulate import COUNTS
    from headrace.store.metric_export import COUNTS as METRIC_COUNTS

    console = Console(highlight=False, soft_wrap=True)
    table = Table("source", box=box.SIMPLE_HEAD)
    for count in COUNTS:
        table.add_column(count, justify="right")
    for name, source in audit["sources"].items():
        table.add_row(name, *(f"{source[count]:,}" for count in COUNTS))
    console.print(table)
    metrics = {
        name: m for source in audit["sources"].values() for name, m in source.get("metrics", {}).items()
    }
    if metrics:
        shown = Table("metric", box=box.SIMPLE_HEAD)
        for count in ("rows", *METRIC_COUNTS):
            shown.add_column(count, justify="right")
        for name, metric in metrics.items():
            shown.add_row(name, *(f"{metric[count]:,}" for count in ("rows", *METRIC_COUNTS)))
        console.print(shown)
    _show_flows(console, audit)
    for name, source in audit["sources"].items():
        for reason, count in list(source["reasons"].items())[:TOP_REASONS]:
            code, _, field = reason.partition(":")
            console.print(
                f"  {count:>7,}  {name}: {code} {field}".rstrip() + f" ({REASONS[code]})", markup=False
            )
    console.print(f"what became of every line is in {output}", markup=False)
