"""The dashboard in a real Chromium, in a process of its own: when a commit is drawn, and what the page asks.

A row is known by its `updated_at`, which is the time of the commit that changed it; the store's notice of the
commit has the same. It counts as drawn after the first frame that follows its arrival.
"""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.live_crowd import MONOTONIC, Commits, Follower, arrivals
from tests.serve.browser import CHROMIUM, DESK, Tab, chromium

# Notes, in milliseconds since 1970, when the first row of each commit has been drawn.
NOTE_ROWS = """
    window.drawnRows = {};
    const parse = JSON.parse;
    JSON.parse = (text, ...more) => {
      const found = parse(text, ...more);
      const at = found?.metric && found?.updated_at;
      if (at && !(at in window.drawnRows)) {
        window.drawnRows[at] = null;
        requestAnimationFrame(() => setTimeout(() => { window.drawnRows[at] = Date.now(); }));
      }
      return found;
    };
"""


@dataclass
class Opened:
    """`arrivals` are seconds from a commit to the screen; `asked` are paths, each with its parameters."""

    arrivals: list[float] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def is_there() -> bool:
    return Path(CHROMIUM).exists()


def open_page(
    address: str, store_url: str, end: float
) -> tuple[multiprocessing.Process, multiprocessing.Queue[Opened]]:
    """Until `end`, a time of the monotonic clock."""
    results: multiprocessing.Queue[Opened] = multiprocessing.Queue()
    page = multiprocessing.Process(target=_run, args=(address, store_url, end, results), daemon=True)
    page.start()
    return page, results


def paths_of(asked: set[str]) -> list[str]:
    """What the page asked the API for, without the stream and its own files."""
    found = (urlsplit(url) for url in asked)
    return sorted(
        f"{url.path}?{url.query}" if url.query else url.path for url in found if "/api/v1/" in url.path
    )


def _run(address: str, store_url: str, end: float, results: Any) -> None:
    opened, commits = Opened(), Commits(store_url)
    epoch = time.time() - MONOTONIC()
    with chromium() as browser:
        page = browser.new_page(viewport=DESK)  # type: ignore[arg-type]
        page.add_init_script(NOTE_ROWS)
        tab = Tab(page)
        page.goto(address)
        tab.wait_until_live()
        follower = Follower(ready_at=MONOTONIC())
        page.wait_for_timeout(max(0.0, end - MONOTONIC()) * 1000)
        drawn: dict[str, float | None] = page.evaluate("() => window.drawnRows")
        follower.first = {at.encode(): ms / 1000 - epoch for at, ms in drawn.items() if ms is not None}
        opened.asked, opened.errors = paths_of(tab.asked), tab.errors
    commits.stop()
    opened.arrivals = arrivals([follower], commits.heard)
    results.put(opened)
