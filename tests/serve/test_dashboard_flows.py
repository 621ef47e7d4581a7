"""What the dashboard shows of sessions, enrichment, flows and real-time lanes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psycopg

from headrace.ops.load import load_app
from headrace.store.changes import announce
from headrace.store.reports import QueryStatus, Report, save_report
from tests.serve.browser import DESK, Tab, needs_chromium, opened
from tests.serve.running import wait_until
from tests.serve.seed import TURANMART, seed_visits, visit
from tests.serve.shop import Shop, panel_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = needs_chromium


def test_sessions_and_enrichment_are_shown(tab: Tab, shop: Shop, browser: Browser, screenshots: Path) -> None:
    visits, enriched, flows = (panel_of(tab, title) for title in ("Sessions: visits", "Enrichment", "Flows"))

    def says(text: str) -> None:
        tab.wait("(text) => document.querySelector('#main').innerText.includes(text)", text)

    says("No session yet")
    says("Nothing is enriched yet")
    assert not flows.is_visible(), "without a flow there is no panel of them"
    now, loaded = datetime.now(UTC), shop.seed.loaded
    regions = ("tashkent", "almaty", "bishkek", "samarkand", "astana")
    lines = [visit(n, now - timedelta(minutes=n), events=n + 1, region=regions[n % 5]) for n in range(50)]
    seed_visits(shop.connections.store_url, loaded, lines, sum(range(51)), now)
    with psycopg.connect(shop.connections.store_url) as connection:
        for outcome, count in {"found": 1950, "unknown": 50, "no_key": 700}.items():
            connection.execute(
                "INSERT INTO headrace.enrich_totals VALUES ('turanmart', 'clickstream_enriched', %s, %s)",
                (outcome, count),
            )
        connection.execute(
            "INSERT INTO headrace.dimensions VALUES ('turanmart', 'products', 'p.csv', 480, now(), now(), '')"
        )
    summary = f"{shop.address}/api/v1/sessions/visits/summary"
    wait_until(lambda: httpx.get(summary, timeout=20).json()["open"] == 31, 10)
    tab.page.reload()
    says("open now")
    says("97.5 %")
    says("in sessions 1,275")
    numbers = visits.locator(".of-several").all_inner_texts()
    assert [tuple(text.split("\n\n")) for text in numbers][:4] == [
        ("31", "open now"),
        ("50", "in the last hour"),
        ("1 s", "median duration"),
        ("50.0 %", "converted"),
    ]
    assert sorted(visits.locator("tbody th").all_inner_texts()) == sorted(regions)
    cells = enriched.locator("tbody tr").first.locator("th, td").all_inner_texts()
    assert cells[:7] == ["clickstream_enriched", "97.5 %", "1,950", "50", "700", "products", "480"]
    assert "visits" in flows.inner_text()
    with psycopg.connect(shop.connections.store_url) as connection:
        connection.execute("UPDATE headrace.dimensions SET problem = 'p.csv:3: two keys'")
    tab.page.reload()
    says("p.csv:3: two keys")
    assert enriched.locator(".runbook").get_attribute("href") == "runbooks/unknown-keys"
    assert tab.errors == []
    for scheme in ("light", "dark"):
        with opened(browser, shop.address, viewport=DESK, scheme=scheme) as other:
            other.wait_until_drawn()
            other.page.get_by_text("open now").wait_for()
            other.keep(screenshots, f"flows-{scheme}")


def test_what_flows_made_of_their_events_is_shown(tab: Tab, shop: Shop) -> None:
    flows = panel_of(tab, "Flows")
    with psycopg.connect(shop.connections.store_url) as connection:
        connection.execute(
            "INSERT INTO headrace.flow_sides (query, flow, side, first_batch, taken, matched, unmatched,"
            " late) VALUES ('turanmart.dashboard_payments', 'order_paid', 'right', 0, 1234, 1200, 20, 4)"
        )
        connection.execute("INSERT INTO headrace.signal_totals VALUES ('turanmart', 'fraud', 'block', 3)")
        announce(connection, "turanmart.dashboard_payments")
    tab.wait("() => document.querySelector('#pipeline-panels').innerText.includes('order_paid, right')")
    cells = flows.locator("tbody tr", has_text="order_paid").locator("th, td").all_inner_texts()
    outcomes = "matched 1,200 · unmatched 20 · pending 10"
    assert cells == ["order_paid, right", "join", "dashboard_payments", "1,234", outcomes, "4", "10", "–"]
    assert "fraud: block 3" in flows.inner_text()


def test_a_real_time_lane_is_shown_and_whether_it_runs(tab: Tab, shop: Shop) -> None:
    app, flows = shop.seed.loaded.app, panel_of(tab, "Flows")
    mine = load_app(TURANMART).app.signal_sets["large_payments"]
    progress = {"received": 4321, "signals": 12, "latency_ms": {"p50": 9, "p99": 1200}}
    app.signal_sets = {mine.name: replace(mine, of="dashboard_payments")}
    try:
        levels: dict[QueryStatus, str] = {"running": "ok", "stopped": "bad"}
        for status, level in levels.items():
            said = f"Real-time lane of dashboard_payments: {status} · p50 9 ms · p99 1.2 s · read 4,321"
            with psycopg.connect(shop.connections.store_url) as connection:
                now = datetime.now(UTC)
                report = Report("turanmart.dashboard_payments.realtime", now, now, status, progress=progress)
                save_report(connection, report, "turanmart", [])
                announce(connection, "turanmart.dashboard_payments")
            shown = "(text) => document.querySelector('#pipeline-panels').innerText.includes(text)"
            tab.wait(shown, f"{said} · signals 12")
            assert flows.get_attribute("data-level") == level
        assert flows.locator(".runbook").get_attribute("href") == "runbooks/realtime-lane"
    finally:
        app.signal_sets = {}
