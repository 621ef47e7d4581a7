"""What is known about the gates of an app right now: from the store, the log and the engine's reports."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from headrace.connections import Connections, query_name
from headrace.contracts.model import Contract
from headrace.errors import ServiceError
from headrace.log.lag import LagReader, PartitionLag
from headrace.ops.load import LoadedApp
from headrace.ops.pipeline_flows import FlowFacts, flow_facts
from headrace.ops.pipeline_lanes import LaneFacts, lane_facts
from headrace.ops.signal_facts import SignalFacts, signal_facts
from headrace.store.alert_export import waiting_events
from headrace.store.connection import Connection, Store
from headrace.store.reports import Report, read_reports
from headrace.store.totals import Counted, Totals, counted_on

RECENT_SECONDS = 60.0
RECENT_ROWS = 20_000
KEPT_SECONDS = 0.5


class Clock(NamedTuple):
    clock: datetime | None
    next_offset: int
    log_time: datetime | None


class LastBatch(NamedTuple):
    batch_id: int
    seconds: float
    at: datetime


class Recent(NamedTuple):
    """One partition in one of the last batches; `latency` is that of its oldest record."""

    age: float  # seconds since the batch was finished
    partition: int
    received: int
    duplicate: int
    rejected: int
    late: int
    latency: float | None


@dataclass(frozen=True)
class SourceFacts:
    contract: Contract
    query: str
    metrics: tuple[str, ...]
    report: Report | None
    totals: Totals
    clocks: dict[int, Clock]
    watermark: datetime | None
    last_batch: LastBatch | None
    recent: list[Recent]
    recent_late: dict[str, int]  # events of the last minute that missed a window, by metric
    lags: dict[int, PartitionLag] | None  # None: the broker does not answer


@dataclass(frozen=True)
class PipelineFacts:
    app: str
    at: datetime
    sources: list[SourceFacts]
    incidents: dict[tuple[str, str], int] = field(default_factory=dict)  # open, by alert and severity
    waiting: dict[str, int] = field(default_factory=dict)  # results that have not left the store, by outbox
    problems: list[str] = field(default_factory=list)
    flows: list[FlowFacts] = field(default_factory=list)
    signals: SignalFacts = field(default_factory=SignalFacts)
    lanes: list[LaneFacts] = field(default_factory=list)


class FactReader:
    """Reads the facts; many may ask at once, and those who ask within half a second share an answer."""

    def __init__(self, loaded: LoadedApp, connections: Connections, wait_seconds: float = 3.0) -> None:
        self.loaded = loaded
        self._store = Store(connections.store_url, wait_seconds)
        self._log = LagReader(connections.librdkafka, wait_seconds)
        self._lock = threading.Lock()
        self._prepared = False
        self._kept: tuple[float, PipelineFacts] | None = None

    def read(self) -> PipelineFacts:
        """Raises ServiceError when the store does not answer; a broker that is away is a problem in it."""
        with self._lock:
            if self._kept is None or time.monotonic() - self._kept[0] > KEPT_SECONDS:
                facts = self._read()
                self._kept = (time.monotonic(), facts)
            return self._kept[1]

    def close(self) -> None:
        with self._lock:
            self._log.close()
            self._store.close()

    def _read(self) -> PipelineFacts:
        if not self._prepared:
            self._store.prepare()
            self._prepared = True
        stored, others = self._store.transact(self._stored)
        lags, problems = self._lags(stored)
        sources = [
            SourceFacts(**facts, lags=None if lags is None else lags[facts["contract"].topics.raw])
            for facts in stored
        ]
        return PipelineFacts(self.loaded.name, datetime.now(UTC), sources, **others, problems=problems)

    def _lags(
        self, stored: list[dict[str, Any]]
    ) -> tuple[dict[str, dict[int, PartitionLag]] | None, list[str]]:
        readers: dict[str, dict[int, int | None]] = {}
        for facts in stored:
            clocks, contract = facts["clocks"], facts["contract"]
            readers[contract.topics.raw] = {
                p: clocks[p].next_offset if p in clocks else None for p in range(contract.partitions)
            }
        try:
            return self._log.lags(readers), []
        except ServiceError as error:
            return None, [error.what]

    def _stored(self, connection: Connection) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        app = self.loaded.name
        queries = [query_name(app, source) for source in self.loaded.contracts]
        reports = read_reports(connection, queries)
        watermarks = _watermarks(connection, queries)
        found = []
        for source, contract in sorted(self.loaded.contracts.items()):
            query = query_name(app, source)
            metrics = self.loaded.accounts_of(source)
            report = reports.get(query)
            counted = report.counted if report is not None else Counted()
            found.append(
                {
                    "contract": contract,
                    "query": query,
                    "metrics": tuple(metrics),
                    "report": report,
                    "totals": counted_on(connection, app, query, metrics, counted).totals,
                    "clocks": _clocks(connection, query),
                    "watermark": watermarks.get(query),
                    "last_batch": _last_batch(connection, query),
                    "recent": _recent(connection, query),
                    "recent_late": _recent_late(connection, query),
                }
            )
        others = {
            "incidents": _open_incidents(connection, app),
            "waiting": _waiting(connection, app, queries),
            "flows": flow_facts(connection, queries),
            "signals": signal_facts(connection, app),
            "lanes": lane_facts(connection, self.loaded),
        }
        return found, others


def _clocks(connection: Connection, query: str) -> dict[int, Clock]:
    rows = connection.execute(
        "SELECT partition, clock, next_offset, log_time FROM headrace.clocks WHERE query = %s", (query,)
    )
    return {partition: Clock(*rest) for partition, *rest in rows}


def _last_batch(connection: Connection, query: str) -> LastBatch | None:
    row = connection.execute(
        "SELECT batch_id, extract(epoch FROM finished_at - started_at)::float8, finished_at"
        " FROM headrace.batches WHERE query = %s ORDER BY batch_id DESC LIMIT 1",
        (query,),
    ).fetchone()
    return LastBatch(*row) if row is not None else None


def _recent(connection: Connection, query: str) -> list[Recent]:
    rows = connection.execute(
        "SELECT extract(epoch FROM clock_timestamp() - b.finished_at)::float8, l.partition, l.received,"
        " l.duplicate, l.rejected, l.late, extract(epoch FROM b.finished_at - l.oldest_log_time)::float8"
        " FROM headrace.batches b JOIN headrace.ledger l USING (query, batch_id)"
        " WHERE b.query = %s AND b.finished_at > clock_timestamp() - make_interval(secs => %s)"
        " ORDER BY b.finished_at DESC LIMIT %s",
        (query, RECENT_SECONDS, RECENT_ROWS),
    )
    return [Recent(*row) for row in rows]


def _recent_late(connection: Connection, query: str) -> dict[str, int]:
    rows = connection.execute(
        "SELECT metric, sum(late)::bigint FROM headrace.metric_ledger JOIN headrace.batches"
        " USING (query, batch_id) WHERE query = %s AND late > 0"
        " AND finished_at > clock_timestamp() - make_interval(secs => %s) GROUP BY metric",
        (query, RECENT_SECONDS),
    )
    return dict(rows.fetchall())


def _watermarks(connection: Connection, queries: list[str]) -> dict[str, datetime]:
    if not _exists(connection, "headrace.watermarks"):
        return {}
    rows = connection.execute(
        "SELECT query, watermark FROM headrace.watermarks WHERE time = 'event' AND query = ANY(%s)",
        (queries,),
    )
    return dict(rows.fetchall())


def _open_incidents(connection: Connection, app: str) -> dict[tuple[str, str], int]:
    if not _exists(connection, "headrace.alerts"):
        return {}
    rows = connection.execute(
        "SELECT alert, severity, count(*) FROM headrace.alerts WHERE app = %s AND state = 'open'"
        " GROUP BY alert, severity",
        (app,),
    )
    return {(alert, severity): count for alert, severity, count in rows}


def _waiting(connection: Connection, app: str, queries: list[str]) -> dict[str, int]:
    alerts = waiting_events(connection, app)
    found = connection.execute("SELECT count(*) FROM headrace.outbox WHERE query = ANY(%s)", (queries,))
    [flows] = found.fetchone() or (0,)
    return {
        "alerts": alerts["unpublished"],
        "flows": flows,
        "webhooks": alerts["undelivered"],
        "given_up": alerts["dead"],
    }


def _exists(connection: Connection, table: str) -> bool:
    row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (table,)).fetchone()
    return row is not None and bool(row[0])
