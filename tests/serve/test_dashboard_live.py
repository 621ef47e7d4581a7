"""The dashboard follows what is committed: at once, without a gap, and without end."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from headrace.serve import live_feeds
from headrace.store.changes import announce
from tests.serve.browser import Tab, needs_chromium
from tests.serve.shop import CHART, Shop, raise_alert

pytestmark = needs_chromium


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
    published = shop.publish()
    tab.page.reload()  # so the page knows what is corrected next
    tab.wait_until_drawn()
    monkeypatch.setattr(live_feeds, "MOST", most)
    shop.commit(published, events=400)
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


def test_alerts_of_one_name_are_one_entry(tab: Tab, shop: Shop) -> None:
    places = ["p1", "p2", "p3", "p4", "p5", "p6", "p7"]
    for place in places:
        raise_alert(shop.connections.store_url, f"many-{place}", "many_places", place)
    tab.wait("() => document.querySelector('#alerts').innerText.includes('many_places 7 open')")
    entry = tab.page.locator("#alerts li", has_text="many_places")
    assert entry.count() == 1 and "also p6, p5, p4, p3 and 2 more" in entry.inner_text()
    assert "many_places (7 open)" in tab.text('[data-verdict="business"]')


def test_a_changed_verdict_is_spoken_and_its_numbers_are_not(tab: Tab, shop: Shop) -> None:
    spoken = tab.page.locator("#spoken[role=status]")
    tab.wait("() => document.querySelector('#spoken').innerText.includes('Pipeline: Down')")
    before = spoken.inner_text()
    assert before.startswith("Business: Trouble. Pipeline: Down. Numbers: ")
    shop.stop()
    tab.wait("() => document.querySelector('#spoken').innerText.includes('Pipeline: Unknown')")
    shop.start()
    tab.wait("(before) => document.querySelector('#spoken').innerText === before", before, 30)


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


def test_a_young_metric_has_wide_columns(tab: Tab) -> None:
    lengths = tab.page.evaluate(
        """async () => {
             const { Series } = await import('/static/js/model.js');
             const panel = { grouping: [], groups: null, values: ['n'],
                             window: { kind: 'tumbling', size_seconds: 60, hop_seconds: 60 } };
             const series = new Series(panel);
             const found = [];
             for (let n = 0; n < 40; n += 1) {
               const start = new Date(60000 * n).toISOString();
               series.merge({ window_start: start, window_end: start, state: 'final', revision: 1,
                              values: { n }, updated_at: start }, n);
               const newest = series.newestStart(Infinity);
               if ([0, 11, 12, 20, 39].includes(n)) found.push(series.slots('', newest).length);
             }
             return found;
           }"""
    )
    assert lengths == [12, 12, 13, 21, 30]


def test_what_is_skipped_again_and_again_is_fetched_now_and_then(tab: Tab) -> None:
    began, runs = tab.page.evaluate(
        """async () => {
             const { spaced } = await import('/static/js/frame.js');
             const runs = [];
             const call = spaced(0.3, () => runs.push(performance.now()));
             const began = performance.now();
             while (performance.now() - began < 400) {
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
