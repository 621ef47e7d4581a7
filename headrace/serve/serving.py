"""Everything that the routes of one server share."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from headrace.connections import Connections
from headrace.ops.load import LoadedApp
from headrace.ops.pipeline import PipelineView
from headrace.serve.access import Access, Tokens
from headrace.serve.alerts import Alerts
from headrace.serve.database import Database
from headrace.serve.dead_letters import DeadLetters
from headrace.serve.joins import Joins
from headrace.serve.late_events import LateEvents
from headrace.serve.ledger import Audits, LedgerPages
from headrace.serve.live_hub import Hub
from headrace.serve.metric_catalogue import MetricCatalogue
from headrace.serve.metric_rows import MetricRows
from headrace.serve.metric_tables import MetricTables
from headrace.serve.metric_versions import MetricVersions
from headrace.serve.pipeline import PipelineFeed
from headrace.serve.session_rows import SessionRows
from headrace.serve.session_summary import SessionSummaries
from headrace.serve.signals import SignalPages


@dataclass(frozen=True)
class Serving:
    loaded: LoadedApp
    connections: Connections
    access: Access
    database: Database
    tables: MetricTables
    catalogue: MetricCatalogue
    rows: MetricRows
    versions: MetricVersions
    sessions: SessionRows
    session_summaries: SessionSummaries
    late_events: LateEvents
    dead_letters: DeadLetters
    ledger: LedgerPages
    audits: Audits
    alerts: Alerts
    joins: Joins
    signals: SignalPages
    view: PipelineView
    pipeline: PipelineFeed
    hub: Hub

    async def open(self) -> None:
        await self.database.open()
        self.hub.start()

    async def close(self) -> None:
        await self.hub.stop()
        for part in (self.pipeline, self.dead_letters, self.audits):
            part.close()
        await self.database.close()


def make_serving(loaded: LoadedApp, connections: Connections, tokens: Tokens | None) -> Serving:
    database = Database(connections.store_url)
    tables = MetricTables(database, loaded.name)
    view = PipelineView(loaded, connections)
    pipeline = PipelineFeed(view)
    access = Access(loaded, tokens)
    return Serving(
        loaded,
        connections,
        access,
        database,
        tables,
        MetricCatalogue(loaded, database, tables),
        MetricRows(database, tables),
        MetricVersions(database, tables, loaded.name),
        SessionRows(loaded, database, tables),
        SessionSummaries(loaded, database, tables),
        LateEvents(loaded, database, access),
        DeadLetters(loaded, connections, database),
        LedgerPages(loaded, database),
        Audits(loaded, connections),
        Alerts(database, loaded.name),
        Joins(loaded, database, access),
        SignalPages(loaded, database),
        view,
        pipeline,
        Hub(loaded, connections.store_url, database, tables, pipeline),
    )


async def serving_of(request: Request) -> Serving:
    serving: Serving = request.app.state.serving
    return serving
