"""`headrace lab`: windows over events that arrive out of order, from a file, with nothing to start."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.errors import UsageError

if TYPE_CHECKING:
    from headrace.ops.lab import Row

DIFFERENT = 1
LONGEST = 366 * 24 * 3600
FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

app = typer.Typer(
    help="Try windows and lateness on a file: events out of order, counted the way the gate counts them.",
    no_args_is_help=True,
)

_Input = Annotated[
    Path | None,
    typer.Option(
        "--input",
        help="JSON lines with event_id, event_type, event_time, arrival_time and user_id.",
        show_default="the sample that ships with Headrace",
    ),
]
_Window = Annotated[int, typer.Option("--window-seconds", help="Length of a window.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
def windows(
    file: _Input = None,
    window_seconds: _Window = 60,
    lateness: Annotated[
        int, typer.Option("--allowed-lateness-seconds", help="How far behind the newest event one may be.")
    ] = 20,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="FIELD", help="Rows for each value of this field too; repeatable."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="The CSV file to write.", show_default="print the rows")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Count impressions, clicks and purchases in windows, in the order of arrival.

    An event that is further behind the newest one than the lateness is late: it changes no window, and is
    counted as dropped in the one it missed.

    Examples:

        headrace lab windows --input events.jsonl --allowed-lateness-seconds 20 --output out.csv

        headrace lab windows --by region
    """
    _check_window(window_seconds)
    if not 0 <= lateness <= LONGEST:
        raise UsageError(f"--allowed-lateness-seconds must be from 0 to {LONGEST}, not {lateness}")
    fields = _checked_fields(by or [])
    source = _checked_input(file)
    if output is not None:
        _check_output(output, source)

    from headrace.cli.lab_show import show_rows
    from headrace.local.lab_windows import run_windows
    from headrace.ops.lab import csv_text, in_order, write_csv

    results: dict[int, list[Row]] = run_windows(source, window_seconds, [lateness], fields)
    rows = in_order(results[lateness])
    if output is not None:
        write_csv(rows, output)
    if as_json:
        print(json.dumps([row.to_json() for row in rows], indent=1, ensure_ascii=False))
    elif output is not None:
        print(_summary(rows, output))
    elif sys.stdout.isatty():
        show_rows(rows)
    else:
        sys.stdout.write(csv_text(rows))


@app.command()
def check(
    actual: Annotated[Path, typer.Option(help="The result to check.", show_default=False)],
    expected: Annotated[Path, typer.Option(help="What it should be.", show_default=False)],
    as_json: _Json = False,
) -> None:
    """Compare two results exactly, and name every cell that differs.

    Exit code 0: equal. 1: different. 2: a file cannot be compared.

    Example:

        headrace lab check --actual out.csv --expected expected-20.csv
    """
    from headrace.cli.lab_show import show_differences
    from headrace.ops.lab import compare_csv

    differences = compare_csv(actual, expected)
    if as_json:
        found = [vars(difference) for difference in differences]
        print(json.dumps({"equal": not found, "differences": found}, indent=1, ensure_ascii=False))
    else:
        show_differences(differences)
    if differences:
        raise typer.Exit(DIFFERENT)


@app.command()
def compare(
    file: _Input = None,
    window_seconds: _Window = 60,
    lateness: Annotated[
        str, typer.Option("--lateness", metavar="SECONDS,…", help="The latenesses to compare.")
    ] = "0,20,120",
    as_json: _Json = False,
) -> None:
    """Show what waiting longer brings: events dropped, windows hurt, and how wrong the rate is.

    The error of a conversion rate is its distance, window by window, to that of the largest lateness.

    Examples:

        headrace lab compare

        headrace lab compare --input events.jsonl --lateness 0,20,120
    """
    _check_window(window_seconds)
    latenesses = _parsed(lateness)
    source = _checked_input(file)

    from headrace.cli.lab_show import show_trade_off
    from headrace.local.lab_windows import run_windows
    from headrace.ops.lab import trade_off

    results: dict[int, list[Row]] = run_windows(source, window_seconds, latenesses, [])
    found = trade_off(results)
    if as_json:
        print(json.dumps([each.to_json() for each in found], indent=1))
    else:
        show_trade_off(found)


def _check_window(seconds: int) -> None:
    if not 0 < seconds <= LONGEST:
        raise UsageError(f"--window-seconds must be from 1 to {LONGEST}, not {seconds}")


def _parsed(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,9}", word) and int(word) <= LONGEST for word in words):
        raise UsageError(
            f"--lateness '{text}' is not a list of seconds from 0 to {LONGEST}",
            hint="write --lateness 0,20,120",
        )
    return sorted({int(word) for word in words})


def _checked_fields(names: list[str]) -> list[str]:
    for name in names:
        if not FIELD.fullmatch(name):
            raise UsageError(f"--by '{name}' is not the name of a field", hint="write --by region")
        if names.count(name) > 1:
            raise UsageError(f"--by names '{name}' twice")
    return names


def _checked_input(file: Path | None) -> Path:
    if file is None:
        sample = Path(str(files("headrace") / "templates" / "lab" / "events.jsonl"))
        print(f"no --input: taking {sample}; what to expect is next to it", file=sys.stderr)
        return sample
    try:
        if not file.exists():
            raise UsageError(f"--input {file}: there is no such file")
        if file.is_dir():
            raise UsageError(f"--input {file} is a folder", hint="name a file of JSON lines")
        if file.is_file():  # opening and closing a pipe would lose what is in it
            file.open("rb").close()
    except OSError as error:
        raise UsageError(f"--input {file} cannot be read: {error.strerror}") from error
    return file


def _check_output(output: Path, source: Path) -> None:
    """Refuse now what could not be written after all the work."""
    try:
        if output.is_dir():
            raise UsageError(f"--output {output} is a folder", hint="name a file")
        if not output.parent.is_dir():
            raise UsageError(f"--output {output}: there is no folder {output.parent}")
        if output.exists() and output.samefile(source):
            raise UsageError("--output is the same file as --input", hint="name another file")
    except OSError as error:
        raise UsageError(f"--output {output} cannot be written: {error.strerror}") from error


def _summary(rows: Sequence[Row], output: Path) -> str:
    totals = [row for row in rows if row.dimension == "all"]
    seen, late = (sum(getattr(r, n) for r in totals) for n in ("total_events_seen", "late_events_dropped"))
    return f"{output}: {len(rows):,} rows of {len(totals):,} windows; {late:,} of {seen:,} events were late"
