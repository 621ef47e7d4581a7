"""What the dashboard shows while it has no answer, a wrong one, or a slow one; and that it recovers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.serve.browser import DESK, PHONE, Tab, needs_chromium, opened
from tests.serve.shop import Shop, panel_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = needs_chromium
SAID = "the store is being restored"
ASK_AGAIN = "() => document.dispatchEvent(new Event('visibilitychange'))"
# What a part of the API is for, and how it fails.
PANELS = {
    "panels": ("Metrics", 500),
    "metrics/conversion_1m/rows?*": ("Conversion", 503),
    "alerts?*": ("Alerts", 500),
    "sessions": ("Sessions", 503),
    "sessions/visits/summary": ("Sessions: visits", 500),
    "enrichments": ("Enrichment", 503),
    "dead-letters/histogram?*": ("Dead letters", 500),
    "late-events/delays": ("Late events", 503),
    "metrics": ("Freshness of every metric", 500),
}


def refusing(status: int) -> Callable[[Route], None]:
    body = json.dumps({"title": "Not now", "status": status, "detail": SAID})
    return lambda route: route.fulfill(status=status, content_type="application/problem+json", body=body)


def view_is(tab: Tab, title: str, view: str, seconds: float = 15) -> None:
    tab.wait(
        """([title, view]) => [...document.querySelectorAll('article')]
             .some((one) => one.querySelector('h3').innerText === title && one.dataset.view === view)""",
        [title, view],
        seconds,
    )


def level_is(tab: Tab, title: str, level: str) -> None:
    tab.wait(
        """([title, level]) => [...document.querySelectorAll('article')]
             .some((one) => one.querySelector('h3').innerText === title && one.dataset.level === level)""",
        [title, level],
    )


@pytest.mark.parametrize("path", PANELS)
def test_a_part_without_an_answer_says_so_and_is_tried_again(
    browser: Browser, shop: Shop, screenshots: Path, path: str
) -> None:
    (title, status), address = PANELS[path], f"**/api/v1/{path}"
    with opened(
        browser, shop.address, viewport=DESK, before=lambda page: page.route(address, refusing(status))
    ) as tab:
        view_is(tab, title, "error")
        panel = panel_of(tab, title)
        assert "Could not load this" in panel.inner_text()
        assert "The store is being restored." in panel.inner_text()
        assert panel.get_attribute("data-level") == "warn"
        assert panel.locator(".freshness .runbook").get_attribute("href") == "runbooks/restart-storms"
        view_is(tab, "Flow", "ready")  # the others do not wait for it
        if path in ("panels", "enrichments"):
            tab.keep(screenshots, f"refused-{path}")
        # Refused once more: the page's own next attempt must not take the button away before the click.
        with tab.page.expect_response(address):
            panel.get_by_role("button", name="Try again").click()
        tab.page.unroute(address)
        panel.evaluate("(one) => one.querySelector('[data-key=again]')?.click()")
        tab.wait_until_drawn()
        tab.wait("() => !document.querySelector('[data-view=error]')")
        assert tab.errors == []


def test_an_unreachable_server_is_said_everywhere_and_found_again(
    browser: Browser, shop: Shop, screenshots: Path
) -> None:
    def cut(page: Page) -> None:
        page.route("**/api/**", lambda route: route.abort())
        page.route("**/live?*", lambda route: route.abort())

    with opened(browser, shop.address, viewport=PHONE, before=cut) as tab:
        tab.wait("() => !document.querySelector('[data-view=loading]:not([hidden])')")
        views = tab.page.evaluate(
            "() => [...document.querySelectorAll('article:not([hidden])')].map((one) => one.dataset.view)"
        )
        assert set(views) == {"disconnected"} and len(views) >= 9
        assert tab.texts("#verdict .word") == ["Unknown"] * 3
        assert "no connection" in tab.text("#banner") and "below" not in tab.text("#banner")
        assert tab.page.get_attribute("#connection", "data-state") == "lost"
        assert tab.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        assert tab.faint_texts() == []
        tab.keep(screenshots, "unreachable")
        tab.page.unroute("**/api/**")
        tab.page.unroute("**/live?*")
        tab.wait_until_drawn()
        tab.wait("() => !document.querySelector('[data-view=disconnected]')")
        assert not tab.page.is_visible("#banner") and tab.errors == []
        tab.wait("() => !document.querySelector('#verdict').innerText.includes('Unknown')")


def test_a_slow_server_is_said_to_be_slow(browser: Browser, shop: Shop, screenshots: Path) -> None:
    held: list[Route] = []
    silent = [""]  # whatever has this in its address has no answer

    def answer(route: Route) -> None:
        if silent and silent[0] in route.request.url:
            held.append(route)
        else:
            route.continue_()

    with opened(
        browser, shop.address, viewport=DESK, before=lambda page: page.route("**/api/**", answer)
    ) as tab:
        tab.page.locator("#flow").get_by_text("The server is slow to answer.").wait_for()
        assert tab.page.get_attribute("#flow", "aria-busy") == "true"
        assert tab.texts("#verdict .word") == ["Loading"] * 3
        tab.keep(screenshots, "slow")
        silent[0] = "/alerts"
        for route in held:
            route.continue_()
        tab.wait("() => document.querySelectorAll('[data-view=ready]').length > 9")
        view_is(tab, "Alerts", "error", 20)
        assert "did not answer in 10 s" in panel_of(tab, "Alerts").inner_text()
        silent.clear()
        panel_of(tab, "Alerts").get_by_role("button", name="Try again").click()
        view_is(tab, "Alerts", "ready")
        assert tab.page.get_attribute("#alerts", "aria-busy") is None and tab.errors == []


def test_what_was_shown_stays_when_it_cannot_be_asked_again(tab: Tab, screenshots: Path) -> None:
    """A green panel that is not refreshed any more would be a lie."""
    titles = ("Dead letters", "Late events", "Alerts", "Freshness of every metric", "Sessions: visits")
    for title in titles:
        view = "empty" if title.startswith("Sessions") else "ready"
        view_is(tab, title, view)
    before = panel_of(tab, "Dead letters").locator(".ranked").inner_text()
    tab.page.route("**/api/**", refusing(503))
    tab.page.evaluate(ASK_AGAIN)
    for title in titles[:2]:
        level_is(tab, title, "warn")
    for title in titles:
        tab.wait(
            """([title, said]) => [...document.querySelectorAll('article')].some((one) =>
                 one.querySelector('h3').innerText === title && one.innerText.includes(said))""",
            [title, f"not refreshed: {SAID}"],
        )
    assert panel_of(tab, "Dead letters").locator(".ranked").inner_text() == before
    href = panel_of(tab, "Late events").locator(".freshness .runbook").get_attribute("href")
    assert href == "runbooks/restart-storms"
    tab.wait(
        "() => document.querySelector('[data-verdict=pipeline]').innerText.includes('No news of health')"
    )
    assert tab.faint_texts() == []
    tab.keep(screenshots, "not-refreshed")
    tab.page.unroute("**/api/**")
    tab.page.evaluate(ASK_AGAIN)
    tab.wait("() => !document.querySelector('main').innerText.includes('not refreshed')")
    assert tab.errors == []


def test_a_refused_stream_leaves_the_numbers_and_comes_back(browser: Browser, shop: Shop) -> None:
    with opened(
        browser, shop.address, viewport=DESK, before=lambda page: page.route("**/live?*", refusing(503))
    ) as tab:
        tab.page.wait_for_selector('#connection[data-state="lost"]')
        assert "the server answered 503" in tab.text("#banner")
        for title in ("Conversion", "Flow", "Dead letters"):
            view_is(tab, title, "ready")
        tab.page.unroute("**/live?*")
        tab.wait_until_drawn()
        assert not tab.page.is_visible("#banner") and tab.errors == []


def test_an_answer_that_cannot_be_read_is_an_error_too(browser: Browser, shop: Shop) -> None:
    def garbled(route: Any) -> None:
        route.fulfill(status=200, content_type="application/json", body='{"items": [')

    with opened(
        browser,
        shop.address,
        viewport=DESK,
        before=lambda page: page.route("**/late-events/delays", garbled),
    ) as tab:
        view_is(tab, "Late events", "error")
        assert "The answer could not be read." in panel_of(tab, "Late events").inner_text()
        assert tab.errors == []
