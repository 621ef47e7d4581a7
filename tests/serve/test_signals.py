"""Signals over HTTP: everybody who sees the stream sees how many there are, and few see whose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256

import httpx
import psycopg
import pytest

from headrace.ops.load import load_app
from headrace.store.connection import Store
from tests.serve.running import running_server
from tests.serve.seed import TURANMART, connections_to

ROLES = ("fraud-service", "nobody")
TOKENS = {sha256(role.encode()).hexdigest(): frozenset([role]) for role in ROLES}


@pytest.fixture(scope="module")
def store_url(new_database: Callable[[], str]) -> str:
    url = new_database()
    Store(url).prepare()
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO headrace.signal_totals VALUES ('turanmart', 'fraud', 'block', 3)")
    return url


@pytest.fixture(scope="module")
def guarded(store_url: str) -> Iterator[httpx.Client]:
    with (
        running_server(load_app(TURANMART), connections_to(store_url), TOKENS) as address,
        httpx.Client(base_url=address, timeout=20) as client,
    ):
        yield client


def asked(client: httpx.Client, path: str, role: str) -> httpx.Response:
    return client.get(path, headers={"Authorization": f"Bearer {role}"})


def test_counts_are_for_all_who_see_the_stream_and_rows_for_its_roles(guarded: httpx.Client) -> None:
    [mine, fast] = asked(guarded, "/api/v1/signals", "fraud-service").json()["items"]
    assert (mine["name"], mine["counts"], mine["shadow_version"]) == ("fraud", {"block": 3}, "velocity-1")
    assert (mine["lane"], fast["name"], fast["lane"]) == ("normal", "large_payments", "realtime")
    assert asked(guarded, "/api/v1/signals/fraud", "fraud-service").json() == {"items": [], "next": None}
    assert asked(guarded, "/api/v1/signals", "nobody").json()["items"] == []
    assert asked(guarded, "/api/v1/signals/fraud", "nobody").status_code == 403


def test_without_tokens_only_what_is_not_classified_is_shown(store_url: str) -> None:
    with running_server(load_app(TURANMART), connections_to(store_url)) as address:
        found = httpx.get(f"{address}/api/v1/signals").json()["items"]
        assert [item["name"] for item in found] == ["fraud", "large_payments"]
        assert httpx.get(f"{address}/api/v1/signals/fraud").status_code == 403
