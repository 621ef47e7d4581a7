"""Kill -9 at every step of a batch and of a delivery: no result is lost, none is there twice.

The tests share one shop, whose engine goes on from one to the next; each looks at all that was sent so far.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from headrace.crash import OUTBOX_STEPS, STEPS, arm
from headrace.local.services import Services
from headrace.settings import Settings
from tests.ops.crash_results import check
from tests.ops.crash_shop import DEADLINE, Shop, open_shop, wait_for

EVENTS = 4_000


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("crash")
    with Services(folder, Settings(folder=folder)) as services:
        shop = open_shop(folder, services)
        shop.send(EVENTS, seed=1)
        try:
            yield shop
            shop.stop()
        finally:
            for engine in shop.engines:
                engine.kill()
                engine.wait(10)


def test_killing_the_driver_at_every_step(shop: Shop) -> None:
    # What is in an outbox goes out before Spark has started: killed there, an engine costs a few seconds.
    for step in (*STEPS, *OUTBOX_STEPS):
        engine = shop.engine()
        shop.kill_at(step, engine.pid)
        assert engine.wait(DEADLINE) == -signal.SIGKILL
    shop.settle()
    check(shop)


def test_killing_python_workers(shop: Shop) -> None:
    for n, step in enumerate(("before_task_commit", "after_task_commit")):
        armed = arm(shop.crash, step, "self")
        shop.send(EVENTS // 4, seed=20 + n)
        shop.engine()
        wait_for(armed.exists, f"no worker came by {step}")
        shop.settle()
    check(shop)


def test_killing_the_broker(shop: Shop) -> None:
    steps = (
        *("before_publish", "before_task_commit", "after_task_commit", "after_store_commit"),
        "before_outbox_commit",
    )
    for n, step in enumerate(steps):
        shop.send(EVENTS // 4, seed=30 + n)
        shop.engine()
        shop.kill_at(step, shop.services.broker.pid)
        wait_for(lambda: not shop.services.broker.is_running(), "the broker lives")
        shop.services.broker.kill()
        shop.services.broker.start()
        shop.services.publish()
        shop.settle()
    check(shop)


def test_postgres_away_for_half_a_minute(shop: Shop) -> None:
    engine = shop.engine()
    shop.send(EVENTS // 4, seed=4)
    shop.settle()
    shop.services.postgres.stop()
    began = time.monotonic()
    shop.send(EVENTS // 4, seed=5)
    wait_for(lambda: time.monotonic() - began > 30, "time stands still")
    assert engine.poll() is None
    shop.services.postgres.start()
    shop.settle()
    check(shop)
