"""An event id is a field like any other: where it is classified, nobody without the role sees it anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256

import httpx
import psycopg
import pytest

from headrace.log.tail import TailRecord
from headrace.ops.load import LoadedApp
from headrace.serve.dead_letter_shape import shown
from tests.serve.running import following, running_server
from tests.serve.seed import connections_to
from tests.serve.vault import SECRET, fill_vault, vault_app

NAMES = {"metrics": "slips_1m", "sessions": "visits", "joins": "met", "signals": "odd", "sources": "slips"}
# These ask the broker, which is away here; a dead letter is looked at below.
BROKER = ("/api/v1/dead-letters", "/api/v1/audit", "/api/v1/pipeline", "/api/v1/health", "/metrics")
SHOWN_WITH_ROLE = {
    "/api/v1/late-events",
    "/api/v1/metrics/slips_1m/late-events",
    "/api/v1/sessions/visits/late-events",
    "/api/v1/joins/met",
    "/api/v1/joins/met/unmatched",
    "/api/v1/joins/owned",
    "/api/v1/joins/owned/unmatched",
    "/api/v1/alerts",
    "/api/v1/signals/odd",
    f"/api/v1/signals/odd/events/{SECRET}",
}


@dataclass(frozen=True)
class Vault:
    loaded: LoadedApp
    store_url: str
    open: str
    closed: str

    def get(self, path: str, role: str = "") -> httpx.Response:
        """Without a role: from the server that asks for no token."""
        headers = {"Authorization": f"Bearer {role}"} if role else {}
        return httpx.get(f"{self.closed if role else self.open}{path}", headers=headers, timeout=20)

    def paths(self) -> list[str]:
        found = []
        for path in self.get("/openapi.json").json()["paths"]:
            if path.startswith((*BROKER, "/live")):
                continue
            section = path.split("/")[3] if path.count("/") > 2 else ""
            name = NAMES.get(section, "")
            asked = path.replace("{name}", name).replace("{event_id}", SECRET)
            found.append(asked)
            if section == "joins" and name in asked:
                found.append(asked.replace(name, "owned"))
        return found


@pytest.fixture(scope="module")
def vault(new_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    url, loaded = new_database(), vault_app(tmp_path_factory.mktemp("vault") / "vault")
    fill_vault(url, loaded)
    roles = {sha256(role.encode()).hexdigest(): frozenset([role]) for role in ("auditor", "watcher")}
    with (
        running_server(loaded, connections_to(url)) as is_open,
        running_server(loaded, connections_to(url), roles) as is_closed,
    ):
        yield Vault(loaded, url, is_open, is_closed)


def test_every_route_that_shows_an_id_hides_it_from_those_without_the_role(vault: Vault) -> None:
    with_role = {path: vault.get(path, "auditor") for path in vault.paths()}
    assert {path for path, found in with_role.items() if SECRET in found.text} == SHOWN_WITH_ROLE
    assert {found.status_code for found in with_role.values()} == {200}
    for role in ("", "watcher"):
        for path in vault.paths():
            found = vault.get(path, role)
            asked_for = path.endswith(SECRET)  # the id is the question: it may be repeated, and is not
            assert SECRET not in found.text, (path, role)
            assert found.status_code in ((403,) if asked_for else (200, 403)), (path, role)


def test_what_is_not_classified_is_still_shown_without_tokens(vault: Vault) -> None:
    [late] = vault.get("/api/v1/late-events").json()["items"]
    assert (late["event_id"], late["partition"], late["offset"], late["source"]) == (None, 0, 7, "slips")
    [met] = vault.get("/api/v1/joins/met").json()["items"]
    assert (met["left_id"], met["right_id"], met["key"], met["values"]) == (
        None,
        None,
        "s-1",
        {"note": "s-1"},
    )
    [alert] = vault.get("/api/v1/alerts").json()["items"]
    assert alert["dimensions"] == {"shop": "s-1"}
    assert alert["values"]["matched"] == [{"event_id": None, "offset": 7}]


def test_a_hidden_key_cannot_be_asked_for_either(vault: Vault) -> None:
    [owned] = vault.get("/api/v1/joins/owned").json()["items"]
    assert (owned["key"], owned["values"]) == (None, {})
    for path in ("/api/v1/joins/owned", "/api/v1/joins/owned/unmatched"):
        assert vault.get(f"{path}?key=Dilnoza").status_code == 403
        assert len(vault.get(f"{path}?key=Dilnoza", "auditor").json()["items"]) == 1
    assert len(vault.get("/api/v1/joins/met?key=s-1").json()["items"]) == 1


@pytest.mark.parametrize("role", ["", "auditor"])
def test_live_alerts_show_ids_to_the_role_only(vault: Vault, role: str) -> None:
    address, headers = (vault.closed, {"authorization": f"Bearer {role}"}) if role else (vault.open, {})
    with (
        psycopg.connect(vault.store_url, autocommit=True) as connection,
        following(address, headers=headers, topics="alerts") as follower,
    ):
        follower.next()
        connection.execute("UPDATE headrace.alerts SET updated_at = now() WHERE id = 'p1'")
        connection.execute("""SELECT pg_notify('headrace', '{"query": "vault.slips"}')""")
        event = follower.next()
        again = follower.id
    assert (event.name, event.data["id"]) == ("alert", "p1")
    assert event.data["values"]["matched"][0]["event_id"] == (SECRET if role else None)
    # One that was given out with the role is worth nothing without it.
    with following(vault.open, topics="alerts", after=again) as follower:
        seen = follower.until(lambda e: e.name == "ready")
    assert SECRET not in str(seen)


def test_a_dead_letter_hides_its_id(vault: Vault) -> None:
    contract = vault.loaded.contract("slips")
    body = b'{"id": "%s", "shop": "s-1"}' % SECRET.encode()
    record = TailRecord(contract.topics.invalid, 0, 7, 0, None, body, len(body), ())
    assert shown(record, contract, everything=False)["value"] == {"id": "(hidden)", "shop": "s-1"}
