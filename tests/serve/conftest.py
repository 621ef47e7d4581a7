"""One Postgres for all tests of the API, and one server over TuranMart's tables with sample rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psycopg
import pytest

from headrace.local.scratch_store import scratch_store
from headrace.local.services import Services
from tests.serve.browser import DESK, Tab, chromium, opened
from tests.serve.flow_rows import seed_join, seed_signals
from tests.serve.running import running_server
from tests.serve.seed import Seed, connections_to, seed_visits, visit
from tests.serve.shop import Shop, open_shop, raise_alert, reject, wait_for_broker

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with scratch_store() as url:
        yield url


@pytest.fixture(scope="session")
def new_database(postgres: str) -> Callable[[], str]:
    """An empty database for each call: names of apps and metrics need not differ."""

    def make() -> str:
        name = f"serve_{next(_numbers)}"
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return postgres.rpartition("/")[0] + f"/{name}"

    return make


@dataclass(frozen=True)
class Sample:
    """TuranMart with some minutes of rows; the last batch is of `now`.

    `insider` asks a server with tokens and has every role: signals are for those who have one.
    """

    seed: Seed
    store_url: str
    address: str
    client: httpx.Client
    insider: httpx.Client
    now: datetime

    def get(self, path: str, status: int = 200, **parameters: object) -> dict[str, object]:
        answer = self.client.get(path, params=parameters)  # type: ignore[arg-type]
        assert answer.status_code == status, answer.text
        return dict(answer.json())


@pytest.fixture(scope="session")
def sample(new_database: Callable[[], str]) -> Iterator[Sample]:
    url = new_database()
    seed = Seed(url)
    now = datetime.now(UTC).replace(second=30, microsecond=0)
    seed.fill(24, now)
    seed.batch(now - timedelta(seconds=90), events=4, clock=now)  # a correction
    seed.batch(now, events=4, late=3)
    lines = [visit(n, now - timedelta(minutes=n), events=n + 1) for n in range(9)]
    seed_visits(url, seed.loaded, lines, 45, now, batch_id=1_000)
    seed_join(url, seed.loaded, "order_paid", now)
    seed_signals(url, seed.loaded, "fraud", now)
    tokens = {sha256(b"all").hexdigest(): frozenset(["*"])}
    with (
        running_server(seed.loaded, connections_to(url)) as address,
        running_server(seed.loaded, connections_to(url), tokens) as inside,
        httpx.Client(base_url=address, timeout=20) as client,
        httpx.Client(base_url=inside, timeout=20, headers={"Authorization": "Bearer all"}) as insider,
    ):
        yield Sample(seed, url, address, client, insider, now)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def screenshots(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("dashboard")
    yield folder
    request.config.pluginmanager.getplugin("terminalreporter").write_line(f"\nscreenshots: {folder}")


@pytest.fixture(scope="module")
def shop(services: Services, new_database: Callable[[], str]) -> Iterator[Shop]:
    """An hour of rows, a rejected record and an alert."""
    with open_shop(services, new_database(), "dashboard_") as shop:
        now = datetime.now(UTC)
        shop.seed.fill(45, now)
        shop.seed.batch(now, events=4, late=3)
        reject(shop.connections, shop.seed.loaded)
        raise_alert(shop.connections.store_url)
        shop.start()
        wait_for_broker(shop.address)
        yield shop


@pytest.fixture
def tab(browser: Browser, shop: Shop) -> Iterator[Tab]:
    with opened(browser, shop.address, viewport=DESK) as tab:
        tab.wait_until_drawn()
        yield tab
