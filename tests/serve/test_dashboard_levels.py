"""No panel stays green when it should not: each says what is wrong, and links to the runbook that fits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

from headrace.local.services import Services
from headrace.store.changes import announce
from headrace.store.reports import Report, save_report
from tests.serve.browser import DESK, PHONE, Tab, needs_chromium, opened
from tests.serve.shop import Shop, open_shop, panel_of, wait_for_broker

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = needs_chromium
QUERY = "turanmart.calm_payments"
CAUSE = "psycopg.errors.CheckViolation: the store refused a row of <b>payments</b>"


@pytest.fixture(scope="module")
def calm(services: Services, new_database: Callable[[], str]) -> Iterator[Shop]:
    """A shop in which nothing is wrong: records of now, few of them rejected, and engines that report."""
    with open_shop(services, new_database(), "calm_") as shop:
        shop.start()
        wait_for_broker(shop.address)
        yield shop


@pytest.fixture
def page(browser: Browser, calm: Shop) -> Iterator[Tab]:
    all_is_well(calm)
    with opened(browser, calm.address, viewport=DESK) as tab:
        tab.wait_until_drawn()
        for title in ("Flow", "Sources", "Partitions", "Where the time goes", "Late events", "Dead letters"):
            stands(tab, title, "ok")
        yield tab


def all_is_well(shop: Shop) -> None:
    """What was seeded before counts no more: the shares of the last minute are those of this batch."""
    with psycopg.connect(shop.connections.store_url) as connection:
        connection.execute("UPDATE headrace.batches SET finished_at = finished_at - interval '5 minutes'")
        connection.execute("DELETE FROM headrace.query_reports")
    shop.seed.batch(datetime.now(UTC), events=200)
    shop.seed.report()
    tell(shop)


def tell(shop: Shop, *, sql: str = "", **report: Any) -> None:
    """Change the store, or what the engine says about payments; the page hears of it."""
    with psycopg.connect(shop.connections.store_url) as connection:
        if sql:
            connection.execute(sql.encode())
        if report:
            now = datetime.now(UTC)
            save_report(connection, Report(QUERY, now, now, **report), "turanmart", [])
        announce(connection, QUERY)


def stands(tab: Tab, title: str, level: str, text: str = "as of") -> None:
    tab.wait(
        """([title, level, text]) => [...document.querySelectorAll('article')].some((one) =>
             one.querySelector('h3').innerText === title && one.dataset.level === level
             && one.querySelector('.freshness').innerText.includes(text))""",
        [title, level, text],
        15,
    )


def hour(ago: int) -> str:
    return str(int(time.time()) // 3600 - ago)


class Trouble(NamedTuple):
    """What is changed in the store or said by an engine, and what the page makes of it."""

    done: dict[str, Any]
    panel: str
    level: str
    text: str
    runbook: str


def sql(text: str) -> dict[str, str]:
    return {"sql": text.replace("MINE", f"query = '{QUERY}'")}


def moved(fate: str, records: int = 40) -> dict[str, str]:
    """So many records of the newest batch and each partition have another fate."""
    return sql(
        f"UPDATE headrace.ledger SET accepted = accepted - {records}, {fate} = {fate} + {records} WHERE MINE"
        " AND batch_id = (SELECT max(batch_id) FROM headrace.ledger WHERE MINE)"
    )


NEVER = sql("DELETE FROM headrace.query_reports WHERE MINE")
SILENT = sql("UPDATE headrace.query_reports SET reported_at = now() - interval '1 hour' WHERE MINE")
STALLED = sql("UPDATE headrace.watermarks SET watermark = now() - interval '2 hours' WHERE MINE")
MISSED = sql(
    "UPDATE headrace.metric_ledger SET late = 90 WHERE MINE"
    " AND batch_id = (SELECT max(batch_id) FROM headrace.metric_ledger WHERE MINE)"
)
AGED = "UPDATE headrace.query_reports SET last_failure_at = now() - interval '2 days'"
LARGE = {"removed": 0, "state_bytes": 300 * 2**20, "state_by_hour": {hour(25): 10, hour(24): 10}}
CHECKPOINT = {"durations_ms": {"walCommit": 5600, "addBatch": 9000}}
COMMIT = {"durations_ms": {"record": 5600}}
TIMES, LATE = "Where the time goes", "Late events"
TROUBLE = {
    "never-reported": Trouble(NEVER, "Sources", "bad", "no engine has reported yet", "restart-storms"),
    "silent": Trouble(SILENT, "Sources", "bad", "the last report was 1 h", "restart-storms"),
    "stopped": Trouble({"status": "stopped"}, "Sources", "bad", "has stopped", "restart-storms"),
    "restarting": Trouble({"status": "restarting"}, "Sources", "warn", "started again", "restart-storms"),
    "state": Trouble({"progress": LARGE}, "Sources", "warn", "the state grew by half", "growing-state"),
    "stalled": Trouble(STALLED, "Sources", "warn", "the watermark stands", "stalled-watermark"),
    "checkpoint": Trouble({"progress": CHECKPOINT}, TIMES, "warn", "slow checkpoint", "failing-checkpoints"),
    "commit": Trouble({"progress": COMMIT}, TIMES, "warn", "slow commit", "sink-backpressure"),
    "late": Trouble(moved("late"), LATE, "warn", "calm_payments: late 1", "late-surprises"),
    "missed": Trouble(MISSED, LATE, "warn", "payment_errors_15m: missed", "late-surprises"),
    "rejected": Trouble(moved("rejected"), "Dead letters", "warn", "rejected 2", "dead-letters"),
    "repeated": Trouble(moved("duplicate"), "Flow", "warn", "repeated 2", "duplicate-outputs"),
}


@pytest.mark.parametrize("kind", TROUBLE)
def test_what_is_wrong_is_said_with_the_runbook_that_fits(
    page: Tab, calm: Shop, screenshots: Path, kind: str
) -> None:
    done, title, level, text, runbook = TROUBLE[kind]
    tell(calm, **done)
    stands(page, title, level, text)
    link = panel_of(page, title).locator(".freshness .runbook")
    assert link.get_attribute("href") == f"runbooks/{runbook}"
    page.wait("(level) => document.querySelector(`[data-verdict=pipeline].${level}`)", level)
    page.keep(screenshots, f"level-{kind}")
    assert page.errors == [] and page.console == []


def test_a_few_late_records_are_no_alarm(page: Tab, calm: Shop) -> None:
    tell(calm, **moved("late", 4))
    page.wait("() => document.querySelector('#flow').innerText.includes('late')")
    stands(page, "Late events", "ok")
    stands(page, "Flow", "ok")


@pytest.mark.parametrize(("viewport", "scheme"), [(DESK, "light"), (PHONE, "dark")], ids=["desk", "phone"])
def test_why_a_query_failed_is_text_for_every_source(
    browser: Browser, calm: Shop, screenshots: Path, viewport: dict[str, int], scheme: str
) -> None:
    all_is_well(calm)
    with opened(browser, calm.address, viewport=viewport, scheme=scheme) as tab:
        tab.wait_until_drawn()
        region = tab.page.get_by_role("region", name="Last failures")
        region.wait_for(state="detached")
        now = datetime.now(UTC)
        tell(calm, status="stopped", failures=11, last_failure=CAUSE, last_failure_at=now)
        with psycopg.connect(calm.connections.store_url) as connection:
            other = "turanmart.calm_logins"
            again = Report(other, now, now, failures=1, last_failure="no broker", last_failure_at=now)
            save_report(connection, again, "turanmart", [])
            announce(connection, other)
        region.get_by_text("no broker").wait_for()
        items = region.get_by_role("listitem")
        assert items.count() == 2
        said = items.filter(has_text="calm_payments")
        assert CAUSE in said.inner_text() and "stopped" in said.inner_text()
        assert "11 failures in all" in said.inner_text() and said.locator("p b").count() == 0
        assert "runs again" in items.filter(has_text="calm_logins").inner_text()
        assert tab.page.locator("[title*='CheckViolation']").count() == 0, "text, not a tooltip"
        assert tab.page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
        assert tab.faint_texts() == []
        tab.keep(screenshots, f"failures-{viewport['width']}")
        tell(calm, sql=f"{AGED} WHERE query = '{other}'")
        tab.wait("() => document.querySelectorAll('.failures li').length === 1")
