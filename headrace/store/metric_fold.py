"""The metrics of one source in the store, with the alerts on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.gate.ledger import Batch
from headrace.store.alert_accounts import AlertAccounts
from headrace.store.connection import Connection
from headrace.store.metric_export import export, export_counts
from headrace.store.metric_merge import MetricStore
from headrace.store.metric_tables import STATEMENTS, define
from headrace.store.metric_trigger import TriggeredStore
from headrace.store.source_accounts import Watermarks
from headrace.views.pane_rows import Panes
from headrace.views.resolve import ResolvedMetric


class MetricFold:
    def __init__(
        self, app: str, query: str, metrics: list[ResolvedMetric], alerts: AlertAccounts | None = None
    ) -> None:
        self._app, self._query, self._metrics = app, query, metrics
        self._tables: dict[str, MetricStore | TriggeredStore] = {
            r.metric.name: TriggeredStore(app, query, r) if r.metric.window.trigger else MetricStore(app, r)
            for r in metrics
        }
        self._alerts = alerts or AlertAccounts(app, query)

    def prepare(self, connection: Connection, watermarks: Watermarks) -> None:
        for statement in STATEMENTS:
            connection.execute(statement)
        for resolved in self._metrics:
            define(connection, self._app, resolved)
            table = self._tables[resolved.metric.name]
            if isinstance(table, TriggeredStore):
                table.prepare(connection)
        self._alerts.prepare(connection, watermarks)

    def merge(
        self, connection: Connection, batch: Batch, part: list[Panes], before: Watermarks, after: Watermarks
    ) -> None:
        for mine in part:
            metric = mine.resolved.metric
            time = metric.window.time
            self._tables[metric.name].merge(connection, mine, before.get(time), after.get(time))
        self._account(connection, batch.batch_id, part)

    def advance(
        self, connection: Connection, before: Watermarks, after: Watermarks, part: list[Panes] | None
    ) -> None:
        merged = {mine.resolved.metric.name: mine for mine in part or ()}
        for resolved in self._metrics:
            name, time = resolved.metric.name, resolved.metric.window.time
            table, watermark = self._tables[name], after.get(time)
            if table.advance(connection, before.get(time), watermark, merged.get(name)):
                # Before old rows go: a jump of the watermark must not take away what an alert stands on.
                self._alerts.evaluate(connection, name, watermark)
                table.retire(connection, watermark)

    def forget_old(self, connection: Connection) -> None:
        for table in self._tables.values():
            table.forget_old(connection)
        self._alerts.forget_old(connection)

    def export(self, connection: Connection, folder: Path) -> dict[str, Any]:
        found = {}
        for resolved in self._metrics:
            name = resolved.metric.name
            rows = export(connection, self._app, resolved.metric, folder)
            found[name] = {"rows": rows, **export_counts(connection, self._query, name)}
        return found

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
