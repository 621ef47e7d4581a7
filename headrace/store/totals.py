"""What a query has done since its ledger began: sums that never go down, also when old rows are removed.

The engine adds new batches up now and then, away from the batches themselves. A reader adds what has come
since: so the totals are exact at any moment, and cost a handful of rows.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from headrace.store.connection import Connection

FATES = ("received", "accepted", "rejected", "late", "duplicate")
# Upper limits in seconds; the last bucket has none.
LATENCY = (
    *(0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5),
    *(10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0),
)
DURATION = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 120.0)
AT_ONCE = 20_000  # batches


@dataclass
class Histogram:
    """How many values fell under each limit and above the one before; `total` is their sum."""

    limits: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.limits) + 1:
            self.counts, self.total = [0] * (len(self.limits) + 1), 0.0

    def add(self, value: float, weight: int = 1) -> None:
        self.counts[bisect_left(self.limits, value)] += weight
        self.total += value * weight

    def to_json(self) -> dict[str, Any]:
        return {"counts": self.counts, "total": self.total}

    @staticmethod
    def from_json(limits: tuple[float, ...], told: dict[str, Any]) -> Histogram:
        return Histogram(limits, list(told.get("counts", ())), float(told.get("total", 0.0)))


@dataclass
class Totals:
    """`late` and `corrected` are by metric; `latency` counts records, `seconds` counts batches."""

    fates: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    corrected: dict[str, int] = field(default_factory=dict)
    latency: Histogram = field(default_factory=lambda: Histogram(LATENCY))
    seconds: Histogram = field(default_factory=lambda: Histogram(DURATION))

    def to_json(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in ("fates", "reasons", "late", "corrected")}
        return plain | {"latency": self.latency.to_json(), "seconds": self.seconds.to_json()}

    @staticmethod
    def from_json(told: dict[str, Any]) -> Totals:
        return Totals(
            fates=dict(told.get("fates", {})),
            reasons=dict(told.get("reasons", {})),
            late=dict(told.get("late", {})),
            corrected=dict(told.get("corrected", {})),
            latency=Histogram.from_json(LATENCY, told.get("latency", {})),
            seconds=Histogram.from_json(DURATION, told.get("seconds", {})),
        )


@dataclass(frozen=True)
class Counted:
    """Totals, and how far they go: the last batch, and the time of the last correction."""

    batch: int = -1
    corrected_at: datetime | None = None
    totals: Totals = field(default_factory=Totals)


def counted_on(connection: Connection, app: str, query: str, metrics: list[str], before: Counted) -> Counted:
    """The totals with the batches that were recorded since. Nothing is written."""
    totals = Totals.from_json(before.totals.to_json())
    last = _add_batches(connection, query, before.batch, totals)
    counted = replace(before, batch=last, totals=totals)
    if last == before.batch or not metrics or not _has_metrics(connection):
        return counted
    _add_late(connection, query, before.batch, last, totals)
    return replace(counted, corrected_at=_add_corrected(connection, app, metrics, before, totals))


def _add_batches(connection: Connection, query: str, after: int, totals: Totals) -> int:
    found = connection.execute(
        "SELECT b.batch_id, extract(epoch FROM b.finished_at - b.started_at)::float8,"
        " extract(epoch FROM b.finished_at - l.oldest_log_time)::float8, l.reasons,"
        " l.received, l.accepted, l.rejected, l.late, l.duplicate"
        " FROM headrace.batches b LEFT JOIN headrace.ledger l USING (query, batch_id)"
        " WHERE b.query = %s AND b.batch_id > %s AND b.batch_id <= coalesce((SELECT min(batch_id)"
        " FROM headrace.batches WHERE query = %s AND batch_id > %s), 0) + %s ORDER BY b.batch_id",
        (query, after, query, after, AT_ONCE),
    )
    last = after
    for batch, seconds, latency, reasons, *counts in found:
        if batch != last:
            last = batch
            totals.seconds.add(max(0.0, seconds))
        if counts[0] is None:
            continue
        _add(totals.fates, dict(zip(FATES, counts, strict=True)))
        _add(totals.reasons, reasons)
        if latency is not None:
            totals.latency.add(max(0.0, latency), counts[0])
    return last


def _has_metrics(connection: Connection) -> bool:
    """The engine makes these tables when it first starts with a metric."""
    found = connection.execute("SELECT to_regclass('headrace.revisions') IS NOT NULL").fetchone()
    return found is not None and bool(found[0])


def _add_late(connection: Connection, query: str, after: int, last: int, totals: Totals) -> None:
    rows = connection.execute(
        "SELECT metric, sum(late)::bigint FROM headrace.metric_ledger"
        " WHERE query = %s AND batch_id > %s AND batch_id <= %s GROUP BY metric",
        (query, after, last),
    )
    _add(totals.late, dict(rows.fetchall()))


def _add_corrected(
    connection: Connection, app: str, metrics: list[str], before: Counted, totals: Totals
) -> datetime | None:
    """One process writes the corrections of a query, one transaction after the other: time is a cursor."""
    rows = connection.execute(
        "SELECT metric, count(*), max(at) FROM headrace.revisions WHERE app = %s AND metric = ANY(%s)"
        " AND state = 'corrected' AND at > coalesce(%s, '-infinity'::timestamptz) GROUP BY metric",
        (app, metrics, before.corrected_at),
    ).fetchall()
    _add(totals.corrected, {metric: count for metric, count, _ in rows})
    return max((at for *_, at in rows), default=before.corrected_at)


def _add(sums: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        sums[name] = sums.get(name, 0) + count
