"""The pipeline object and its health, over a real broker and a real store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.connections import Connections
from headrace.errors import ServiceError
from headrace.local.connect import connections_of
from headrace.local.services import Services
from headrace.ops.health import health_now, health_of
from headrace.ops.pipeline import PipelineView, pipeline_now
from headrace.ops.pipeline_facts import KEPT_SECONDS
from headrace.store.reports import Report
from headrace.store.totals import Counted, counted_on
from tests.ops.books import Books, open_books, wait_for


@pytest.fixture
def books(services: Services, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Books]:
    name = request.node.name.removeprefix("test_")[:40]
    books = open_books(connections_of(services), tmp_path / "app", name)
    yield books
    books.store.close()


def source_of(books: Books) -> dict[str, Any]:
    [source] = pipeline_now(books.loaded, books.connections)["sources"]
    return dict(source)


def checks(books: Books) -> dict[str, str]:
    verdict = health_of(pipeline_now(books.loaded, books.connections))
    return {check["name"].partition(" ")[0]: check["status"] for check in verdict["checks"]} | {
        "all": verdict["status"]
    }


def test_a_source_that_was_never_run(books: Books) -> None:
    source = source_of(books)
    assert (source["status"], source["received"], source["unaccounted"]) == ("unknown", 0, 0)
    assert (source["lag"], source["batch"], source["latency_seconds"]) == (
        {"records": 0, "seconds": 0.0},
        None,
        None,
    )
    assert [p["idle"] for p in source["partitions"]] == [True, True]
    assert source["slo"] == {"freshness_seconds": 30.0, "latency_seconds": 5.0, "error_rate": 0.1}
    assert checks(books)["query"] == "down"


def test_counts_lag_and_latency(books: Books) -> None:
    books.send(0, 300)
    books.send(1, 50)
    books.write(0, (180, 10, 5, 5), oldest=timedelta(seconds=2), reasons={"missing": 10})
    books.write(1, (40, 0, 0, 0), oldest=timedelta(seconds=0.5))
    books.report()
    source = source_of(books)
    assert [source[f] for f in ("received", "accepted", "rejected", "late", "duplicate")] == [
        240,
        220,
        10,
        5,
        5,
    ]
    assert (source["unaccounted"], source["rate_per_second"]) == (0, 24.0)
    assert source["lag"]["records"] == 110
    assert 0 < source["lag"]["seconds"] < 60
    assert source["freshness_seconds"] == source["lag"]["seconds"]
    assert source["latency_seconds"]["p50"] == pytest.approx(2, abs=0.3)
    assert source["latency_seconds"]["p99"] == pytest.approx(2, abs=0.3)
    assert source["batch"]["batch_id"] == 1
    assert source["batch"]["seconds"] == pytest.approx(0.4, abs=0.3)
    first, second = source["partitions"]
    assert (first["lag_records"], first["next_offset"], first["end_offset"]) == (100, 200, 300)
    assert (second["lag_records"], second["share"]) == (10, 0.1667)
    assert (first["hot"], second["hot"], source["hot_ratio"]) == (True, False, 1.667)
    assert (first["idle"], source["status"]) == (False, "running")
    assert source["duplicate_ratio"] == pytest.approx(5 / 240, abs=1e-4)
    assert checks(books)["all"] == "ok"


def test_a_silent_partition_is_idle_and_a_lagging_one_is_not(books: Books) -> None:
    books.write(0, (10, 0, 0, 0))
    books.write(1, (10, 0, 0, 0))
    books.execute(
        "UPDATE headrace.clocks SET log_time = now() - interval '1 hour' WHERE query = %s", (books.query,)
    )
    books.send(1, 15)
    idle, behind = source_of(books)["partitions"]
    assert (idle["idle"], behind["idle"], behind["lag_records"]) == (True, False, 5)


def test_totals_stay_when_the_ledger_is_pruned(books: Books) -> None:
    """Also late events and corrections, whose rows go with the windows."""
    books.write(0, (7, 2, 0, 1), reasons={"missing": 2, "future": 1})
    books.execute("INSERT INTO headrace.metric_ledger VALUES (%s, 0, 'sold', 7, 3, 0, 4)", (books.query,))
    books.execute(
        "INSERT INTO headrace.revisions VALUES (%s, 'sold', now(), now(), 'all', '{}', 2, 'corrected', '{}')",
        (books.loaded.name,),
    )
    books.report()
    books.write(0, (1, 0, 0, 0), at=10)
    exact = counted(books)
    assert exact.batch == 1
    books.report()
    for table in ("batches", "metric_ledger"):
        books.execute(f"DELETE FROM headrace.{table} WHERE query = %s", (books.query,))
    books.execute("DELETE FROM headrace.revisions WHERE app = %s", (books.loaded.name,))
    kept = counted(books)
    assert kept.totals == exact.totals
    assert kept.totals.fates == {"received": 11, "accepted": 8, "rejected": 2, "late": 0, "duplicate": 1}
    assert kept.totals.reasons == {"missing": 2, "future": 1}
    assert (kept.totals.late, kept.totals.corrected) == ({"sold": 4}, {"sold": 1})
    assert (sum(kept.totals.latency.counts), sum(kept.totals.seconds.counts)) == (11, 2)
    assert source_of(books)["received"] == 11


def counted(books: Books) -> Counted:
    """The totals as a reader sees them: what the report has, and what came since."""
    from headrace.store.reports import read_reports

    def read(connection: Any) -> Counted:
        before = read_reports(connection, [books.query])[books.query].counted
        return counted_on(connection, books.loaded.name, books.query, ["sold"], before)

    return books.store.transact(read)


def test_failures_and_broken_promises_are_said(books: Books) -> None:
    def fail(report: Report) -> None:
        report.fail("OutOfMemoryError: Java heap space", datetime.now(UTC))
        report.status, report.restarts = "restarting", 3

    books.write(0, (50, 40, 0, 10), oldest=timedelta(seconds=9), reasons={"missing": 40})
    books.report(fail)
    source = source_of(books)
    assert (source["status"], source["restarts"], source["failures"]) == ("restarting", 3, 1)
    assert source["last_failure"] == "OutOfMemoryError: Java heap space"
    found = checks(books)
    assert found["query"] == found["latency"] == found["rejections"] == found["all"] == "degraded"
    assert found["freshness"] == found["accounts"] == "ok"


def test_an_engine_that_no_longer_reports_is_down(books: Books) -> None:
    books.report()
    assert source_of(books)["status"] == "running"
    books.execute("UPDATE headrace.query_reports SET reported_at = now() - interval '1 minute'")
    assert source_of(books)["status"] == "unknown"
    assert checks(books)["all"] == "down"
    books.report(lambda report: setattr(report, "status", "stopped"))
    assert source_of(books)["status"] == "stopped"


def test_a_broker_that_is_away_is_a_problem_not_an_error(books: Books) -> None:
    books.write(0, (5, 0, 0, 0))
    books.report()
    away = Connections("127.0.0.1:1", {"log_level": "0"}, {}, books.connections.store_url)
    view = PipelineView(books.loaded, away, wait_seconds=1.0)
    now = view.now()
    view.close()
    [source] = now["sources"]
    assert source["lag"] == {"records": None, "seconds": None}
    assert (source["received"], source["freshness_seconds"]) == (5, None)
    assert "does not answer" in now["problems"][0]
    assert health_of(now)["status"] == "down"


def test_a_store_that_is_away_is_a_verdict(books: Books) -> None:
    away = Connections(books.connections.bootstrap, {}, {}, "postgresql://nobody@127.0.0.1:1/none")
    view = PipelineView(books.loaded, away, wait_seconds=0.5)
    with pytest.raises(ServiceError):
        view.now()
    verdict = health_now(view)
    view.close()
    assert (verdict["status"], verdict["checks"][0]["name"]) == ("down", "store")


def test_those_who_ask_at_once_share_an_answer(books: Books) -> None:
    view = PipelineView(books.loaded, books.connections)
    first = view.facts()
    assert view.facts() is first
    wait_for(lambda: view.facts() is not first, KEPT_SECONDS + 5)
    view.close()
