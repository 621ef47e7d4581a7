"""Sessions over HTTP, against a table that the store's own code has made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.metrics import Metric
from headrace.ops.load import load_app
from headrace.serve.access import Access, Caller
from tests.serve.desk import APP, desk_app
from tests.serve.running import running_server
from tests.serve.seed import TURANMART, connections_to, seed_visits, visit

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
VISITS = "/api/v1/sessions/visits"


@pytest.fixture(scope="module")
def client(new_database: Callable[[], str]) -> Iterator[httpx.Client]:
    """60 customers, a minute between them: the first are final, the last open."""
    url, loaded = new_database(), load_app(TURANMART)
    lines = [visit(n, NOW - timedelta(minutes=n // 2 * 2), events=n + 1) for n in range(60)]
    seed_visits(url, loaded, lines, sum(range(61)), NOW)
    with running_server(loaded, connections_to(url)) as address, httpx.Client(base_url=address) as found:
        yield found


def get(client: httpx.Client, path: str, status: int = 200, **asked: object) -> dict[str, Any]:
    answer = client.get(path, params=asked)  # type: ignore[arg-type]
    assert answer.status_code == status, answer.text
    return dict(answer.json())


def test_what_is_declared(client: httpx.Client) -> None:
    [visits] = get(client, "/api/v1/sessions")["items"]
    assert (visits["name"], visits["source"], visits["key"]) == ("visits", "clickstream", "customer_id")
    assert (visits["gap"], visits["max_length"]) == ("30 minutes", "4 hours")
    assert visits["columns"]["pages"] == "integer" and visits["columns"]["converted"] == "boolean"


def test_pages_have_every_session_once_and_the_latest_first(client: httpx.Client) -> None:
    found: list[dict[str, Any]] = []
    cursor: dict[str, object] = {}
    while True:
        page = get(client, VISITS, limit=7, **cursor)
        found += page["items"]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert len(found) == len({row["key"] for row in found}) == 60
    order = [(row["session_end"], row["key"]) for row in found]
    assert order == sorted(order, reverse=True)
    assert found == get(client, VISITS, limit=100)["items"]


def test_a_session_says_what_it_measures(client: httpx.Client) -> None:
    [row] = get(client, VISITS, key="c-59")["items"]
    assert (row["events"], row["duration_seconds"], row["state"]) == (60, 1.0, "final")
    assert row["session_end"] == "2026-03-01T11:32:01Z"
    assert row["values"] == {
        "region": "almaty",
        "pages": 2,
        "entry_page": "/",
        "exit_page": "/cart",
        "purchases": 1,
        "revenue": "12.50",
        "converted": True,
    }


def test_states_are_chosen(client: httpx.Client) -> None:
    found = {
        state: get(client, VISITS, state=state, limit=100)["items"]
        for state in ("open", "preliminary", "final")
    }
    assert all(row["state"] == state for state, rows in found.items() for row in rows)
    assert sum(map(len, found.values())) == 60 and all(found.values())
    both = get(client, VISITS, state="preliminary,final", limit=100)["items"]
    assert len(both) == len(found["preliminary"]) + len(found["final"])
    assert get(client, VISITS, key="nobody")["items"] == []
    assert get(client, f"{VISITS}/late-events")["items"] == []


def test_the_last_hour_in_a_few_numbers(client: httpx.Client) -> None:
    found = get(client, f"{VISITS}/summary")
    assert (found["open"], found["sessions"], found["open_sessions"]) == (32, 60, 32)
    assert (found["final_total"], found["late_total"]) == (18, 0)
    assert (found["since"], found["median_seconds"]) == ("2026-03-01T11:00:00Z", 1.0)
    assert found["shares"] == {"converted": 0.5}
    assert found["sums"] == {"pages": 120, "purchases": 30, "revenue": "750.00"}
    [group] = found["groups"]
    assert (found["by"], group["group"], group["sessions"]) == ("region", "almaty", 60)


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/api/v1/sessions/visit", 404, "did you mean 'visits'?"),
        ("/api/v1/sessions/visit/summary", 404, "did you mean 'visits'?"),
        (f"{VISITS}?state=done", 422, "there is no such state"),
        (f"{VISITS}?customer_id=c-1", 422, "no parameter 'customer_id' here"),
        (f"{VISITS}?limit=0", 422, ""),
        (f"{VISITS}?cursor=x", 422, ""),
    ],
)
def test_a_wrong_request_says_what_is_wrong(client: httpx.Client, path: str, status: int, says: str) -> None:
    answer = client.get(path)
    assert answer.status_code == status and says in answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_keys_that_are_classified_need_the_role(tmp_path: Path) -> None:
    desk_app(tmp_path)
    shared = 'of="desk_cards", gap="1 minute", max_length="1 hour", measures={"n": count()}'
    more = f'app.sessions("owners", key="owner", {shared})\napp.sessions("shops", key="shop", {shared})\n'
    (tmp_path / "app.py").write_text(APP + more)
    loaded = load_app(tmp_path)
    access = Access(loaded)
    owners, shops = (loaded.app.all_sessions[name].measured for name in ("owners", "shops"))
    auditor = Caller(frozenset({"auditor"}), anonymous=False)

    def seen(caller: Caller) -> list[Metric]:
        return [metric for metric in (owners, shops) if access.sees_metric(caller, metric)]

    assert seen(Caller()) == [shops]
    assert seen(Caller(frozenset({"till"}), anonymous=False)) == []
    assert seen(auditor) == [owners, shops]
