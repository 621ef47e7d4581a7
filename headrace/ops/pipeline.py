"""The pipeline as one plain object: what API, dashboard, `headrace status` and `headrace lag` show."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from headrace.connections import Connections
from headrace.contracts.model import Contract
from headrace.ops.limits import limits_of
from headrace.ops.load import LoadedApp
from headrace.ops.pipeline_facts import FactReader, PipelineFacts, Recent, SourceFacts
from headrace.ops.pipeline_flows import flow_object
from headrace.ops.pipeline_lanes import LaneFacts, lane_object
from headrace.ops.state_size import a_day_ago, rows_in_state
from headrace.store.times import moved
from headrace.store.totals import FATES

SILENT_SECONDS = 20.0  # an engine that has not reported for so long is not known to run
RATE_SECONDS = 10.0
HOT_TIMES, HOT_SHARE, HOT_RECORDS = 2.0, 0.8, 100


class PipelineView:
    """Keep one while watching; safe to use from several threads."""

    def __init__(self, loaded: LoadedApp, connections: Connections, wait_seconds: float = 3.0) -> None:
        self.loaded = loaded
        self._facts = FactReader(loaded, connections, wait_seconds)

    def facts(self) -> PipelineFacts:
        return self._facts.read()

    def now(self) -> dict[str, Any]:
        return as_object(self.facts())

    def close(self) -> None:
        self._facts.close()


def pipeline_now(loaded: LoadedApp, connections: Connections) -> dict[str, Any]:
    view = PipelineView(loaded, connections)
    try:
        return view.now()
    finally:
        view.close()


@dataclass(frozen=True)
class Load:
    """How the records of the last minute were spread over the partitions."""

    shares: dict[int, float]
    hot: frozenset[int]
    ratio: float | None  # the largest share against a fair one; None when there was too little to tell


def load_of(facts: SourceFacts) -> Load:
    """Hot is a partition with at least twice its fair share; with few partitions, four fifths of all."""
    counts = dict.fromkeys(range(facts.contract.partitions), 0)
    for recent in facts.recent:
        counts[recent.partition] = counts.get(recent.partition, 0) + recent.received
    total, fair = sum(counts.values()), 1 / len(counts)
    if total < HOT_RECORDS:
        return Load({}, frozenset(), None)
    shares = {partition: count / total for partition, count in counts.items()}
    limit = min(HOT_TIMES * fair, HOT_SHARE)
    hot = frozenset(p for p, share in shares.items() if len(counts) > 1 and share >= limit)
    return Load(shares, hot, max(shares.values()) / fair)


def idle_partitions(facts: SourceFacts, now: datetime) -> frozenset[int]:
    """Silent for `idleAfter` with nothing unread: they do not hold the watermark back."""
    idle = set()
    for partition in range(facts.contract.partitions):
        clock = facts.clocks.get(partition)
        lag = facts.lags.get(partition) if facts.lags is not None else None
        silent = clock is None or clock.log_time is None or now - clock.log_time > facts.contract.idle_after
        if silent and (lag is None or lag.records == 0):
            idle.add(partition)
    return frozenset(idle)


def status_of(facts: SourceFacts | LaneFacts, now: datetime) -> str:
    report = facts.report
    if report is None:
        return "unknown"
    if report.status != "stopped" and (now - report.reported_at).total_seconds() > SILENT_SECONDS:
        return "unknown"
    return report.status


def watermark_of(facts: SourceFacts, idle: frozenset[int]) -> datetime | None:
    """As the metrics have it; a source without metrics has the smallest clock of its live partitions."""
    if facts.watermark is not None:
        return facts.watermark
    clocks = [c.clock for p, c in facts.clocks.items() if c.clock is not None and p not in idle]
    return min(clocks, default=None)


def freshness_of(facts: SourceFacts) -> float | None:
    """The age of the oldest record that the tables do not show yet; None where that is not known."""
    if facts.lags is None:
        return None
    ages = [lag.seconds for lag in facts.lags.values()]
    return None if any(age is None for age in ages) else max((a for a in ages if a is not None), default=0.0)


def recent_share(recent: list[Recent], fate: Literal["duplicate", "rejected"]) -> float | None:
    """Of the records of the last minute; None if there were none."""
    received = sum(row.received for row in recent)
    return sum(getattr(row, fate) for row in recent) / received if received else None


def backpressure_of(facts: SourceFacts) -> float | None:
    """How fast records come in against how fast they are handled; above 1 the query falls behind."""
    progress = facts.report.progress if facts.report is not None else {}
    incoming, processed = progress.get("input_rate"), progress.get("processed_rate")
    return incoming / processed if incoming and processed else None  # the first batch has no rate


def state_rows(facts: SourceFacts) -> int | None:
    return rows_in_state(facts.totals.fates, facts.report.progress if facts.report is not None else {})


def as_object(facts: PipelineFacts) -> dict[str, Any]:
    reports = [source.report for source in facts.sources if source.report is not None]
    newest = max(reports, key=lambda report: report.reported_at, default=None)
    engine = newest and {"reported_at": iso(newest.reported_at), "started_at": iso(newest.engine_started_at)}
    return {
        "at": iso(facts.at),
        "app": facts.app,
        "sources": [_source(source, facts.at) for source in facts.sources],
        "flows": [
            flow_object(flow, {s.query: s.contract.name for s in facts.sources}) for flow in facts.flows
        ],
        "signals": _signals(facts),
        "lanes": [lane_object(lane, status_of(lane, facts.at)) for lane in facts.lanes],
        "engine": engine,
        "problems": facts.problems,
    }


def _signals(facts: PipelineFacts) -> dict[str, dict[str, int]]:
    """How many of each decision there have been, by the name of the signals."""
    found: dict[str, dict[str, int]] = {}
    for (name, decision), count in facts.signals.decisions.items():
        found.setdefault(name, {})[decision] = count
    return found


def _source(facts: SourceFacts, now: datetime) -> dict[str, Any]:
    fates = {fate: facts.totals.fates.get(fate, 0) for fate in FATES}
    load, idle = load_of(facts), idle_partitions(facts, now)
    report, batch = facts.report, facts.last_batch
    progress = report.progress if report is not None else {}
    rows = state_rows(facts)
    return {
        "source": facts.contract.name,
        "query": facts.query,
        **fates,
        "unaccounted": fates["received"] - sum(fates[fate] for fate in FATES[1:]),
        "rate_per_second": round(
            sum(r.received for r in facts.recent if r.age <= RATE_SECONDS) / RATE_SECONDS, 1
        ),
        "latency_seconds": _latency(facts.recent),
        "batch": batch
        and {"seconds": round(batch.seconds, 3), "at": iso(batch.at), "batch_id": batch.batch_id},
        "lag": _lag(facts),
        "freshness_seconds": _rounded(freshness_of(facts)),
        "partitions": [_partition(facts, p, load, idle) for p in range(facts.contract.partitions)],
        "watermark": iso(watermark_of(facts, idle)),
        "state": None if rows is None else _state(rows, progress, now),
        "durations_ms": progress.get("durations_ms"),
        "backpressure": _rounded(backpressure_of(facts)),
        "hot_ratio": _rounded(load.ratio),
        "duplicate_ratio": _rounded(recent_share(facts.recent, "duplicate"), 4),
        "rejected_ratio": _rounded(recent_share(facts.recent, "rejected"), 4),
        "last_minute": _last_minute(facts),
        "restarts": report.restarts if report is not None else 0,
        "failures": report.failures if report is not None else 0,
        "last_failure": report.last_failure if report is not None else None,
        "last_failure_at": iso(report.last_failure_at) if report is not None else None,
        "status": status_of(facts, now),
        "reported_at": iso(report.reported_at) if report is not None else None,
        "slo": slo_of(facts.contract),
        "limits": limits_of(facts.contract).as_object(),
    }


def _state(rows: int, progress: dict[str, Any], now: datetime) -> dict[str, Any]:
    return {
        "rows": rows,
        "bytes": progress.get("state_bytes", 0),
        "rows_a_day_ago": a_day_ago(progress, now),
    }


def _last_minute(facts: SourceFacts) -> dict[str, Any]:
    """Records by fate, where that can be a surprise; and events that missed a window, by metric."""
    counted = ("received", "rejected", "late", "duplicate")
    sums = {fate: sum(getattr(row, fate) for row in facts.recent) for fate in counted}
    return {**sums, "late_for": facts.recent_late}


def slo_of(contract: Contract) -> dict[str, float | None]:
    return {
        "freshness_seconds": contract.freshness.total_seconds() if contract.freshness else None,
        "latency_seconds": contract.latency.total_seconds() if contract.latency else None,
        "error_rate": contract.error_rate,
    }


def _partition(facts: SourceFacts, partition: int, load: Load, idle: frozenset[int]) -> dict[str, Any]:
    clock = facts.clocks.get(partition)
    lag = facts.lags.get(partition) if facts.lags is not None else None
    at = clock.clock if clock is not None else None
    return {
        "partition": partition,
        "lag_records": lag.records if lag is not None else None,
        "lag_seconds": _rounded(lag.seconds) if lag is not None else None,
        "clock": iso(at),
        "watermark": iso(moved(at, -facts.contract.lateness) if at is not None else None),
        "next_offset": lag.position if lag is not None else clock.next_offset if clock is not None else None,
        "end_offset": lag.end if lag is not None else None,
        "idle": partition in idle,
        "hot": partition in load.hot,
        "share": _rounded(load.shares.get(partition), 4),
    }


def _lag(facts: SourceFacts) -> dict[str, Any]:
    if facts.lags is None:
        return {"records": None, "seconds": None}
    records = sum(lag.records for lag in facts.lags.values())
    return {"records": records, "seconds": _rounded(freshness_of(facts))}


def _latency(recent: list[Recent]) -> dict[str, float] | None:
    """From log time to commit; a batch counts with the oldest record of each partition: never too low."""
    rows = sorted((max(0.0, r.latency), r.received) for r in recent if r.latency is not None and r.received)
    if not rows:
        return None
    return {"p50": _quantile(rows, 0.5), "p99": _quantile(rows, 0.99)}


def _quantile(rows: list[tuple[float, int]], rank: float) -> float:
    wanted, seen = rank * sum(weight for _, weight in rows), 0
    for value, weight in rows:
        seen += weight
        if seen >= wanted:
            return round(value, 3)
    return round(rows[-1][0], 3)


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)


def iso(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
