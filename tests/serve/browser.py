"""A real Chromium that opens the dashboard, and notes everything that goes wrong in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
needs_chromium = pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="Chromium is not installed")
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
DESK, PHONE = {"width": 1440, "height": 1000}, {"width": 360, "height": 780}

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


@contextmanager
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """One open page. `errors` are of the page's own code, `console` of everything, `hosts` whom it asked."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.console: list[str] = []
        self.asked: set[str] = set()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda m: self.console.append(m.text) if m.type in ("error", "warning") else None)
        page.on("request", lambda request: self.asked.add(request.url))

    def wait(self, condition: str, argument: Any = None, seconds: float = 10) -> None:
        self.page.wait_for_function(condition, arg=argument, timeout=seconds * 1000)

    def wait_until_live(self) -> None:
        self.page.wait_for_selector('#connection[data-state="live"]', timeout=15_000)

    def wait_until_drawn(self) -> None:
        """No panel waits for its first answer."""
        self.wait_until_live()
        self.wait("() => !document.querySelector('[data-view=\"loading\"]')", seconds=20)

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()

    def faint_texts(self) -> list[str]:
        found: list[str] = self.page.evaluate(FAINT_TEXTS)
        return found

    def keep(self, folder: Path, name: str) -> None:
        self.page.screenshot(path=folder / f"{name}.png", full_page=True)


@contextmanager
def opened(
    browser: Browser,
    address: str,
    *,
    viewport: dict[str, int],
    scheme: str = "light",
    before: Callable[[Page], None] = lambda page: None,
) -> Iterator[Tab]:
    """`before` is done to the page before it goes anywhere."""
    context = browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    try:
        tab = Tab(context.new_page())
        before(tab.page)
        tab.page.goto(address)
        yield tab
    finally:
        context.close()
