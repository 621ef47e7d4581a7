"""The dashboard in a real Chromium, over a real store and broker. Screenshots are kept for a look."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest
from confluent_kafka import Producer

from headrace.app import App
from headrace.connections import Connections
from headrace.local.services import Services
from headrace.log.topics import ensure_topics
from headrace.ops.load import LoadedApp, load_app
from headrace.serve import live_feeds
from headrace.store.changes import announce
from headrace.store.reports import QueryStatus, Report, save_report
from tests.serve.browser import CHROMIUM, DESK, PHONE, Tab, chromium, opened
from tests.serve.running import running_server, wait_until
from tests.serve.seed import TURANMART, Seed, seed_visits, visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="Chromium is not installed")
NASTY = "<b>bold</b><script>stolen = 1</script>"
CHART = '#business-panels .tile[data-group="tashkent"] svg.columns[role="slider"]'


def renamed(loaded: LoadedApp, prefix: str) -> LoadedApp:
    """The same app with topics of its own on the shared broker."""
    app = App(loaded.name)
    app.panels = loaded.app.panels
    app.metrics = {n: replace(m, of=prefix + m.of) for n, m in loaded.app.metrics.items()}
    app.all_sessions = {n: replace(s, of=prefix + s.of) for n, s in loaded.app.all_sessions.items()}
    app.enrichments = {n: replace(e, of=prefix + e.of) for n, e in loaded.app.enrichments.items()}
    contracts = {prefix + n: replace(c, name=prefix + n) for n, c in loaded.contracts.items()}
    return LoadedApp(app, contracts)


@dataclass
class Shop:
    """A server that can be stopped and started again at the same address."""

    seed: Seed
    connections: Connections
    running: ExitStack
    address: str = ""

    def start(self) -> None:
        port = int(self.address.rpartition(":")[2]) if self.address else 0
        self.address = self.running.enter_context(
            running_server(self.seed.loaded, self.connections, port=port)
        )

    def stop(self) -> None:
        self.running.close()

    def commit(self, back: timedelta = timedelta(), events: int = 40) -> float:
        """One batch of clickstream; the time right after its commit."""
        now = datetime.now(UTC)
        stream = next(name for name in self.seed.loaded.contracts if name.endswith("clickstream"))
        self.seed.batch(now - back, events=events, streams=(stream,), clock=now)
        return time.time()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def screenshots(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("dashboard")
    yield folder
    request.config.pluginmanager.getplugin("terminalreporter").write_line(f"\nscreenshots: {folder}")


@pytest.fixture(scope="module")
def shop(services: Services, new_database: Callable[[], str]) -> Iterator[Shop]:
    """An hour of rows, a rejected record and an alert."""
    url = new_database()
    loaded = renamed(load_app(TURANMART), "dashboard_")
    connections = Connections(services.bootstrap, {}, {}, url)
    seed = Seed(url, loaded)
    now = datetime.now(UTC)
    seed.fill(45, now)
    seed.batch(now, events=4, late=3)
    for contract in loaded.contracts.values():
        ensure_topics(contract, connections.librdkafka)
    reject(connections, loaded)
    raise_alert(url)
    with ExitStack() as running:
        shop = Shop(seed, connections, running)
        shop.start()
        wait_for_broker(shop.address)
        yield shop


@pytest.fixture
def tab(browser: Browser, shop: Shop) -> Iterator[Tab]:
    with opened(browser, shop.address, viewport=DESK) as tab:
        tab.wait_until_drawn()
        yield tab


def wait_for_broker(address: str) -> None:
    """Topics that were just made have no leader for a moment, and the broker says so."""
    wait_until(lambda: httpx.get(f"{address}/api/v1/pipeline", timeout=20).status_code == 200, 20)


def reject(connections: Connections, loaded: LoadedApp) -> None:
    contract = next(c for n, c in loaded.contracts.items() if n.endswith("clickstream"))
    headers = {
        "headrace-reasons": json.dumps([{"code": "missing", "field": "region"}]),
        "headrace-source": f"{contract.topics.raw}/1/77/1767225600000",
        "headrace-contract": f"{contract.name}:{contract.version}",
    }
    producer = Producer(connections.librdkafka)
    producer.produce(
        contract.topics.invalid, json.dumps({"page": NASTY}), headers=list(headers.items()), partition=1
    )
    assert producer.flush(20) == 0


def raise_alert(
    store_url: str, id_: str = "a1", alert: str = "low_conversion", region: str = "bishkek"
) -> None:
    with psycopg.connect(store_url) as connection:
        connection.execute(
            'INSERT INTO headrace.alerts (id, app, alert, metric, severity, state, resolution, "grouping",'
            ' dimensions, window_start, window_end, windows, "values", message, runbook, seq, opened_at,'
            " updated_at) VALUES (%s, 'turanmart', %s, 'conversion_1m', 'critical', 'open',"
            " '', 'region', jsonb_build_object('region', %s::text), now(), now(), 3, '{}',"
            " 'conversion under one percent for 3 windows', '/runbooks/incident-alerts', 1, now(), now())",
            (id_, alert, region),
        )
        announce(connection, "turanmart.dashboard_clickstream")


def test_the_page_tells_in_one_look_how_things_are(tab: Tab, shop: Shop, screenshots: Path) -> None:
    tab.wait("() => !document.querySelector('#verdict').innerText.includes('Loading')")
    words = dict(zip(("business", "pipeline", "numbers"), tab.texts("#verdict .word"), strict=True))
    assert words["business"] == "Trouble" and words["numbers"] == "Fresh"
    assert "low_conversion in bishkek" in tab.text('[data-verdict="business"]')
    assert re.search(r"Conversion is final to \d\d:\d\d", tab.text('[data-verdict="numbers"]'))
    assert tab.page.get_attribute('[data-verdict="business"] .runbook', "href") == "runbooks/incident-alerts"
    tab.page.get_by_role("heading", name="Sessions: visits").wait_for()
    titles = tab.texts("#business-panels h3")
    panels = [panel.panel.title for panel in shop.seed.loaded.panels()]
    assert titles == [*panels, "Alerts", "Sessions: visits"]
    tab.keep(screenshots, "light")


def test_nothing_goes_wrong_in_the_page_and_nobody_else_is_asked(tab: Tab, shop: Shop) -> None:
    assert tab.errors == [] and tab.console == []
    assert all(url.startswith(shop.address) for url in tab.asked)
    assert tab.page.locator('[data-view="error"]').count() == 0
    policy = tab.page.request.get(shop.address).headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_what_a_record_says_is_text_and_never_markup(tab: Tab) -> None:
    sample = tab.page.locator(".sample pre")
    assert NASTY in sample.inner_text()
    assert sample.locator("b, script").count() == 0
    assert tab.page.evaluate("typeof stolen") == "undefined"


def test_the_looks_of_the_states_differ_in_shape(tab: Tab, shop: Shop) -> None:
    shop.commit()  # the watermark is that of now, however long the page took: the window is published
    shop.commit(timedelta(seconds=85))
    tab.page.wait_for_selector(f"{CHART} .corrected")
    looks = tab.page.evaluate(
        """() => Object.fromEntries(['open', 'preliminary', 'corrected', 'final'].map((state) => {
             const column = document.querySelector(`#legend .col.${state}`);
             const look = getComputedStyle(column);
             const diamond = Boolean(column.parentNode.querySelector('.diamond'));
             return [state, [look.fill, look.strokeDasharray, diamond]];
           }))"""
    )
    assert len({json.dumps(look) for look in looks.values()}) == 4
    assert looks["open"][1] != "none" and looks["corrected"][2] and not looks["final"][2]


def test_a_commit_is_in_the_page_within_a_second(tab: Tab, shop: Shop) -> None:
    waits = []
    for _ in range(5):
        tab.page.evaluate(
            """(selector) => {
                 const chart = document.querySelector(selector);
                 const before = chart.getAttribute('aria-valuetext');
                 window.changed = new Promise((done) => {
                   new MutationObserver(() => {
                     if (chart.getAttribute('aria-valuetext') !== before) done(Date.now());
                   }).observe(chart, { attributes: true });
                 });
               }""",
            CHART,
        )
        committed = shop.commit()
        waits.append(tab.page.evaluate("() => window.changed") / 1000 - committed)
    print(f"commit to page: {', '.join(f'{1000 * wait:.0f} ms' for wait in waits)}")
    assert max(waits) < 1


@pytest.mark.parametrize("most", [live_feeds.MOST, 0], ids=["sent", "skipped"])
def test_a_correction_is_seen_when_it_happens(
    tab: Tab, shop: Shop, screenshots: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Also where its row is too many: the page then fetches what it was not sent."""
    monkeypatch.setattr(live_feeds, "MOST", most)
    shop.commit(timedelta(seconds=85), events=400)
    line = '.tile[data-group="tashkent"] .correction'
    tab.wait("(line) => document.querySelector(line).innerText.includes('→')", line)
    said = re.fullmatch(r"\d\d:\d\d: (\S+) % → (\S+) %, revision (\d+)", tab.text(line))
    assert said and said[1] != said[2] and int(said[3]) >= 2
    assert tab.page.locator(f"{CHART} .halo").count() >= 1
    assert tab.page.locator(f"{CHART} .diamond").count() >= 1
    tab.keep(screenshots, "correction")


def test_an_alert_is_in_the_page_when_it_opens(tab: Tab, shop: Shop) -> None:
    assert "astana" not in tab.text("#alerts")
    began = time.monotonic()
    raise_alert(shop.connections.store_url, "a2", "slow_checkout", "astana")
    tab.wait("() => document.querySelector('#alerts').innerText.includes('slow_checkout')")
    assert time.monotonic() - began < 5, "that was the poll of every 20 seconds, not the push"
    assert "astana" in tab.text("#alerts")
    tab.wait("() => document.querySelector('[data-verdict=business]').innerText.includes('1 other alert')")


def test_a_leak_and_an_absent_engine_are_the_first_thing_one_reads(tab: Tab, shop: Shop) -> None:
    query = "turanmart.dashboard_payments"

    def lose(records: int) -> None:
        with psycopg.connect(shop.connections.store_url) as connection:
            connection.execute(
                "UPDATE headrace.ledger SET accepted = accepted - %s WHERE query = %s AND batch_id = 0"
                " AND partition = 0",
                (records, query),
            )
            announce(connection, query)

    def says(text: str) -> None:
        verdict = "(text) => document.querySelector('[data-verdict=pipeline]').innerText.includes(text)"
        tab.wait(verdict, text)

    says("Down")
    lose(1)
    says("dashboard_payments: 1 record without a fate")
    href = tab.page.get_attribute('[data-verdict="pipeline"] .runbook', "href")
    assert href == "runbooks/unaccounted-records"
    lose(-1)
    says("Down")
    shop.seed.report()
    tab.wait("() => !document.querySelector('[data-verdict=pipeline]').innerText.includes('Down')")


def panel_of(tab: Tab, title: str) -> Any:
    return tab.page.locator("article", has=tab.page.get_by_role("heading", name=title, exact=True))


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


def test_a_dropped_connection_recovers_without_a_gap(tab: Tab, shop: Shop, screenshots: Path) -> None:
    before = tab.page.get_attribute(CHART, "aria-valuetext")
    shop.stop()
    tab.page.wait_for_selector('#connection[data-state="lost"]')
    tab.wait("() => document.querySelector('#verdict').innerText.includes('Unknown')")
    assert re.search(r"Disconnected since \d\d:\d\d:\d\d", tab.text("#banner"))
    tab.keep(screenshots, "disconnected")
    shop.commit(events=55)
    shop.start()
    tab.wait_until_live()
    tab.wait(
        "([chart, before]) => document.querySelector(chart).getAttribute('aria-valuetext') !== before",
        [CHART, before],
    )
    assert not tab.page.is_visible("#banner") and tab.errors == []
    tab.wait("() => !document.querySelector('#verdict').innerText.includes('Unknown')")


def test_a_phone_needs_no_sideways_scrolling(browser: Browser, shop: Shop, screenshots: Path) -> None:
    for scheme in ("light", "dark"):
        with opened(browser, shop.address, viewport=PHONE, scheme=scheme) as tab:
            tab.wait_until_drawn()
            assert tab.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
            tab.keep(screenshots, f"phone-{scheme}")


FOCUSED = "() => document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"


def test_the_keyboard_reaches_everything_important(tab: Tab) -> None:
    reached = []
    for _ in range(60):
        tab.page.keyboard.press("Tab")
        reached.append(tab.page.evaluate(FOCUSED))
    for wanted in ("Skip to the verdict", "Business", "Pipeline", "Trouble", "What to do"):
        assert wanted in reached
    assert any("theme" in name for name in reached)
    assert "Conversion, tashkent: windows" in reached and "Table: Conversion" in reached
    assert any(name.endswith("clickstream") for name in reached) and "Sample record" in reached


def test_a_chart_and_its_table_are_read_without_a_pointer(tab: Tab) -> None:
    chart = tab.page.locator(CHART).first
    chart.focus()
    newest = chart.get_attribute("aria-valuetext") or ""
    tab.page.keyboard.press("ArrowLeft")
    older = chart.get_attribute("aria-valuetext") or ""
    assert newest != older and re.match(r"tashkent, \d\d:\d\d–\d\d:\d\d: .+ %, \w+", older)
    panel = tab.page.locator("article", has=tab.page.get_by_role("heading", name="Conversion", exact=True))
    assert panel.locator(".note").inner_text() == older
    panel.get_by_role("button", name="Table: Conversion").press("Enter")
    heads = panel.locator("thead th").all_inner_texts()
    assert heads[:4] == ["Window", "Group", "conversion rate", "State"]
    assert panel.locator("tbody tr").count() == 50


def test_a_source_is_chosen_to_see_its_partitions(tab: Tab) -> None:
    button = tab.page.get_by_role("button", name="dashboard_payments")
    button.click()
    tab.wait("() => document.querySelector('#flow .detail').innerText === 'dashboard_payments'")
    assert button.get_attribute("aria-pressed") == "true"
    assert "= " in tab.text("#flow .sum") and "0 unaccounted" in tab.text("#flow .sum")


def test_the_dark_theme_is_kept(tab: Tab, screenshots: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = tab.page.evaluate(ground)
    tab.page.get_by_role("button", name="Use the dark theme").click()
    assert tab.page.evaluate(ground) != light
    tab.page.reload()
    tab.wait_until_drawn()
    assert tab.page.evaluate(ground) != light
    tab.keep(screenshots, "dark")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_enough_contrast(browser: Browser, shop: Shop, scheme: str) -> None:
    with opened(browser, shop.address, viewport=DESK, scheme=scheme) as tab:
        tab.wait_until_drawn()
        assert tab.page.evaluate(FAINT_TEXTS) == []


# The WCAG contrast of every text with its ground; a canvas understands every way to write a colour.
FAINT_TEXTS = """() => {
  const brush = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const pixel = (colour) => {
    brush.clearRect(0, 0, 1, 1);
    brush.fillStyle = colour;
    brush.fillRect(0, 0, 1, 1);
    return [...brush.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = pixel(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || !node.getClientRects().length || node.closest('noscript, .hidden')) continue;
    const look = getComputedStyle(node);
    const ink = pixel(node instanceof SVGElement ? look.fill : look.color);
    const [high, low] = [light(ink), light(ground(node))].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) faint.push(`${node.nodeName} ${node.textContent.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return faint;
}"""


def test_an_app_without_events_has_a_page_too(
    browser: Browser, services: Services, new_database: Callable[[], str], screenshots: Path
) -> None:
    url = new_database()
    loaded = renamed(load_app(TURANMART), "quiet_")
    connections = Connections(services.bootstrap, {}, {}, url)
    for contract in loaded.contracts.values():
        ensure_topics(contract, connections.librdkafka)
    Seed(url, loaded)
    with ExitStack() as stack:
        address = stack.enter_context(running_server(loaded, connections))
        wait_for_broker(address)
        tab = stack.enter_context(opened(browser, address, viewport=DESK))
        tab.wait_until_drawn()
        assert tab.texts("#business-panels [data-view=empty] .headline").count("No window yet") == 6
        assert "Nothing received yet" in tab.text("#flow")
        assert tab.texts("#verdict .word")[0] == "Nothing yet"
        assert tab.errors == [] and tab.console == []
        tab.keep(screenshots, "empty")


def test_a_server_with_tokens_asks_for_one(browser: Browser, shop: Shop) -> None:
    tokens = {sha256(b"sesame").hexdigest(): frozenset({"*"})}
    with (
        running_server(shop.seed.loaded, shop.connections, tokens) as address,
        opened(browser, address, viewport=DESK) as tab,
    ):
        tab.page.wait_for_selector("#sign-in:not([hidden])")
        for given in ("wrong", "sesame"):
            tab.page.fill("#token", given)
            tab.page.press("#token", "Enter")
        tab.wait_until_drawn()
        assert not tab.page.is_visible("#sign-in") and tab.errors == []


def test_one_towering_value_does_not_flatten_the_others(tab: Tab) -> None:
    tops = tab.page.evaluate(
        """async () => {
             const { scaleTop } = await import('/static/js/model.js');
             const few = [2, 40];
             const rare = [0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
             return [[2, 2, 3, 2, 2, 3, 2, 3, 2, 40], few, rare, []].map(scaleTop);
           }"""
    )
    assert tops == [9, 40, 5, 0]


def test_what_is_skipped_again_and_again_is_fetched_now_and_then(tab: Tab) -> None:
    began, runs = tab.page.evaluate(
        """async () => {
             const { spaced } = await import('/static/js/frame.js');
             const runs = [];
             const call = spaced(0.3, () => runs.push(Date.now()));
             const began = Date.now();
             while (Date.now() - began < 400) {
               call();
               await new Promise((done) => setTimeout(done, 10));
             }
             await new Promise((done) => setTimeout(done, 500));
             return [began, runs];
           }"""
    )
    assert len(runs) == 3 and runs[0] - began < 200, "at once, in between, and the last call"
    assert all(later - earlier >= 300 for earlier, later in pairwise(runs))


def test_what_the_page_remembers_has_an_end(tab: Tab) -> None:
    kept = tab.page.evaluate(
        """async () => {
             const { Series, Ring } = await import('/static/js/model.js');
             const panel = { grouping: ['region'], groups: null, values: ['n'],
                             window: { kind: 'tumbling', size_seconds: 60, hop_seconds: 60 } };
             const series = new Series(panel);
             const ring = new Ring(120);
             for (let n = 0; n < 20000; n += 1) {
               const start = new Date(60000 * Math.floor(n / 40)).toISOString();
               series.merge({ window_start: start, window_end: start, dimensions: { region: `r${n % 40}` },
                              state: 'final', revision: 1, values: { n }, updated_at: start }, n);
               ring.push(n);
             }
             const most = Math.max(...[...series.groups.values()].map((windows) => windows.size));
             return [series.groups.size, most, ring.items.length];
           }"""
    )
    assert kept == [24, 33, 120]
