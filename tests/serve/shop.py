"""TuranMart behind a server that can be stopped and started again, with rows for a dashboard to show."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psycopg
from confluent_kafka import Producer

from headrace.app import App
from headrace.connections import Connections
from headrace.local.services import Services
from headrace.log.topics import ensure_topics
from headrace.ops.load import LoadedApp, load_app
from headrace.store.changes import announce
from tests.serve.browser import Tab
from tests.serve.running import running_server, wait_until
from tests.serve.seed import TURANMART, Seed

NASTY = "<b>bold</b><script>stolen = 1</script>"

CHART = '#business-panels .tile[data-group="tashkent"] svg.columns[role="slider"]'


def renamed(loaded: LoadedApp, prefix: str) -> LoadedApp:
    """The same app with topics of its own on the shared broker."""
    app = App(loaded.name)
    app.panels = loaded.app.panels
    app.metrics = {n: replace(m, of=prefix + m.of) for n, m in loaded.app.metrics.items()}
    app.all_sessions = {n: replace(s, of=prefix + s.of) for n, s in loaded.app.all_sessions.items()}
    app.enrichments = {n: replace(e, of=prefix + e.of) for n, e in loaded.app.enrichments.items()}
    contracts = {prefix + n: replace(c, name=prefix + n) for n, c in loaded.contracts.items()}
    return LoadedApp(app, contracts)


@dataclass
class Shop:
    """A server that can be stopped and started again at the same address."""

    seed: Seed
    connections: Connections
    running: ExitStack
    address: str = ""

    def start(self) -> None:
        port = int(self.address.rpartition(":")[2]) if self.address else 0
        self.address = self.running.enter_context(
            running_server(self.seed.loaded, self.connections, port=port)
        )

    def stop(self) -> None:
        self.running.close()

    def commit(self, at: datetime | None = None, events: int = 40) -> float:
        """One batch of clickstream, of now or of an earlier moment; the time right after its commit."""
        now = datetime.now(UTC)
        stream = next(name for name in self.seed.loaded.contracts if name.endswith("clickstream"))
        self.seed.batch(at or now, events=events, streams=(stream,), clock=now)
        return time.time()

    def publish(self) -> datetime:
        """A moment whose window is published by now, and not final for half a minute: to be corrected."""
        at = datetime.now(UTC) - timedelta(seconds=85)
        self.commit(at)
        return at


@contextmanager
def open_shop(services: Services, store_url: str, prefix: str) -> Iterator[Shop]:
    """With tables and topics of its own, and not started yet."""
    loaded = renamed(load_app(TURANMART), prefix)
    connections = Connections(services.bootstrap, {}, {}, store_url)
    for contract in loaded.contracts.values():
        ensure_topics(contract, connections.librdkafka)
    with ExitStack() as running:
        yield Shop(Seed(store_url, loaded), connections, running)


def wait_for_broker(address: str) -> None:
    """Topics that were just made have no leader for a moment, and the broker says so."""
    wait_until(lambda: httpx.get(f"{address}/api/v1/pipeline", timeout=20).status_code == 200, 20)


def reject(connections: Connections, loaded: LoadedApp) -> None:
    contract = next(c for n, c in loaded.contracts.items() if n.endswith("clickstream"))
    headers = {
        "headrace-reasons": json.dumps([{"code": "missing", "field": "region"}]),
        "headrace-source": f"{contract.topics.raw}/1/77/1767225600000",
        "headrace-contract": f"{contract.name}:{contract.version}",
    }
    producer = Producer(connections.librdkafka)
    producer.produce(
        contract.topics.invalid, json.dumps({"page": NASTY}), headers=list(headers.items()), partition=1
    )
    assert producer.flush(20) == 0


def raise_alert(
    store_url: str, id_: str = "a1", alert: str = "low_conversion", region: str = "bishkek"
) -> None:
    with psycopg.connect(store_url) as connection:
        connection.execute(
            'INSERT INTO headrace.alerts (id, app, alert, metric, severity, state, resolution, "grouping",'
            ' dimensions, window_start, window_end, windows, "values", message, runbook, seq, opened_at,'
            " updated_at) VALUES (%s, 'turanmart', %s, 'conversion_1m', 'critical', 'open',"
            " '', 'region', jsonb_build_object('region', %s::text), now(), now(), 3, '{}',"
            " 'conversion under one percent for 3 windows', '/runbooks/incident-alerts', 1, now(), now())",
            (id_, alert, region),
        )
        announce(connection, "turanmart.dashboard_clickstream")


def panel_of(tab: Tab, title: str) -> Any:
    return tab.page.locator("article", has=tab.page.get_by_role("heading", name=title, exact=True))
