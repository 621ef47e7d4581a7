"""The load run asks what the page asks: nothing of it is forgotten when a panel is added."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.open_page import paths_of
from benchmarks.page_requests import PAGE
from tests.serve.browser import CHROMIUM, DESK, chromium, opened
from tests.serve.conftest import Sample

needs_chromium = pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="Chromium is not installed")


@needs_chromium
def test_the_load_run_asks_what_the_page_asks(sample: Sample) -> None:
    with chromium() as browser, opened(browser, sample.address, viewport=DESK) as tab:
        tab.wait_until_drawn()
        tab.wait(
            "() => performance.getEntriesByType('resource').some((r) => r.name.includes('dead-letters?'))"
        )
        assert paths_of(tab.asked) == sorted(PAGE)
