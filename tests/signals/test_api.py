"""Signals over HTTP: pages with filters, one event, suspicious activity, the comparison with the shadow."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pyspark.sql import SparkSession

from headrace.local.services import Services
from headrace.ops.load import load_app
from headrace.serve.app import make_app
from tests.oracle.metrics_oracle import Event
from tests.serve.seed import connections_to
from tests.signals.stream import DerivedStream
from tests.views.stream import CONTRACT

SECOND = 1_000_000
START = 1_772_355_600 * SECOND
APP = """
from headrace import App, count

app = App("scored_api")
app.signals("fraud", of="sales", key="customer", features={"n": count()}, score="n / 4",
            decision={"block": 0.7, "review": 0.4}, shadow="n / 8")
"""


@pytest.fixture(scope="module")
def client(
    spark: SparkSession, services: Services, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("scored_api")
    (folder / "contracts").mkdir()
    (folder / "contracts" / "sales.yaml").write_text(CONTRACT.read_text())
    (folder / "app.py").write_text(APP)
    loaded = load_app(folder)
    stream = DerivedStream(spark, services.store_url, loaded.declared("sales"), loaded.name)
    fields = {"kind": "sale", "price": Decimal(1)}
    stream.feed(
        Event(0, n, f"e{n}", START + n * SECOND, START + n * SECOND, {**fields, "customer": f"c{n % 2}"})
        for n in range(10)
    )
    with TestClient(make_app(loaded, connections_to(services.store_url))) as found:
        yield found


def get(client: TestClient, path: str, status: int = 200, **parameters: Any) -> Any:
    answer = client.get(f"/api/v1{path}", params=parameters)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_pages_come_newest_first_and_join_up(client: TestClient) -> None:
    found, cursor = [], None
    while True:
        page = get(client, "/signals/fraud", limit=3, **({"cursor": cursor} if cursor else {}))
        found += page["items"]
        cursor = page["next"]
        if cursor is None:
            break
    assert [item["event_id"] for item in found] == [f"e{n}" for n in reversed(range(10))]
    assert found[0]["features"] == {"n": 4}
    assert found[0]["labels"] == {"customer": "c1"}
    assert (found[0]["score"], found[0]["decision"], found[0]["shadow_score"]) == (1.0, "block", 0.5)


def test_filters_choose(client: TestClient) -> None:
    blocked = get(client, "/signals/fraud", decision="block", key="c0")["items"]
    assert [item["event_id"] for item in blocked] == ["e8", "e6"]
    early = get(client, "/signals/fraud", to="2026-03-01T09:00:02Z")["items"]
    assert [item["event_id"] for item in early] == ["e1", "e0"]
    late = get(client, "/signals/fraud", **{"from": "2026-03-01T09:00:09Z"})["items"]
    assert [item["event_id"] for item in late] == ["e9"]


def test_one_event_and_what_is_not_there(client: TestClient) -> None:
    assert get(client, "/signals/fraud/events/e3")["features"] == {"n": 1}
    get(client, "/signals/fraud/events/e77", 404)
    get(client, "/signals/fruad", 404)
    get(client, "/signals/fraud", 422, decision="blok")


def test_activity_and_comparison(client: TestClient) -> None:
    first = get(client, "/signals/fraud/activity", limit=1)
    assert [(item["key"], item["suspicious"]) for item in first["items"]] == [("c0", 3)]
    rest = get(client, "/signals/fraud/activity", limit=1, cursor=first["next"])
    assert [(item["key"], item["suspicious"]) for item in rest["items"]] == [("c1", 3)]
    compared = get(client, "/signals/fraud/comparison", **{"from": "2026-03-01T00:00:00Z"})
    pairs = {(item["decision"], item["shadow_decision"]): item["events"] for item in compared["items"]}
    assert pairs == {
        ("allow", "allow"): 4,
        ("review", "allow"): 2,
        ("block", "allow"): 2,
        ("block", "review"): 2,
    }
    assert (compared["events"], compared["agreement"]) == (10, 0.4)


def test_what_is_declared_is_listed_with_its_counts(client: TestClient) -> None:
    [item] = get(client, "/signals")["items"]
    assert (item["name"], item["source"], item["counts"]) == (
        *("fraud", "sales"),
        {"allow": 4, "block": 4, "review": 2},
    )
    assert get(client, "/enrichments")["items"] == []
