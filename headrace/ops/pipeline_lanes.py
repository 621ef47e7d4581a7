"""How the real-time lanes of an app are doing, as their engine last told."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.connections import lane_query_name
from headrace.ops.load import LoadedApp
from headrace.store.connection import Connection
from headrace.store.reports import Report, read_reports


class LaneFacts(NamedTuple):
    source: str
    query: str
    report: Report | None


def lane_facts(connection: Connection, loaded: LoadedApp) -> list[LaneFacts]:
    queries = {s: lane_query_name(loaded.name, s) for s in sorted(loaded.contracts) if loaded.lane_of(s)}
    reports = read_reports(connection, list(queries.values())) if queries else {}
    return [LaneFacts(source, query, reports.get(query)) for source, query in queries.items()]


def lane_object(facts: LaneFacts, status: str) -> dict[str, Any]:
    """What was read and sent is counted when a batch ends, and again where a crash made it run again."""
    report = facts.report
    progress = report.progress if report is not None else {}
    return {
        "source": facts.source,
        "query": facts.query,
        "status": status,
        "received": progress.get("received", 0),
        "signals": progress.get("signals", 0),
        "latency_ms": progress.get("latency_ms"),
        "at": progress.get("at"),
        "restarts": report.restarts if report is not None else 0,
        "last_failure": report.last_failure if report is not None else None,
    }
