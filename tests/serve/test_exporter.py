"""/metrics as Prometheus reads it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from headrace.connections import Connections, lane_query_name
from headrace.local.services import Services
from headrace.ops.pipeline import PipelineView
from headrace.serve.exporter import metrics_router
from headrace.serve.metric_names import NAMES, reference_table
from headrace.store.reports import Report
from tests.ops.books import LANE, Books, open_books, own_database

PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"
PROGRESS = {
    "batch_id": 0,
    "input_rate": 200.0,
    "processed_rate": 100.0,
    "durations_ms": {"walCommit": 30.0, "triggerExecution": 900.0, "publish": 200.0, "record": 50.0},
    "state_bytes": 4096,
    "removed": 10,
    "spent": {"decode": 1.5, "publish": 0.2},
}

LANE_PROGRESS = {
    "at": "2026-03-01T09:00:00.000Z",
    "received": 1200,
    "signals": 7,
    "latency_ms": {"p50": 9, "p99": 60},
}


@pytest.fixture(scope="module")
def books(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Books]:
    folder = tmp_path_factory.mktemp("exported") / "app"
    books = open_books(own_database(services, "exported"), folder, "exported", LANE)
    books.send(0, 150)
    books.write(0, (80, 10, 5, 5), reasons={"missing": 9, "future": 2}, oldest=timedelta(seconds=1.2))
    books.execute("INSERT INTO headrace.metric_ledger VALUES (%s, 0, 'sold', 80, 77, 0, 3)", (books.query,))
    books.execute(
        'INSERT INTO headrace.alerts (id, app, alert, metric, severity, state, resolution, "grouping",'
        ' dimensions, window_start, window_end, windows, "values", message, runbook, seq, opened_at,'
        " updated_at) VALUES ('exported-1', 'exported', 'few_sales', 'sold', 'critical', 'open', '', 'all',"
        " '{}', now(), now(), 1, '{}', '', '', 1, now(), now())"
    )

    books.execute("INSERT INTO headrace.signal_totals VALUES ('exported', 'fraud', 'block', 4)")
    books.execute("INSERT INTO headrace.enrich_totals VALUES ('exported', 'sales_enriched', 'found', 9)")
    books.execute("INSERT INTO headrace.enrich_totals VALUES ('exported', 'sales_enriched', 'pending', 2)")
    books.execute(
        "INSERT INTO headrace.dimensions VALUES ('exported', 'products', 'p.csv', 5, now(), now(), 'p.csv:3')"
    )

    books.execute(
        "INSERT INTO headrace.flow_sides (query, flow, side, first_batch, taken, matched, unmatched, late,"
        " pending_in, accepted) VALUES (%s, 'paid', 'left', 0, 50, 30, 5, 1, '{headrace,outbox}', 80)",
        (books.query,),
    )
    books.execute(
        "INSERT INTO headrace.patterns (app, pattern, query, meaning, taken, late, again, forgotten, matches,"
        " alerts, accepted) VALUES ('exported', 'many', %s, '{}', 20, 1, 2, 3, 5, 4, 80)",
        (books.query,),
    )
    for flow, counts in {
        "sessions.visits": {"accepted": 80, "counted": 70, "filtered": 8, "late": 2, "open": 9, "closed": 6},
        "signals.fraud": {"accepted": 80, "taken": 5, "late": 2, "again": 1, "remembered": 3},
        "enrich.sales_enriched": {"accepted": 80, "taken": 9},
    }.items():
        for outcome, count in counts.items():
            books.execute(
                "INSERT INTO headrace.flow_totals VALUES ('exported', %s, %s, %s, %s, 0)",
                (books.query, flow, outcome, count),
            )

    def told(report: Report) -> None:
        report.progress, report.restarts, report.starts = PROGRESS, 2, 1
        report.fail("it broke", datetime.now(UTC))

    def told_of_lane(report: Report) -> None:
        report.progress, report.restarts = LANE_PROGRESS, 4

    books.report(told)
    books.report(told_of_lane, lane_query_name("exported", books.stream))
    yield books
    books.store.close()


def scrape(books: Books, connections: Connections | None = None) -> str:
    view = PipelineView(books.loaded, connections or books.connections, wait_seconds=1.0)
    app = FastAPI()
    app.include_router(metrics_router(view))
    with TestClient(app) as client:
        answer = client.get("/metrics")
    view.close()
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return answer.text


def values(text: str) -> dict[str, float]:
    return {
        sample.name + "{" + ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items())) + "}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_numbers(books: Books) -> None:
    found = values(scrape(books))
    mine = "app=exported,source=exported_sales"
    group, topic = "headrace.exported.exported_sales", "exported_sales.raw.v1"
    both = f"consumergroup={group},group={group}"
    assert found[f"kafka_consumergroup_lag{{{both},partition=0,topic={topic}}}"] == 50
    assert found[f"kafka_consumergroup_lag_sum{{{both},topic={topic}}}"] == 50
    assert found[f"kafka_consumergroup_current_offset{{{both},partition=0,topic={topic}}}"] == 100
    assert found[f"kafka_topic_partition_current_offset{{partition=0,topic={topic}}}"] == 150
    assert found[f"kafka_consumergroup_group_lag_seconds{{group={group},partition=1,topic={topic}}}"] == 0
    assert found["headrace_records_total{app=exported,fate=rejected,source=exported_sales}"] == 10
    assert found["headrace_rejections_total{app=exported,reason=missing,source=exported_sales}"] == 9
    assert found[f"headrace_schema_failures_total{{{mine}}}"] == 9
    assert found["headrace_end_to_end_latency_seconds_bucket{app=exported,le=1.0,source=exported_sales}"] == 0
    assert (
        found["headrace_end_to_end_latency_seconds_bucket{app=exported,le=2.0,source=exported_sales}"] == 100
    )
    assert found[f"headrace_end_to_end_latency_seconds_count{{{mine}}}"] == 100
    assert found[f"headrace_failures_total{{{mine}}}"] == 1
    assert found[f"headrace_restarts_total{{{mine}}}"] == 2
    assert found[f"headrace_state_rows{{{mine}}}"] == 85
    assert found[f"headrace_backpressure_ratio{{{mine}}}"] == 2
    assert found["headrace_signals_total{app=exported,decision=block,signals=fraud}"] == 4
    assert found["headrace_enriched_total{app=exported,enrich=sales_enriched,outcome=found}"] == 9
    assert found["headrace_enrich_waiting{app=exported,enrich=sales_enriched}"] == 2
    assert found["headrace_enrich_hit_ratio{app=exported,enrich=sales_enriched}"] == 1
    assert found["headrace_table_rows{app=exported,table=products}"] == 5
    assert 0 <= found["headrace_table_stale_seconds{app=exported,table=products}"] < 60
    assert found["headrace_table_up{app=exported,table=products}"] == 0
    assert found["headrace_metric_late_events_total{app=exported,metric=sold,source=exported_sales}"] == 3
    assert (
        found["headrace_metric_freshness_slo_seconds{app=exported,metric=sold,source=exported_sales}"] == 30
    )
    assert found["headrace_incidents_open{alert=few_sales,app=exported,severity=critical}"] == 1
    assert found["headrace_outbox_waiting{app=exported,outbox=flows}"] == 0
    assert found["headrace_sink_seconds{app=exported,sink=store,source=exported_sales}"] == 0.05


def test_a_lane_says_how_it_is(books: Books) -> None:
    mine = "app=exported,source=exported_sales"
    lane = {
        name.removeprefix("headrace_realtime_"): value
        for name, value in values(scrape(books)).items()
        if name.startswith("headrace_realtime_")
    }
    assert 0 <= lane.pop(f"report_age_seconds{{{mine}}}") < 60
    assert lane == {
        f"up{{{mine}}}": 1,
        f"records_read_total{{{mine}}}": 1200,
        f"signals_sent_total{{{mine}}}": 7,
        "latency_seconds{app=exported,rank=p50,source=exported_sales}": 0.009,
        "latency_seconds{app=exported,rank=p99,source=exported_sales}": 0.06,
        f"last_batch_timestamp_seconds{{{mine}}}": datetime(2026, 3, 1, 9, tzinfo=UTC).timestamp(),
        f"failures_total{{{mine}}}": 0,
        f"restarts_total{{{mine}}}": 4,
    }
    assert values(scrape(books))[f"headrace_restarts_total{{{mine}}}"] == 2, "the gate has its own"


def test_every_flow_says_what_it_did(books: Books) -> None:
    found = values(scrape(books))

    def of(metric: str, flow: str, kind: str, side: str = "", outcome: str = "") -> float:
        last = f"outcome={outcome}," if outcome else ""
        return found[
            f"{metric}{{app=exported,flow={flow},kind={kind},{last}side={side},source=exported_sales}}"
        ]

    events, late, kept = (
        f"headrace_flow_{name}" for name in ("events_total", "late_events_total", "state_rows")
    )
    assert of(events, "paid", "join", "left", "matched") == 30
    assert of(events, "paid", "join", "left", "filtered") == 30
    assert (of(late, "paid", "join", "left"), of(kept, "paid", "join", "left")) == (1, 14)
    assert of("headrace_flow_state_bytes", "paid", "join", "left") > 0
    assert not any("outcome=pending" in name or "outcome=remembered" in name for name in found)
    assert of(events, "many", "pattern", outcome="forgotten") == 3
    assert (of(late, "many", "pattern"), of(kept, "many", "pattern")) == (1, 14)
    assert found["headrace_pattern_alerts_total{app=exported,pattern=many}"] == 4
    assert found["headrace_pattern_matches_total{app=exported,pattern=many}"] == 5
    assert of(events, "visits", "sessions", outcome="in_sessions") == 70
    assert of(events, "visits", "sessions", outcome="filtered") == 8
    assert (of(late, "visits", "sessions"), of(kept, "visits", "sessions")) == (2, 9)
    assert found["headrace_sessions_final_total{app=exported,sessions=visits}"] == 6
    assert of(events, "fraud", "signals", outcome="block") == 4
    assert (of(late, "fraud", "signals"), of(kept, "fraud", "signals")) == (2, 3)
    assert of(events, "sales_enriched", "enrichment", outcome="found") == 9


def test_every_name_of_the_reference_is_exposed_and_no_other(books: Books) -> None:
    text = scrape(books)
    exposed = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    # With so few records nothing can be said about their spread over the partitions.
    assert exposed | {"headrace_hot_partition_ratio"} == {named.name for named in NAMES}
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert types == {named.name: named.kind for named in NAMES if named.name in exposed}


def test_the_page_lists_every_name() -> None:
    assert reference_table() in PAGE.read_text()


def test_prometheus_own_linter_finds_nothing(books: Books) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    ours = "\n".join(line for line in scrape(books).splitlines() if "kafka_" not in line) + "\n"
    done = subprocess.run([promtool, "check", "metrics"], input=ours, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_store_that_is_away_is_said(books: Books) -> None:
    away = Connections(books.connections.bootstrap, {}, {}, "postgresql://nobody@127.0.0.1:1/none")
    assert values(scrape(books, away)) == {
        "headrace_up{app=exported,part=store}": 0,
        "headrace_serve_info{app=exported,url=http://testserver}": 1,
    }


@pytest.mark.parametrize(
    ("host", "url"),
    [("hr.example:8080", "http://hr.example:8080"), ("[::1]:80", "http://[::1]:80"), ('x"}\\{', None)],
)
def test_it_says_by_which_address_it_was_reached(books: Books, host: str, url: str | None) -> None:
    view = PipelineView(books.loaded, books.connections, wait_seconds=1.0)
    app = FastAPI()
    app.include_router(metrics_router(view))
    with TestClient(app) as client:
        text = client.get("/metrics", headers={"Host": host}).text
    view.close()
    found = [name for name in values(text) if name.startswith("headrace_serve_info")]
    assert found == ([f"headrace_serve_info{{app=exported,url={url}}}"] if url else [])


def test_no_spark_is_loaded() -> None:
    script = "import headrace.serve.exporter, headrace.serve.runbooks, sys; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
