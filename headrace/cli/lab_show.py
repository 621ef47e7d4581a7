"""What `headrace lab` shows: rows, differences, and the price of lateness as a table and a picture."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headrace.ops.lab import Difference, Row, TradeOff, shown

SHOWN_DIFFERENCES = 50
PIPE_WIDTH = 200
BAR_WIDTH = 24
EIGHTHS = " ▏▎▍▌▋▊▉"


def show_rows(rows: Sequence[Row]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for head in ("window", "dimension"):
        table.add_column(head, overflow="fold")
    for head in ("impressions", "clicks", "purchases", "rate", "late", "seen", "max lag"):
        table.add_column(head, justify="right")
    for row in rows:
        start, _, dimension, *counts, late, seen, lag = row.cells()
        window = start.removesuffix("+00:00").replace("T", " ")
        style = "yellow" if row.late_events_dropped else "none"
        table.add_row(window, escape(shown(dimension)), *counts, f"[{style}]{late}[/]", seen, lag)
    _console().print(table)


def show_differences(differences: Sequence[Difference]) -> None:
    if not differences:
        print("equal")
        return
    some = differences[:SHOWN_DIFFERENCES]
    if sys.stdout.isatty():
        _difference_table(some)
    else:
        for difference in some:
            print(difference)
    more = len(differences) - len(some)
    counted = "1 difference" if len(differences) == 1 else f"{len(differences):,} differences"
    print(f"{counted}{f', {more:,} not shown; --json has them all' if more else ''}")


def _difference_table(differences: Sequence[Difference]) -> None:
    heads = ("what", "line", "window", "dimension", "column", "actual", "expected")
    table = Table(box=box.SIMPLE_HEAD)
    for head in heads:
        table.add_column(head, overflow="fold")
    for d in differences:
        parts = (d.window, d.dimension, d.column, d.actual, d.expected)
        # An empty cell is worth showing only where it is the difference.
        cells = (
            shown(part) if part or (d.kind == "cell" and place > 2) else ""
            for place, part in enumerate(parts)
        )
        table.add_row(d.kind, str(d.line), *map(escape, cells))
    _console().print(table)


def show_trade_off(found: Sequence[TradeOff]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    heads = ("lateness", "dropped", "kept", "windows", "complete", "lost", "rate error, mean", "largest")
    for head in heads:
        table.add_column(head, justify="right")
    for each in found:
        table.add_row(
            f"{each.lateness_seconds} s",
            f"{each.dropped:,} of {each.seen:,}",
            f"{each.kept * 100:.2f} %",
            f"{each.windows:,}",
            f"{each.complete_windows:,}",
            f"{each.lost_windows:,}",
            f"{each.mean_rate_error:f}",
            f"{each.largest_rate_error:f}",
        )
    console = _console()
    console.print(table)
    for line in picture(found):
        console.print(f"  {line}", markup=False)


def picture(found: Sequence[TradeOff]) -> list[str]:
    """Two bars for each lateness: the events dropped, and the mean error of the rate."""
    most_dropped = max((each.dropped for each in found), default=0)
    most_wrong = max((each.mean_rate_error for each in found), default=0)
    first = max([len("lateness"), *(len(f"{each.lateness_seconds} s") for each in found)])
    second = BAR_WIDTH + 1 + len(f"{most_dropped:,}")
    lines = [f"{'lateness':>{first}}  {'events dropped':<{second}}  mean error of the rate"]
    for each in found:
        dropped = f"{bar(float(each.dropped), float(most_dropped))} {each.dropped:,}".lstrip()
        wrong = f"{bar(float(each.mean_rate_error), float(most_wrong))} {each.mean_rate_error:f}".lstrip()
        lines.append(f"{f'{each.lateness_seconds} s':>{first}}  {dropped:<{second}}  {wrong}")
    return lines


def bar(value: float, most: float) -> str:
    """A bar of block characters, the full width for the most; what is above zero can be seen."""
    if value <= 0 or most <= 0:
        return ""
    eighths = max(1, round(value / most * BAR_WIDTH * 8))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (EIGHTHS[rest] if rest else "")


def _console() -> Console:
    # A pipe has no width: a table that cuts its cells there could not be searched.
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)
