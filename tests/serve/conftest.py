"""One Postgres for all tests of the API, and one server over TuranMart's tables with sample rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import httpx
import psycopg
import pytest

from headrace.local.scratch_store import scratch_store
from tests.serve.flow_rows import seed_join, seed_signals
from tests.serve.running import running_server
from tests.serve.seed import Seed, connections_to, seed_visits, visit

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
