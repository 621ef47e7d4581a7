"""What the engine tells about its queries while they run: one small row each, once a second at most.

All of it happens in the thread that supervises, never inside a batch. What cannot be written now is written
later: a report is a picture of now, and the counts in it come from the ledger.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import psycopg
from py4j.protocol import Py4JError

from headrace.errors import ServiceError
from headrace.ops.gate_query import GateQuery
from headrace.ops.realtime_query import RealtimeQuery
from headrace.ops.state_size import BY_HOUR, by_hour, rows_in_state
from headrace.store.connection import Connection, Store
from headrace.store.reports import QueryStatus, Report, read_reports, save_report

logger = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
AT_LEAST_EVERY_SECONDS = 5.0
STORE_SECONDS = 2.0
DISK_STATE, MEMORY_STATE = "rocksdbSstFileSize", "memoryUsedBytes"


class QueryReporter:
    """The reports of one query, through all its restarts."""

    def __init__(self, store: Store, app: str, gate: GateQuery | RealtimeQuery) -> None:
        self._store, self._app, self._gate = store, app, gate
        self._metrics = gate.metric_names
        now = datetime.now(UTC)
        before = store.transact(lambda connection: read_reports(connection, [gate.name])).get(gate.name)
        self.report = before or Report(gate.name, now, now)
        self.report.engine_started_at, self.report.starts = now, self.report.starts + 1
        self._spent_before = dict(self.report.progress.get("spent", {}))
        self._handler: object = None
        self._batch, self._looked_at = -1, ""
        self._said: tuple[object, ...] = ()
        self._next = self._latest = 0.0

    def finished(self) -> int:
        """The last batch that this engine has seen to its end; -1 before the first."""
        self._look()
        return self._batch

    def failed(self, cause: str) -> None:
        self.report.fail(cause, datetime.now(UTC))
        self.tell("restarting")

    def restarted(self) -> None:
        self.report.restarts += 1
        self.tell("running")

    def turn(self, status: QueryStatus = "running") -> None:
        """Look at the query, and write if it is time and something is new, or at least now and then."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY_SECONDS
        self._look()
        if (status, self._batch) != self._said or now > self._latest + AT_LEAST_EVERY_SECONDS:
            self.tell(status)

    def tell(self, status: QueryStatus) -> None:
        self.report.status = status

        def write(connection: Connection) -> None:
            save_report(connection, self.report, self._app, self._metrics)

        try:
            self._store.transact(write)
        except (ServiceError, psycopg.Error) as error:  # a report must never end what it is about
            logger.warning("no report about %s: %s", self._gate.name, type(error).__name__)
            return
        self._said, self._latest = (status, self._batch), time.monotonic()

    def stopped(self) -> None:
        with suppress(Py4JError, OSError):  # Spark may be gone already
            self._look()
        self.tell("stopped")

    def _look(self) -> None:
        query = self._gate.query
        if query is None:
            return
        last = query._jsq.lastProgress()
        if last is None or last.timestamp() == self._looked_at:
            return
        self._looked_at = last.timestamp()
        progress = [json.loads(last.json())]
        if last.batchId() != self._batch + 1:
            # More than one batch since the last look: what was removed from the state must not be missed.
            progress = [json.loads(one.json) for one in query.recentProgress]
        new = [one for one in progress if one["batchId"] > self._batch and is_finished(one)]
        if not new:
            return
        self._batch = int(new[-1]["batchId"])
        self.report.progress = {
            **_plain(new[-1]),
            "removed": self.report.progress.get("removed", 0) + sum(_removed(one) for one in new),
            "spent": self._spent(),
            BY_HOUR: self._state_by_hour(),
        }
        assert isinstance(self._gate, GateQuery)
        timed = self._gate.handler.timed
        if timed is not None and timed[0] == self._batch:
            steps = {step: round(seconds * 1000, 1) for step, seconds in timed[1].items()}
            self.report.progress["durations_ms"].update(steps)

    def _state_by_hour(self) -> dict[str, int]:
        before = self.report.progress
        rows = rows_in_state(self.report.counted.totals.fates, before)
        return by_hour(before.get(BY_HOUR, {}), rows, datetime.now(UTC))

    def _spent(self) -> dict[str, float]:
        """Seconds in each step since the first report; a restarted query has a handler that begins at 0."""
        assert isinstance(self._gate, GateQuery)
        handler = self._gate.handler
        if handler is not self._handler:
            self._spent_before = dict(self.report.progress.get("spent", {}))
            self._handler = handler
        steps = {*self._spent_before, *handler.spent}
        return {
            step: round(self._spent_before.get(step, 0.0) + handler.spent.get(step, 0.0), 3) for step in steps
        }


def is_finished(progress: dict[str, Any]) -> bool:
    """Spark also tells about triggers that found nothing, and about batches that failed."""
    return {"addBatch", "commitOffsets"} <= set(progress.get("durationMs", {}))


def _plain(progress: dict[str, Any]) -> dict[str, Any]:
    operators = progress.get("stateOperators", [])
    durations = {name: float(ms) for name, ms in progress.get("durationMs", {}).items()}
    durations["stateCommit"] = float(sum(o.get("commitTimeMs", 0) for o in operators))
    size = sum(o.get(MEMORY_STATE, 0) + o.get("customMetrics", {}).get(DISK_STATE, 0) for o in operators)
    return {
        "batch_id": progress["batchId"],
        "at": progress["timestamp"],
        "rows": progress["numInputRows"],
        "input_rate": progress["inputRowsPerSecond"],
        "processed_rate": progress["processedRowsPerSecond"],
        "durations_ms": durations,
        "state_bytes": size,
    }


def _removed(progress: dict[str, Any]) -> int:
    return sum(operator.get("numRowsRemoved", 0) for operator in progress.get("stateOperators", []))
