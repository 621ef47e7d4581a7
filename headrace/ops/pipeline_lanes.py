"""How the real-time lanes of an app are doing, as their engine last told."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.connections import lane_query_name
from headrace.ops.load import LoadedApp
from headrace.signals import Signals
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


class LaneNotes(NamedTuple):
    """What the lane of a source has noted: where it goes on, and since where each of its parts is in it.

    `changes` are the times at which it took up other tables, in seconds.
    """

    offsets: dict[int, int]
    begun: dict[str, dict[int, int]]
    changes: tuple[float, ...] = ()


def lane_part(signals: Signals) -> str:
    """Signals in a lane, by what decides which of them are sent, and where."""
    thresholds = " ".join(f"{decision}={limit:g}" for decision, limit in signals.decisions)
    return f"{signals.name} {signals.topic} {signals.publish} {thresholds}"


def lane_notes(connection: Connection, query: str) -> LaneNotes:
    report = read_reports(connection, [query]).get(query)
    progress = report.progress if report is not None else {}
    begun = {part: _by_partition(offsets) for part, offsets in progress.get("begun", {}).items()}
    return LaneNotes(_by_partition(progress.get("offsets", {})), begun, tuple(progress.get("changes", ())))


def _by_partition(offsets: dict[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in offsets.items()}


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
