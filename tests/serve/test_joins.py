"""Joins over HTTP: what met, what did not, page by page, and what a caller may not see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import httpx
import psycopg
import pytest

from headrace.ops.load import load_app
from headrace.store.connection import Store
from tests.serve.flow_rows import make_join_tables
from tests.serve.running import running_server
from tests.serve.seed import TURANMART, connections_to

START = datetime(2026, 3, 1, 9, tzinfo=UTC)
TOKENS = {
    sha256(role.encode()).hexdigest(): frozenset([role]) for role in ("analyst", "finance-analyst", "*")
}


@pytest.fixture(scope="module")
def client(new_database: Callable[[], str]) -> Iterator[httpx.Client]:
    url = new_database()
    Store(url).prepare()
    loaded = load_app(TURANMART)
    with psycopg.connect(url) as connection:
        types = {"amount": "numeric", "method": "double precision"}
        make_join_tables(connection, loaded, "order_paid", types)
        for n in range(5):
            at = START + timedelta(minutes=n)
            connection.execute(
                "INSERT INTO turanmart.order_paid (id, key, left_id, right_id, event_time, amount, region)"
                " VALUES (%s, %s, %s, %s, %s, '9.50', 'almaty')",
                (f"m{n}", f"o-{n}", f"l{n}", f"r{n}", at),
            )
            connection.execute(
                "INSERT INTO turanmart.order_paid__unmatched (id, key, left_id, event_time, reason, side,"
                " values) VALUES (%s, %s, %s, %s, %s, %s, %s)",
                (
                    *(f"u{n}", f"x-{n}", f"l{n}", at, "no_payment" if n else "amount_differs"),
                    *("left" if n else "pair", '{"amount": 9.50, "method": 0.5}'),
                ),
            )
        connection.execute(
            "INSERT INTO headrace.flow_sides VALUES ('turanmart.orders', 'order_paid', 'left', 0, 9, 4, 2, 1)"
        )
    with (
        running_server(loaded, connections_to(url), TOKENS) as address,
        httpx.Client(base_url=f"{address}/api/v1", timeout=20) as client,
    ):
        yield client


def get(client: httpx.Client, path: str, role: str = "*", status: int = 200, **asked: object) -> dict:  # type: ignore[type-arg]
    answer = client.get(path, params=asked, headers={"Authorization": f"Bearer {role}"})  # type: ignore[arg-type]
    assert answer.status_code == status, answer.text
    return dict(answer.json())


def test_the_list_tells_what_became_of_each_side(client: httpx.Client) -> None:
    joins = {join["name"]: join for join in get(client, "/joins")["items"]}
    assert list(joins) == ["order_paid", "checkout_paid", "ad_click"]
    assert joins["order_paid"]["sides"]["left"] == {
        "source": "orders",
        "taken": 9,
        "matched": 4,
        "unmatched": 2,
        "late": 1,
        "pending": 2,
    }


def test_matches_newest_first_and_page_by_page(client: httpx.Client) -> None:
    first = get(client, "/joins/order_paid", limit=3)
    rest = get(client, "/joins/order_paid", limit=3, cursor=first["next"])
    assert [m["id"] for m in first["items"] + rest["items"]] == ["m4", "m3", "m2", "m1", "m0"]
    assert rest["next"] is None
    assert first["items"][0]["values"]["amount"] == "9.50"
    narrow = {"from": "2026-03-01T09:01:00Z", "to": "2026-03-01T09:03:00Z"}
    assert [m["id"] for m in get(client, "/joins/order_paid", **narrow)["items"]] == ["m2", "m1"]
    assert [m["id"] for m in get(client, "/joins/order_paid", key="o-3")["items"]] == ["m3"]


def test_dead_letters_by_reason_and_side(client: httpx.Client) -> None:
    path = "/joins/order_paid/unmatched"
    assert [x["id"] for x in get(client, path, reason="amount_differs")["items"]] == ["u0"]
    [letter] = get(client, path, side="left", key="x-2")["items"]
    assert (letter["id"], letter["values"]) == ("u2", {"amount": "9.50", "method": 0.5})
    assert get(client, path, side="top", status=422)["parameter"] == "side"
    assert get(client, path, resaon="x", status=422)["hint"] == "did you mean 'reason'?"


def test_classified_fields_are_for_the_roles_of_their_contract(client: httpx.Client) -> None:
    assert get(client, "/joins/order_paid", role="analyst", status=403)
    assert "order_paid" not in [join["name"] for join in get(client, "/joins", role="analyst")["items"]]
    assert get(client, "/joins/order_paidd", status=404)["hint"] == "did you mean 'order_paid'?"


def test_a_join_that_has_not_run_yet_is_empty(client: httpx.Client) -> None:
    assert get(client, "/joins/ad_click") == {"items": [], "next": None}
    assert get(client, "/joins/ad_click/unmatched")["items"] == []
