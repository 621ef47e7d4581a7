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
