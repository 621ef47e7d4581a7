"""`headrace contract`: check, compare, export and show contracts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.errors import ContractError

if TYPE_CHECKING:
    from headrace.contracts import Contract
    from headrace.contracts.changes import Comparison

app = typer.Typer(help="Check, compare, export and show contracts.", no_args_is_help=True)

_File = Annotated[Path, typer.Argument(help="A contract file (ODCS v3 YAML).", show_default=False)]


@app.command()
def check(
    files: Annotated[
        list[Path], typer.Argument(help="Contract files, or folders of them.", show_default=False)
    ],
) -> None:
    """Read contracts and report every problem with its file and line.

    Examples:

        headrace contract check contracts

        headrace contract check contracts/clickstream.yaml contracts/payments.yaml
    """
    from headrace.contracts import load_contract
    from headrace.contracts.problems import joined, shown
    from headrace.contracts.summary import check_line

    contracts: dict[str, Contract] = {}
    errors: list[ContractError] = []
    for file in _expanded(files, errors):
        try:
            contract = load_contract(file)
        except ContractError as error:
            errors.append(error)
            continue
        first = contracts.setdefault(contract.name, contract)
        if first is not contract:
            what = f"the stream '{contract.name}' is already described by {shown(first.file)}"
            errors.append(ContractError(what, where=shown(file), hint="a stream has one contract"))
        else:
            typer.echo(check_line(contract))
    if errors:
        raise joined(errors)


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(help="The contract in use.", show_default=False)],
    new: Annotated[Path, typer.Argument(help="The contract that shall replace it.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
    allow_major: Annotated[
        bool, typer.Option("--allow-major", help="Accept breaking changes that raise the major version.")
    ] = False,
) -> None:
    """Say what changed between two contracts, whom it breaks and which version it asks for.

    Exit code 0: compatible. 1: breaking, or the declared version is too low.

    Examples:

        headrace contract diff main/clickstream.yaml contracts/clickstream.yaml

        headrace contract diff old.yaml new.yaml --json
    """
    from headrace.contracts import load_contract
    from headrace.contracts.evolution import compare

    after = load_contract(new)
    comparison = compare(load_contract(old), after)
    if as_json:
        typer.echo(json.dumps(_as_json(comparison), indent=2, ensure_ascii=False))
    else:
        _print_changes(comparison)
        typer.echo(_verdict_line(comparison, after))
    if not comparison.version_ok or not (comparison.compatible or allow_major):
        raise typer.Exit(1)


@app.command()
def schema(file: _File) -> None:
    """Print the contract as JSON Schema (draft 2020-12).

    Example:

        headrace contract schema contracts/clickstream.yaml > clickstream.schema.json
    """
    from headrace.contracts import load_contract
    from headrace.contracts.json_schema import json_schema

    typer.echo(json.dumps(json_schema(load_contract(file)), indent=2, ensure_ascii=False))


@app.command()
def show(file: _File) -> None:
    """Print a readable summary: fields, rules, masks, times, topics.

    Example:

        headrace contract show contracts/payments.yaml
    """
    from headrace.contracts import load_contract
    from headrace.contracts.summary import summary

    typer.echo(summary(load_contract(file)))


def _expanded(paths: list[Path], errors: list[ContractError]) -> list[Path]:
    from headrace.contracts.reader import contract_files

    files: list[Path] = []
    for path in paths:
        try:
            files += contract_files(path) if path.is_dir() else [path]
        except ContractError as error:
            errors.append(error)
    # The same file may be named twice, by itself and by its folder.
    return list({file.resolve(): file for file in files}.values())


def _print_changes(comparison: Comparison) -> None:
    rows = [(c.path, c.what, c.level, ", ".join(c.breaks), c.why) for c in comparison.changes]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table("where", "what", "level", "breaks", "why")
        for where, what, level, breaks, why in rows:
            cells = [escape(cell) for cell in (where, what, level, breaks, why)]
            table.add_row(*cells, style="red" if level == "major" else None)
        if rows:
            Console().print(table)
        return
    for where, what, level, breaks, why in rows:
        typer.echo(f"{level}: {where}: {what} ({why}){f' [breaks {breaks}]' if breaks else ''}")


def _verdict_line(comparison: Comparison, after: Contract) -> str:
    if not comparison.changes and comparison.version_ok:
        return f"no change ({comparison.old_version} → {comparison.new_version})"
    said = f"{comparison.verdict}: {comparison.compatibility} compatibility, a {comparison.level} change"
    if not comparison.changes:
        said = "no change, but the version goes back"
    if not comparison.version_ok:
        need = f"needs version {comparison.asked_version} or higher, the file says {comparison.new_version}"
        return f"{said}; {need}"
    topics = f"; its topics are {after.name}.*.v{after.major}" if not comparison.compatible else ""
    return f"{said}; {comparison.old_version} → {comparison.new_version} is enough{topics}"


def _as_json(comparison: Comparison) -> dict[str, object]:
    return {
        "verdict": comparison.verdict,
        "compatibility": comparison.compatibility,
        "level": comparison.level,
        "old_version": comparison.old_version,
        "new_version": comparison.new_version,
        "asked_version": comparison.asked_version,
        "version_ok": comparison.version_ok,
        "changes": [
            {"path": c.path, "what": c.what, "why": c.why, "level": c.level, "breaks": list(c.breaks)}
            for c in comparison.changes
        ],
    }
