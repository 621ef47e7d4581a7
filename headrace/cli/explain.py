"""headrace explain: which events make up one number?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import dropwhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from headrace.ops.explanation import Explanation

INCOMPLETE = 1
SHOWN_EVENTS = 50


def explain(
    metric: Annotated[str, typer.Argument(help="A metric of the app.", show_default=False)],
    window: Annotated[
        str,
        typer.Option(
            "--window",
            metavar="START",
            help="Start of the window, ISO 8601; UTC without a zone.",
            show_default=False,
        ),
    ],
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by", metavar="NAME=VALUE", help="The group, a value for each of its fields; repeatable."
        ),
    ] = None,
    app: Annotated[Path | None, typer.Option("--app", help="The app file or its folder.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(help="At most so many events.", show_default=f"{SHOWN_EVENTS}; with --json all"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the events that make up one number, those that missed it and why, and its revisions.

    Ends with 1 if the events that are still in the topic are not exactly those that the row counts.

    \b
    Examples:
      headrace explain orders_1m --window 2026-03-01T09:00:00Z
      headrace explain orders_1m --window 2026-03-01T09:00Z --by region=almaty
    """
    from headrace.local.connect import found_connections
    from headrace.ops import explain as ops
    from headrace.ops.audit_bounds import parse_moment
    from headrace.ops.load import load_app
    from headrace.ops.local_session import local_session
    from headrace.settings import load

    start = parse_moment(window, "--window")
    labels = ops.parse_labels(by or ())
    if limit is not None and limit < 1:
        raise UsageError(f"--limit must be at least 1, not {limit}")
    settings = load(Path.cwd())
    loaded = load_app(app or settings.folder / settings.app)
    declared = loaded.metric(metric)
    ops.chosen_labels(declared, labels)
    explanation = ops.explain(
        loaded.name,
        declared,
        loaded.contract(declared.of),
        loaded.source(declared.of),
        found_connections(settings),
        start,
        labels,
        lambda: local_session(f"explain {metric}", settings),
        limit=limit if limit is not None or as_json else SHOWN_EVENTS,
    )
    if as_json:
        print(json.dumps(explanation.to_json(), indent=1, ensure_ascii=False))
    else:
        show(explanation)
    if not explanation.complete:
        raise typer.Exit(INCOMPLETE)


def show(explanation: Explanation) -> None:
    """The row, its events in the order of arrival, those that missed it, its revisions."""
    from rich.console import Console

    from headrace.ops.explanation import WHY

    e = explanation
    # A pipe has no width: a table that cuts its cells there could not be searched.
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    _say_row(console, e)
    _table(
        console,
        f"events: {e.found}",
        ("#", "event id", "partition", "offset", "event time", "arrival"),
        [
            (n, event.event_id, event.partition, event.offset, event.event_time, event.arrived)
            for n, event in enumerate(e.events, 1)
        ],
    )
    if len(e.events) < e.found:
        _say(console, f"{e.found - len(e.events)} more; --limit {e.found} or --json lists them all")
    _table(
        console,
        f"missed it: {len(e.missed)}",
        ("event id", "partition", "offset", "event time", "arrival", "late by", "clock", "why"),
        [
            (
                *(m.event_id, m.partition, m.offset, m.event_time, m.arrived, m.late_by, m.clock),
                f"{m.reason}: {WHY.get(m.reason, '')}",
            )
            for m in e.missed
        ],
    )
    _table(
        console,
        f"revisions: {len(e.revisions)}",
        ("revision", "state", "at", "watermark", "values"),
        [(r.revision, r.state, r.at, r.watermark, _pairs(r.values.items())) for r in e.revisions],
    )
    for remark in e.remarks:
        _say(console, f"note: {remark}")


def _say_row(console: Console, e: Explanation) -> None:
    group = ", ".join(f"{name}={label}" for name, label in e.by.items()) or "all"
    _say(console, f"{e.metric}: {_text(e.window_start)} to {_text(e.window_end)}, {group}")
    row = e.row
    watermark = f", watermark {_text(row['watermark'])}" if row["watermark"] else ""
    state = f"{row['state']}, revision {row['revision']}, changed {_text(row['updated_at'])}{watermark}"
    _say(console, state)
    values = dropwhile(lambda item: item[0] != "events", row.items())
    _say(console, _pairs(item for item in values if item[0] not in ("watermark", "updated_at")))


def _table(console: Console, title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    _say(console, f"\n{title}")
    if not rows:
        return
    table = Table(*heads, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(Text(_text(value)) for value in row))
    console.print(table)


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)


def _pairs(items: Iterable[tuple[str, Any]]) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in items)


def _text(value: Any) -> str:
    from headrace.ops.explanation import shown_time

    match value:
        case None:
            return "-"
        case datetime():
            return shown_time(value)
        case timedelta():
            return f"{value.total_seconds():g} s"
        case dict() | list():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)
