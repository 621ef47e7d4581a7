"""The ledger, late events and the catalogue over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg

from tests.serve.conftest import Sample
from tests.serve.test_metrics import every_page, items, table


def test_the_ledger_adds_up(sample: Sample) -> None:
    found = every_page(sample, "/api/v1/ledger", limit=100)
    assert len(found) == table(sample, "SELECT count(*) AS n FROM headrace.ledger")[0]["n"]
    assert len({(row["query"], row["batch_id"], row["partition"]) for row in found}) == len(found)
    times = [row["finished_at"] for row in found]
    assert times == sorted(times, reverse=True)
    for row in found:
        assert row["received"] == row["accepted"] + row["rejected"] + row["late"] + row["duplicate"]
    one = items(sample, "/api/v1/ledger", source="payments", limit=1000)
    assert {row["source"] for row in one} == {"payments"}
    middle = one[len(one) // 2]["finished_at"]
    before = items(sample, "/api/v1/ledger", source="payments", to=middle, limit=1000)
    since = items(sample, "/api/v1/ledger", source="payments", **{"from": middle}, limit=1000)
    assert before and since and len(before) + len(since) == len(one)


def test_late_events_newest_first(sample: Sample) -> None:
    found = every_page(sample, "/api/v1/late-events", limit=7)
    wanted = table(sample, "SELECT * FROM headrace.late_events")
    assert len(found) == len(wanted) > 30
    assert len({(r["metric"], r["window_end"], r["partition"], r["offset"]) for r in found}) == len(found)
    of_one = every_page(sample, "/api/v1/metrics/conversion_1m/late-events", limit=2)
    assert [(r["metric"], r["source"]) for r in of_one] == [("conversion_1m", "clickstream")] * 3
    assert all(r["late_by_seconds"] > 0 and r["reason"] == "late" for r in of_one)
    of_source = every_page(sample, "/api/v1/late-events", source="payments")
    assert {r["metric"] for r in of_source} == {"payment_errors_15m"}


def test_delays_count_every_late_event(sample: Sample) -> None:
    found: list[dict[str, Any]] = items(sample, "/api/v1/late-events/delays", metric="conversion_1m")
    assert sum(bucket["count"] for bucket in found) == 3
    edges = [bucket["from_seconds"] for bucket in found[1:]]
    assert edges == sorted(edges) and found[-1]["to_seconds"] is None
    long_ago = items(sample, "/api/v1/late-events/delays", **{"from": "2020-01-01", "to": "2020-01-02"})
    assert sum(bucket["count"] for bucket in long_ago) == 0


def test_the_catalogue(sample: Sample) -> None:
    found = {item["name"]: item for item in items(sample, "/api/v1/sources")}
    assert {name: s["classification"] for name, s in found.items()} == {
        "clickstream": "internal",
        "logins": "restricted",
        "orders": "restricted",
        "payments": "restricted",
    }
    payments = found["payments"]
    assert payments["roles"] == ["finance-analyst", "fraud-service"] and payments["classified"]
    assert (payments["lateness"], payments["topics"]["raw"]) == ("30 minutes", "payments.raw.v1")
    assert not found["clickstream"]["classified"]
    contract = sample.get("/api/v1/sources/clickstream/contract")
    assert contract["version"] == found["clickstream"]["version"] and "examples" in str(contract)
    assert "examples" not in str(sample.get("/api/v1/sources/payments/contract"))
    schema = sample.get("/api/v1/sources/payments/schema")
    assert schema["title"] == "payments" and "examples" not in str(schema)


def test_before_the_engine_has_run_everything_is_empty(sample: Sample) -> None:
    """The tables of the accounts are made by the engine."""
    moved = ("late_events", "revisions", "watermarks", "batches")
    with psycopg.connect(sample.store_url, autocommit=True) as connection:
        for name in moved:
            connection.execute(f"ALTER TABLE headrace.{name} RENAME TO {name}_away")
        try:
            for path in ("/late-events", "/ledger", "/metrics/revenue_10m/revisions", "/alerts"):
                assert httpx.get(f"{sample.address}/api/v1{path}").json()["items"] == [], path
        finally:
            for name in moved:
                connection.execute(f"ALTER TABLE headrace.{name}_away RENAME TO {name}")
