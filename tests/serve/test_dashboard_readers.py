"""The dashboard for everybody: on a phone, with the keyboard, with a screen reader, in the dark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.serve.browser import DESK, PHONE, Tab, needs_chromium, opened
from tests.serve.shop import CHART, Shop

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = needs_chromium
# Texts that leave their panel, or end in three dots.
CUT_OFF = """() => [...document.querySelectorAll('main article *, #verdict *')]
  .filter((node) => node.getClientRects().length && !node.closest('.hidden, thead')
    && [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))
  .filter((node) => {
    const around = node.closest('article, .card').getBoundingClientRect();
    const box = node.getBoundingClientRect();
    const dotted = getComputedStyle(node).textOverflow === 'ellipsis' && node.scrollWidth > node.clientWidth;
    const dam = node.closest('.flow')?.querySelector('.dam')?.getBoundingClientRect();
    if (dam && box.left < dam.left && box.right > dam.left) return true;
    return dotted || box.right > around.right - 8 || box.left < around.left;
  })
  .map((node) => node.textContent.slice(0, 40))"""
FOCUSED = "() => document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"


def test_a_phone_needs_no_sideways_scrolling(browser: Browser, shop: Shop, screenshots: Path) -> None:
    for scheme in ("light", "dark"):
        with opened(browser, shop.address, viewport=PHONE, scheme=scheme) as tab:
            tab.wait_until_drawn()
            assert tab.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
            assert tab.page.evaluate(CUT_OFF) == []
            tab.keep(screenshots, f"phone-{scheme}")


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
        assert tab.faint_texts() == []
