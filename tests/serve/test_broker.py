"""What the API reads from Kafka: dead letters, the audit, the pipeline; and what it hides from whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import httpx
import pytest
import schemathesis

from headrace.connections import Connections
from headrace.local.services import Services
from tests.serve.described import Document
from tests.serve.desk import Rejects, desk_app
from tests.serve.running import following, running_server
from tests.serve.seed import Seed
from tests.serve.test_contract import BROKER, ask_everything, paths

TOKENS = {
    "watcher-token": ["plumber"],
    "auditor-token": ["auditor"],
    "till-token": ["till"],
    "all-token": ["*"],
}
TAPS = [(n % 2, {"tap_id": f"t-{n}", "producer": f"tap-{n % 3}"}, "missing") for n in range(30)]
CARD = {
    "card_id": "c-1",
    "amount": 987654,
    "owner": "Dilnoza",
    "producer": "till-9",
    "shop": {"wrong": "typed-secret"},
    "undeclared": "stray-secret",
    "address": {"city": "Osh", "street": "Lenin 4", "phone": "+99655"},
}
SECRETS = (
    "987654",
    "Dilnoza",
    "typed-secret",
    "stray-secret",
    "Lenin 4",
    "+99655",
    "secret-key",
    "secret-header",
)


@dataclass(frozen=True)
class Desk:
    open: str
    closed: str
    seed: Seed

    def get(self, path: str, token: str = "", **parameters: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        address = self.closed if token else self.open
        return httpx.get(f"{address}/api/v1{path}", params=parameters or None, headers=headers, timeout=30)


@pytest.fixture(scope="module")
def desk(
    services: Services, new_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Desk]:
    loaded = desk_app(tmp_path_factory.mktemp("desk"))
    url = new_database()
    connections = Connections(services.bootstrap, services.kafka_options, services.java_kafka_options, url)
    seed = Seed(url, loaded)
    seed.fill(3, datetime.now(UTC))
    rejects = Rejects(connections, loaded)
    rejects.make_topics()
    rejects.send(
        "desk_taps", [*TAPS, (0, b"\xff not text", "not_utf8"), (1, b"[" * 400 + b"]" * 400, "not_object")]
    )
    rejects.send("desk_taps", [(0, b'{"tap_id": "' + b"x" * 20_000 + b'"}', "too_long")])
    rejects.send("desk_cards", [(0, CARD, "wrong_type"), (1, b"amount 987654 of Dilnoza", "not_json")])
    tokens = {sha256(t.encode()).hexdigest(): frozenset(roles) for t, roles in TOKENS.items()}
    with (
        running_server(loaded, connections) as is_open,
        running_server(loaded, connections, tokens) as is_closed,
    ):
        yield Desk(is_open, is_closed, seed)


def pages(desk: Desk, path: str, **parameters: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    for _ in range(100):
        page = desk.get(path, **parameters, **cursor).json()
        found += page["items"]
        if page["next"] is None:
            return found
        cursor = {"cursor": page["next"]}
    raise AssertionError("the pages do not end")


def test_dead_letters_newest_first_in_pages(desk: Desk) -> None:
    found = pages(desk, "/dead-letters", source="desk_taps", limit=7)
    assert len(found) == 33 and len({(r["partition"], r["offset"]) for r in found}) == 33
    for partition in (0, 1):
        offsets = [r["offset"] for r in found if r["partition"] == partition]
        assert offsets == sorted(offsets, reverse=True)
    newest = desk.get("/dead-letters", source="desk_taps", limit=1).json()
    assert newest["scanned"] == 1 and newest["next"]
    record = next(r for r in found if r["value"] == TAPS[4][1])
    assert record["reasons"] == [{"code": "missing", "field": "at"}]
    assert (record["contract_version"], record["producer"], record["encoding"]) == ("1.2.0", "tap-1", "json")
    assert record["origin"] == {
        "topic": "desk_taps.raw.v1",
        "partition": 0,
        "offset": 4,
        "log_time": "2026-01-01T00:00:00Z",
    }
    assert record["at"] == "2026-01-01T00:00:04Z" and record["key"] == "secret-key" and not record["masked"]


def test_pages_that_look_at_no_more_than_they_show_have_every_record_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.serve.dead_letters.MARKERS", 0)
    found = pages(desk, "/dead-letters", source="desk_taps", limit=2)
    assert len(found) == len({(r["partition"], r["offset"]) for r in found}) == 33


def test_dead_letters_by_reason_and_of_all_sources(desk: Desk) -> None:
    [only] = pages(desk, "/dead-letters", reason="not_utf8", limit=3)
    assert only["value"] == "\\xff not text" and only["encoding"] == "bytes"
    [deep] = pages(desk, "/dead-letters", reason="not_object")
    assert deep["encoding"] == "text"
    assert {r["source"] for r in pages(desk, "/dead-letters")} == {"desk_taps", "desk_cards"}


def test_one_record_by_its_place(desk: Desk) -> None:
    [large] = pages(desk, "/dead-letters", reason="too_long")
    assert large["truncated"] and large["value"] is None and large["size"] > 20_000
    path = f"/dead-letters/desk_taps/{large['partition']}/{large['offset']}"
    one = desk.get(path).json()
    assert len(one["value"]["tap_id"]) == 20_000 and not one["truncated"]
    for wrong in ("desk_taps/0/999999", "desk_taps/7/0", "nobody/0/0"):
        assert desk.get(f"/dead-letters/{wrong}").status_code == 404
    assert desk.get("/dead-letters/desk_taps/0/-1").status_code == 422


def test_histograms(desk: Desk) -> None:
    by_reason = desk.get("/dead-letters/histogram", source="desk_taps").json()
    assert by_reason["items"] == [{"key": "missing", "count": 8}, {"key": "wrong_type", "count": 8}]
    assert by_reason["partial"] is False
    by_producer = desk.get("/dead-letters/histogram", source="desk_taps", by="producer").json()
    assert {"key": "tap-0", "count": 10} in by_producer["items"] and by_producer["records"] == 33
    by_version = desk.get("/dead-letters/histogram", by="contract_version").json()
    assert {i["key"]: i["count"] for i in by_version["items"]} == {"1.2.0": 33, "1.0.0": 2}


def test_what_is_classified_is_shown_to_the_role_only(desk: Desk) -> None:
    full = desk.get("/dead-letters", "auditor-token", source="desk_cards").json()["items"]
    assert {r["encoding"] for r in full} == {"json", "text"} and not any(r["masked"] for r in full)
    assert next(r["value"] for r in full if r["encoding"] == "json") == CARD
    for token in ("", "all-token"):
        answer = desk.get("/dead-letters", token, source="desk_cards")
        hidden = not any(secret in answer.text for secret in SECRETS)
        assert (answer.status_code, hidden) == (200, token == "")
    masked = desk.get("/dead-letters", source="desk_cards").json()["items"]
    shown = next(r["value"] for r in masked if r["encoding"] == "json")
    assert (shown["card_id"], shown["address"]["city"], shown["amount"]) == ("c-1", "Osh", "(hidden)")
    for record in masked:
        one = desk.get(f"/dead-letters/desk_cards/{record['partition']}/{record['offset']}")
        assert one.status_code == 200 and not any(secret in one.text for secret in SECRETS)


@pytest.mark.parametrize("token", ["watcher-token", "till-token"])
def test_a_classified_stream_is_hidden_from_other_roles(desk: Desk, token: str) -> None:
    for path in (
        "/metrics/cards_1m/rows", "/metrics/cards_1m/latest", "/metrics/cards_1m/revisions",
        "/metrics/cards_1m/late-events", "/late-events?metric=cards_1m", "/late-events?source=desk_cards",
        "/dead-letters?source=desk_cards", "/dead-letters/desk_cards/0/0",
        "/dead-letters/histogram?source=desk_cards",
    ):  # fmt: skip
        refused = desk.get(path, token)
        assert refused.status_code == 403, path
        assert "auditor" in refused.json()["hint"] and refused.headers["content-type"].endswith(
            "problem+json"
        )
    names = [m["name"] for m in desk.get("/metrics", token).json()["items"]]
    assert names == ["taps_1m"]
    everything = "".join(desk.get(path, token).text for path in ("/dead-letters", "/late-events", "/alerts"))
    assert "desk_cards" not in everything
    for document in ("contract", "schema"):
        assert "card-example" not in desk.get(f"/sources/desk_cards/{document}", token).text
        assert "4242" not in desk.get(f"/sources/desk_cards/{document}").text
        assert "4242" in desk.get(f"/sources/desk_cards/{document}", "auditor-token").text
    live = httpx.get(f"{desk.closed}/live?metrics=cards_1m", headers={"Authorization": f"Bearer {token}"})
    assert live.status_code == 403


def test_a_metric_of_single_classified_values_needs_the_role_even_without_tokens(desk: Desk) -> None:
    assert {m["name"] for m in desk.get("/metrics").json()["items"]} == {"taps_1m", "cards_1m"}
    assert desk.get("/metrics/largest/rows").status_code == 403
    assert desk.get("/metrics/by_owner/rows").status_code == 403
    assert desk.get("/metrics/by_owner/rows", "auditor-token").status_code == 200
    with following(desk.open) as follower:
        assert "largest" not in follower.next().id


def test_tokens_are_asked_for(desk: Desk) -> None:
    for given in ({}, {"Authorization": "Bearer nobody"}, {"Authorization": "Basic auditor-token"}):
        answer = httpx.get(f"{desk.closed}/api/v1/metrics", headers=given)
        assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Bearer")
        assert "nobody" not in answer.text and "auditor-token" not in answer.text
    assert httpx.get(f"{desk.closed}/live").status_code == 401
    for address, says in ((desk.open, "no token is asked for"), (desk.closed, "a token is asked for")):
        checks = httpx.get(f"{address}/api/v1/health").json()["checks"]
        assert next(c["detail"] for c in checks if c["name"] == "tokens") == says


def test_the_pipeline_and_the_audit(desk: Desk) -> None:
    now = desk.get("/pipeline").json()
    taps = next(s for s in now["sources"] if s["source"] == "desk_taps")
    assert taps["received"] == 4 * 2 * 43 and taps["unaccounted"] == 0
    report = desk.get("/audit", source="desk_taps").json()
    assert [s["source"] for s in report["sources"]] == ["desk_taps"]
    # The seed writes a ledger of records that never were in the raw topic; the audit reads both.
    assert report["sources"][0]["totals"]["received"] == taps["received"]
    assert isinstance(report["clean"], bool)


def test_the_pipeline_is_followed(desk: Desk) -> None:
    with following(desk.open, topics="pipeline") as follower:
        event = follower.until(lambda e: e.name == "pipeline")[-1]
    assert {s["source"] for s in event.data["sources"]} == {"desk_taps", "desk_cards"}


@pytest.mark.parametrize("path", [path for path in paths() if path.startswith(BROKER)])
def test_no_request_makes_the_server_fail(desk: Desk, path: str) -> None:
    desk.seed.report()
    ask_everything(schemathesis.openapi.from_url(f"{desk.open}/openapi.json"), path, 15)


def test_an_answer_has_nothing_that_is_not_described(desk: Desk) -> None:
    desk.seed.report()
    document = Document(httpx.get(f"{desk.open}/openapi.json").json())
    for path in ("/dead-letters", "/dead-letters/histogram", "/audit", "/pipeline", "/health"):
        answer = desk.get(path).json()
        assert set(document.undescribed(document.answer(f"/api/v1{path}"), answer)) == set(), path
