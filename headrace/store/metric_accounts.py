"""The metrics of one source in the store: merged in the batch's transaction, and moved on in silence."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from headrace.contracts.model import Contract
from headrace.fates import latest
from headrace.gate.ledger import Batch
from headrace.store.alert_accounts import AlertAccounts
from headrace.store.changes import announce
from headrace.store.connection import Connection, Store
from headrace.store.metric_merge import MetricStore
from headrace.store.metric_tables import STATEMENTS, define
from headrace.store.times import to_micros, to_time
from headrace.views.panes import Panes
from headrace.views.resolve import ResolvedMetric
from headrace.views.watermark import Pulse, arrival_watermark_of, watermark_of
from headrace.windows import MICROSECOND

Watermarks = dict[str, int | None]  # by kind of time


class MetricAccounts:
    """Watermarks and tables of one query. One process works on them at a time."""

    def __init__(
        self,
        store: Store,
        app: str,
        query: str,
        contract: Contract,
        metrics: list[ResolvedMetric],
        alerts: AlertAccounts | None = None,
    ) -> None:
        self._store, self._app, self._query = store, app, query
        self._idle = contract.idle_after // MICROSECOND
        self._tables = {r.metric.name: MetricStore(app, r) for r in metrics}
        self._metrics = metrics
        self._alerts = alerts or AlertAccounts(app, query)
        self._pulses: dict[int, Pulse] = {}

    def prepare(self) -> None:
        """Create what is missing; raises AppError where a declaration does not fit its table."""

        def create(connection: Connection) -> None:
            connection.execute("SELECT pg_advisory_xact_lock(72656164)")
            for statement in STATEMENTS:
                connection.execute(statement)
            for resolved in self._metrics:
                define(connection, self._app, resolved)
            self._alerts.prepare(connection, self._watermarks(connection))
            rows = connection.execute(
                "SELECT partition, clock, log_time FROM headrace.clocks WHERE query = %s", (self._query,)
            )
            self._pulses = {p: Pulse(to_micros(clock), to_micros(log)) for p, clock, log in rows}

        self._store.transact(create)

    def watermarks(self) -> Watermarks:
        return self._store.transact(self._watermarks)

    def record(self, connection: Connection, batch: Batch, panes: list[Panes]) -> None:
        """Merge a batch, then move every row as far as the new watermark says."""
        # Nobody has told Postgres how large the new and the temporary tables are: joined row by row, as it
        # does with small ones, a batch would take minutes.
        connection.execute(
            "SELECT set_config('enable_nestloop', 'off', true), set_config('enable_seqscan', 'off', true)"
        )
        before = self._watermarks(connection)
        pulses = {
            **self._pulses,
            **{e.partition: self._pulse(e.partition, e.clock, e.log_time) for e in batch.entries},
        }
        after = {
            "event": latest(before.get("event"), watermark_of(pulses, self._idle)),
            "ingestion": latest(before.get("ingestion"), arrival_watermark_of(pulses, self._idle)),
        }
        for mine in panes:
            metric = mine.resolved.metric
            self._tables[metric.name].merge(connection, mine, before.get(metric.window.time))
        self._account(connection, batch.batch_id, panes)
        self._move(connection, after, datetime.now(UTC))
        self._advance(connection, before, after, panes)
        if batch.batch_id % 100 == 0:
            for table in self._tables.values():
                table.forget_old(connection)
            self._alerts.forget_old(connection)
        self._pulses = pulses

    def tick(self, now: datetime) -> bool:
        """When the source has been silent for long, the watermark goes on with the wall clock."""

        def move(connection: Connection) -> bool:
            rows = connection.execute(
                "SELECT time, base, watermark, active_at FROM headrace.watermarks"
                " WHERE query = %s FOR UPDATE",
                (self._query,),
            ).fetchall()
            before: Watermarks = {}
            after: Watermarks = {}
            for time, base, watermark, active_at in rows:
                silent = now - active_at - timedelta(microseconds=self._idle)
                if silent > timedelta() and base + silent > watermark:
                    before[time], after[time] = to_micros(watermark), to_micros(base + silent)
            if not after:
                return False
            for time, watermark in after.items():
                connection.execute(
                    "UPDATE headrace.watermarks SET watermark = %s WHERE query = %s AND time = %s",
                    (to_time(watermark), self._query, time),
                )
            self._advance(connection, before, after)
            announce(connection, self._query)
            return True

        return bool(self._metrics) and self._store.transact(move)

    def _pulse(self, partition: int, clock: int | None, log_time: int | None) -> Pulse:
        known = self._pulses.get(partition, Pulse(None, None))
        return Pulse(latest(known.clock, clock), latest(known.log_time, log_time))

    def _watermarks(self, connection: Connection) -> Watermarks:
        rows = connection.execute(
            "SELECT time, watermark FROM headrace.watermarks WHERE query = %s FOR UPDATE", (self._query,)
        )
        return {time: to_micros(watermark) for time, watermark in rows}

    def _move(self, connection: Connection, after: Watermarks, now: datetime) -> None:
        for time, watermark in after.items():
            if watermark is not None:
                at = to_time(watermark)
                connection.execute(
                    "INSERT INTO headrace.watermarks (query, time, base, watermark, active_at)"
                    " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (query, time) DO UPDATE SET"
                    " base = excluded.base, watermark = excluded.watermark, active_at = excluded.active_at",
                    (self._query, time, at, at, now),
                )

    def _account(self, connection: Connection, batch_id: int, panes: list[Panes]) -> None:
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO headrace.metric_ledger VALUES (%s, %s, %s, %s, %s, %s, %s)",
                [
                    (
                        *(self._query, batch_id, mine.resolved.metric.name),
                        *(mine.accepted, mine.counted, mine.filtered, mine.too_late),
                    )
                    for mine in panes
                ],
            )

    def _advance(
        self, connection: Connection, before: Watermarks, after: Watermarks, panes: Iterable[Panes] = ()
    ) -> None:
        merged = {mine.resolved.metric.name: mine for mine in panes}
        for resolved in self._metrics:
            name, time = resolved.metric.name, resolved.metric.window.time
            table, watermark = self._tables[name], after.get(time)
            if table.advance(connection, before.get(time), watermark, merged.get(name)):
                # Before old rows go: a jump of the watermark must not take away what an alert stands on.
                self._alerts.evaluate(connection, name, watermark)
                table.retire(connection, watermark)
