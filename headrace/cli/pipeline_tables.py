"""The pipeline object as tables."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from headrace.cli.flow_words import flow_name, outcomes_in_words

_FATES = {"accepted": "green", "rejected": "red", "late": "yellow", "duplicate": "cyan"}
_STATUS = {"running": "green", "restarting": "yellow", "stopped": "red", "unknown": "red"}


def status_picture(pipeline: dict[str, Any]) -> Group:
    sources = pipeline["sources"]
    tables = [_sources(sources), _engine(sources)] if sources else []
    if pipeline.get("flows"):
        tables.append(_flows(pipeline["flows"]))
    if pipeline.get("lanes"):
        tables.append(_lanes(pipeline["lanes"]))
    return Group(*tables, *_remarks(pipeline))


def lag_picture(pipeline: dict[str, Any]) -> Group:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("source")
    for head in ("partition", "next offset", "end", "lag", "lag in seconds", "share"):
        table.add_column(head, justify="right")
    table.add_column("clock")
    table.add_column("")
    for source in pipeline["sources"]:
        for p in source["partitions"]:
            marks = [name for name in ("idle", "hot") if p[name]]
            table.add_row(
                *(source["source"], str(p["partition"]), _number(p["next_offset"])),
                *(_number(p["end_offset"]), _number(p["lag_records"]), _seconds(p["lag_seconds"])),
                *(_percent(p["share"]), _clock(p["clock"]), Text(" ".join(marks), "yellow")),
            )
        lag = source["lag"]
        sums = (_number(lag["records"]), _seconds(lag["seconds"]))
        table.add_row(source["source"], "all", "", "", *sums, "", "", "", style="bold", end_section=True)
    return Group(table, *_remarks(pipeline))


def _sources(sources: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("source")
    table.add_column("status")
    for head in ("records/s", "received", *_FATES, "unaccounted", "lag", "lag in seconds"):
        table.add_column(head, justify="right")
    for s in sources:
        leak = Text(_number(s["unaccounted"]), "bold red" if s["unaccounted"] else "bold green")
        fates = [Text(_number(s[fate]), style) for fate, style in _FATES.items()]
        lag = _promised(s["lag"]["seconds"], s["slo"]["freshness_seconds"])
        table.add_row(
            *(s["source"], Text(s["status"], _STATUS[s["status"]]), f"{s['rate_per_second']:,.0f}"),
            _number(s["received"]),
            *fates,
            *(leak, _number(s["lag"]["records"]), lag),
        )
    return table


def _engine(sources: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("source")
    for head in ("batch", "latency p50", "p99", "watermark", "state rows", "state MB", "busy", "restarts"):
        table.add_column(head, justify="right")
    table.add_column("partitions")
    for s in sources:
        latency, state, batch = s["latency_seconds"] or {}, s["state"] or {}, s["batch"] or {}
        size = state.get("bytes")
        marks = [f"{p['partition']} {name}" for p in s["partitions"] for name in ("idle", "hot") if p[name]]
        table.add_row(
            *(s["source"], _seconds(batch.get("seconds")), _seconds(latency.get("p50"))),
            *(_promised(latency.get("p99"), s["slo"]["latency_seconds"]), _clock(s["watermark"])),
            *(_number(state.get("rows")), "-" if size is None else f"{size / 2**20:,.1f}"),
            *(_percent(s["backpressure"]), _number(s["restarts"]), Text(", ".join(marks), "yellow")),
        )
    return table


def _flows(flows: list[dict[str, Any]]) -> Table:
    """What each made of the events it took, and what it keeps for those to come."""
    table = Table(box=box.SIMPLE_HEAD)
    for head in ("flow", "kind", "source"):
        table.add_column(head)
    for head in ("taken", "late", "state rows", "state MB"):
        table.add_column(head, justify="right")
    table.add_column("outcomes")
    for f in flows:
        size = "-" if f["bytes"] is None else f"{f['bytes'] / 2**20:,.1f}"
        kept = "-" if f["kind"] == "enrichment" else _number(f["waiting"])
        outcomes = {name: count for name, count in f["outcomes"].items() if name != "late"}
        table.add_row(
            *(flow_name(f), f["kind"], f["source"], _number(f["taken"]), _number(f["late"])),
            *(kept, size, outcomes_in_words(outcomes)),
        )
    return table


def _lanes(lanes: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for head in ("real-time lane", "status"):
        table.add_column(head)
    for head in ("received", "signals", "p50", "p99", "restarts"):
        table.add_column(head, justify="right")
    for lane in lanes:
        delays = lane["latency_ms"] or {}
        shown = [f"{delays[rank]:,.0f} ms" if rank in delays else "-" for rank in ("p50", "p99")]
        counts = (_number(lane["received"]), _number(lane["signals"]))
        status = Text(lane["status"], _STATUS[lane["status"]])
        table.add_row(lane["source"], status, *counts, *shown, _number(lane["restarts"]))
    return table


def _remarks(pipeline: dict[str, Any]) -> list[Text]:
    """Problems, and why a query had to be started again."""
    remarks = [Text(f"problem: {problem}", "red") for problem in pipeline["problems"]]
    for s in pipeline["sources"]:
        if s["last_failure"]:
            when = _clock(s["last_failure_at"])
            remarks.append(Text(f"{s['source']} failed last at {when}: {s['last_failure']}", "yellow"))
    return remarks


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f} s"


def _promised(value: float | None, limit: float | None) -> Text:
    broken = value is not None and limit is not None and value > limit
    return Text(_seconds(value), "red" if broken else "")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _clock(text: str | None) -> str:
    return "-" if text is None else f"{datetime.fromisoformat(text):%H:%M:%S}"
