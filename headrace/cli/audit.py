"""headrace audit: does every record that was read have exactly one fate?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.errors import DataError

if TYPE_CHECKING:
    from rich.console import Console

    from headrace.ops.audit import Progress
    from headrace.ops.audit_report import AuditReport, Finding

LEAK = 1
SHOWN_FINDINGS = 50


def audit(
    source: Annotated[
        str | None, typer.Argument(help="A stream of the app; all of them if left out.")
    ] = None,
    app: Annotated[Path | None, typer.Option("--app", help="The app file or its folder.")] = None,
    from_offset: Annotated[
        list[str] | None, typer.Option("--from-offset", metavar="P:N", help="First offset of a partition.")
    ] = None,
    to_offset: Annotated[
        list[str] | None, typer.Option("--to-offset", metavar="P:N", help="End of a partition, exclusive.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Log time, ISO 8601; UTC without a zone.")] = None,
    until: Annotated[str | None, typer.Option(help="Log time, exclusive.")] = None,
    recount: Annotated[
        bool, typer.Option("--recount", help="Read the raw and the output topics again, judge every record.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check that received = accepted + rejected + late + duplicate. Ends with 1 if a record has no fate.

    For each metric, that accepted = counted + filtered + late, batch by batch. For each flow (join, sessions,
    pattern, signals, enrichment), that accepted = filtered + its outcomes, and that its tables hold them.
    """
    from headrace.local.connect import found_connections
    from headrace.ops.audit import audit_source
    from headrace.ops.audit_bounds import parse_bounds
    from headrace.ops.load import load_app
    from headrace.settings import load

    bounds = parse_bounds(from_offset or (), to_offset or (), since, until)
    settings = load(Path.cwd())
    loaded = load_app(app or settings.folder / settings.app)
    streams = [loaded.contract(source).name] if source else sorted(loaded.contracts)
    connections = found_connections(settings)
    reports: list[AuditReport] = []
    skipped: list[DataError] = []
    for stream in streams:
        with _progress(stream, recount and not as_json) as on_progress:
            try:
                reports.append(
                    audit_source(
                        loaded.name,
                        loaded.contract(stream),
                        loaded.source(stream),
                        connections,
                        bounds=bounds,
                        metrics=loaded.accounts_of(stream),
                        flows=loaded.flow_accounts_of(stream),
                        enriched=loaded.enriched_topics_of(stream),
                        lane=loaded.lane_of(stream),
                        recount=recount,
                        on_progress=on_progress,
                    )
                )
            except DataError as error:
                skipped.append(error)
    if not reports:
        raise skipped[0]
    clean = all(report.clean for report in reports)
    if as_json:
        print(json.dumps({"clean": clean, "sources": [r.to_json() for r in reports]}, indent=1))
    else:
        show(reports)
        for nothing in skipped:
            print(nothing.what)
    if not clean:
        raise typer.Exit(LEAK)


def show(reports: Sequence[AuditReport]) -> None:
    """Partitions, metrics, flows and their topics, then what was found, then a line for each source."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    # A pipe has no width: a table that cuts its cells there could not be searched.
    console = Console(width=None if sys.stdout.isatty() else 160)
    heads = ("source", "partition", "offsets", "received", "accepted", "rejected", "late", "duplicate")
    table = Table(*heads, "pending", "unaccounted", box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for report in reports:
        for p in report.partitions:
            fates = (p.fates.received, p.fates.accepted, p.fates.rejected, p.fates.late, p.fates.duplicate)
            offsets = f"{p.first_offset}-{p.end_offset - 1}" if p.first_offset < p.end_offset else "-"
            cells = (p.partition, offsets, *fates, p.pending, p.unaccounted)
            table.add_row(report.source, *map(str, cells))
    console.print(table)
    _show_metrics(console, reports)
    _show_flows(console, reports)
    _show_outboxes(console, reports)
    _show_lanes(console, reports)
    for report in reports:
        _show_findings(report.findings)
        _show_recount(report)
        print(report.summary())


def _show_metrics(console: Console, reports: Sequence[AuditReport]) -> None:
    from rich import box
    from rich.table import Table

    heads = ("source", "metric", "accepted", "counted", "filtered", "late", "unaccounted")
    table = Table(*heads, box=box.SIMPLE_HEAD)
    for column in table.columns[2:]:
        column.justify = "right"
    for report in reports:
        for m in report.metrics:
            cells = (m.accepted, m.counted, m.filtered, m.late, m.unaccounted)
            table.add_row(report.source, m.metric, *map(str, cells))
    if table.row_count:
        console.print(table)


def _show_flows(console: Console, reports: Sequence[AuditReport]) -> None:
    from rich import box
    from rich.table import Table

    from headrace.cli.flow_words import flow_name, outcomes_in_words

    table = Table("source", "flow", "kind", box=box.SIMPLE_HEAD)
    for head in ("accepted", "filtered", "taken"):
        table.add_column(head, justify="right")
    table.add_column("outcomes")
    table.add_column("unaccounted", justify="right")
    for report in reports:
        for f in report.flows:
            counts = ("-" if n is None else str(n) for n in (f.accepted, f.filtered, f.taken))
            about = (flow_name(f.to_json()), f.kind, *counts, outcomes_in_words(f.outcomes))
            table.add_row(report.source, *about, str(f.unaccounted))
    if table.row_count:
        console.print(table)


def _show_outboxes(console: Console, reports: Sequence[AuditReport]) -> None:
    from rich import box
    from rich.table import Table

    table = Table("source", "topic", box=box.SIMPLE_HEAD)
    recounted = any(o.in_topic is not None for report in reports for o in report.outboxes)
    for head in ("results", "published", *(["in the topic"] if recounted else []), "waiting", "unaccounted"):
        table.add_column(head, justify="right")
    for report in reports:
        for o in report.outboxes:
            in_topic = ["-" if o.in_topic is None else str(o.in_topic)] if recounted else []
            counts = (str(o.handed), str(o.published), *in_topic, str(o.waiting), str(o.unaccounted))
            table.add_row(report.source, o.topic, *counts)
    if table.row_count:
        console.print(table)


def _show_lanes(console: Console, reports: Sequence[AuditReport]) -> None:
    from rich import box
    from rich.table import Table

    table = Table("source", "real-time signals", "topic", box=box.SIMPLE_HEAD)
    for head in ("rows", "in the topic", "pending", "not judged", "repeated", "unaccounted"):
        table.add_column(head, justify="right")
    for report in reports:
        for lane in report.lanes:
            counts = (lane.rows, lane.in_topic, lane.pending, lane.unjudged, lane.repeated, lane.unaccounted)
            table.add_row(report.source, lane.signals, lane.topic, *map(str, counts))
    if table.row_count:
        console.print(table)


def _show_findings(findings: Sequence[Finding]) -> None:
    for finding in findings[:SHOWN_FINDINGS]:
        print(f"leak: {finding}")
    if len(findings) > SHOWN_FINDINGS:
        print(f"leak: {len(findings) - SHOWN_FINDINGS} more; --json has them all")


def _show_recount(report: AuditReport) -> None:
    if report.recount is None:
        return
    topics = ", ".join(f"{topic} {count}" for topic, count in report.recount.published.items())
    print(f"published: {topics}")
    remarks = {
        "published by batches that are not in the ledger yet": report.recount.in_flight,
        "duplicates of records that have left the log": report.recount.unproven,
        "records whose outputs have left the log, not judged": report.recount.unjudged,
    }
    for remark, count in remarks.items():
        if count:
            print(f"note: {count} {remark}")


@contextmanager
def _progress(stream: str, wanted: bool) -> Iterator[Progress | None]:
    """A bar on a terminal, nothing elsewhere."""
    if not (wanted and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"recount {stream}", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
