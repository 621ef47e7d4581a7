"""The dashboard at first sight, in a real Chromium. Screenshots are kept for a look."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.connections import Connections
from headrace.local.services import Services
from headrace.log.topics import ensure_topics
from headrace.ops.load import load_app
from tests.serve.browser import DESK, Tab, needs_chromium, opened
from tests.serve.running import running_server
from tests.serve.seed import TURANMART, Seed
from tests.serve.shop import CHART, NASTY, Shop, renamed, wait_for_broker

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = needs_chromium


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
    shop.commit(shop.publish())
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
