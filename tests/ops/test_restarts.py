"""A query that dies: when it is started again, when no more, what is told about it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.connections import Connections
from headrace.errors import ServiceError
from headrace.local.scratch_store import scratch_store
from headrace.ops import run
from headrace.ops.load import load_app
from headrace.ops.reports import QueryReporter
from headrace.ops.restarts import FAILURES_ALLOWED, Restarts
from headrace.ops.run import Engine, Supervised
from headrace.settings import Settings
from headrace.store.connection import Store
from headrace.store.reports import Report, read_reports

TURANMART = Path(__file__).parents[2] / "apps" / "turanmart"
CAUSE = "the broker refuses the transaction"
PAUSES = [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0, 30.0]


def test_each_pause_is_twice_the_one_before_up_to_half_a_minute() -> None:
    restarts = Restarts()
    pauses = [restarts.fail(0.0, finished=7) for _ in range(FAILURES_ALLOWED)]
    assert pauses == PAUSES
    assert restarts.fail(0.0, finished=7) is None


def test_it_is_due_when_the_pause_is_over_and_only_while_it_does_not_run() -> None:
    restarts = Restarts()
    assert not restarts.is_due(1e9)
    restarts.fail(100.0, finished=-1)
    assert [restarts.is_due(at) for at in (100.0, 100.9, 101.0)] == [False, False, True]
    restarts.start()
    assert not restarts.is_due(1e9)


def test_a_finished_batch_makes_it_forget_and_an_old_one_does_not() -> None:
    restarts = Restarts()
    assert [restarts.fail(0.0, finished=4) for _ in range(5)] == PAUSES[:5]
    # Batch 5 was finished between: a healthy stretch, however long it was.
    assert [restarts.fail(0.0, finished=5) for _ in range(3)] == PAUSES[:3]
    # A query that has just been started knows of no batch; that is no progress.
    assert restarts.fail(0.0, finished=-1) == PAUSES[3]
    assert restarts.fail(0.0, finished=5) == PAUSES[4]


class Clock:
    """Time that goes on only when told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class Query:
    """A query that cannot start, or that runs and dies when told to; everything around it is real."""

    name, metric_names = "turanmart.payments", ("payment_errors_15m",)

    def __init__(self) -> None:
        self.query: Any = None
        self.refuses, self.starts = True, 0

    def start(self) -> None:
        self.starts += 1
        if self.refuses:
            raise ServiceError(CAUSE)
        nothing = SimpleNamespace(lastProgress=lambda: None)
        self.query = SimpleNamespace(isActive=True, exception=lambda: None, _jsq=nothing)

    def die(self, report: str) -> None:
        self.query.isActive, self.query.exception = False, lambda: report


class Stage:
    def __init__(self, store_url: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.clock, self.query, self.store = Clock(), Query(), Store(store_url)
        self.store.prepare()
        self.store.transact(lambda c: c.execute("DELETE FROM headrace.query_reports"))
        connections = Connections("127.0.0.1:1", {}, {}, store_url)
        self.engine = Engine(load_app(TURANMART), Settings(folder=folder), connections, ["payments"])
        reporter = QueryReporter(self.store, "turanmart", cast(Any, self.query))
        self.supervised = Supervised(cast(Any, self.query), reporter)
        monkeypatch.setattr(run, "time", self.clock)

    def look(self, seconds: float = 0.0) -> None:
        self.clock.now += seconds
        self.engine._look_after(self.supervised)

    def report(self) -> Report:
        return self.store.transact(lambda c: read_reports(c, [Query.name]))[Query.name]


@pytest.fixture(scope="module")
def store_url() -> Iterator[str]:
    with scratch_store() as url:
        yield url


@pytest.fixture
def stage(store_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    return Stage(store_url, monkeypatch, tmp_path)


def test_a_query_that_never_comes_back_ends_the_run_with_its_cause(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        stage.look()  # it is not there: the first failure
        for pause in PAUSES[:-1]:
            starts = stage.query.starts
            stage.look(pause - 0.01)
            assert stage.query.starts == starts
            stage.look(0.01)
            assert stage.query.starts == starts + 1
            shown = stage.report()
            assert (shown.status, shown.last_failure) == ("restarting", CAUSE)
        with pytest.raises(ServiceError) as told:
            stage.look(PAUSES[-1])
    times = f"failed {FAILURES_ALLOWED + 1} times without progress"
    assert told.value.what == f"query turanmart.payments {times}; the last time: {CAUSE}"
    assert "nothing is lost" in told.value.hint
    assert stage.report().failures == FAILURES_ALLOWED + 1
    assert f"failed ({CAUSE}); starting it again in 30 s" in caplog.text


def test_one_that_comes_back_runs_on_and_its_cause_stays_to_be_seen(stage: Stage) -> None:
    stage.query.refuses = False
    stage.look()
    stage.look(1.0)
    assert (stage.supervised.status, stage.query.starts) == ("running", 1)
    stage.query.die("[X] An error\norg.apache.spark.SparkException: a worker exited\n\tat Thread")
    stage.look()
    assert stage.supervised.status == stage.report().status == "restarting"
    assert stage.report().last_failure == "org.apache.spark.SparkException: a worker exited"
    stage.look(2.0)  # the second failure without a batch between: twice the pause
    shown = stage.report()
    assert (shown.status, shown.restarts) == ("running", 2)
    assert shown.last_failure == "org.apache.spark.SparkException: a worker exited"
