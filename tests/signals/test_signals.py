"""What signals promise beside their numbers: once, bounded, and errors that say what to do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace import App, Signals, count, sum_of, times_last, top
from headrace.declared import Declared
from headrace.errors import AppError
from headrace.gate.ledger import Batch
from headrace.local.services import Services
from headrace.store.ledger import Ledger
from tests.oracle.metrics_oracle import Event
from tests.signals.stream import DerivedStream

SECOND = 1_000_000
START = 1_772_355_600 * SECOND
TOPIC = "once.v1"


def signals(**changed: Any) -> Signals:
    given: dict[str, Any] = {
        "of": "sales",
        "key": "customer",
        "memory": "1 minute",
        "features": {"n": count(), "amount": sum_of("price"), "times": times_last("price")},
        "score": "n / 3",
        "decision": {"block": 0.6},
        "topic": TOPIC,
    }
    return App("signals").signals("velocity", **(given | changed))


def sale(n: int, seconds: float, partition: int = 0, log: float | None = None, **fields: Any) -> Event:
    at = START + int(seconds * SECOND)
    logged = at if log is None else START + int(log * SECOND)
    given = {"customer": "c1", "kind": "sale", "price": Decimal(10)}
    return Event(partition, n, f"e{partition}-{n}", at, logged, given | fields)


@pytest.fixture
def stream(spark: SparkSession, services: Services) -> Callable[..., DerivedStream]:
    return lambda *declared, app="": DerivedStream(spark, services.store_url, Declared(signals=declared), app)


def test_a_batch_that_is_recorded_twice_scores_once(stream: Callable[..., DerivedStream]) -> None:
    mine = stream(signals())
    ledger = Ledger(mine.store, mine.app, timedelta(days=1), mine.accounts)

    def twice(batch: Batch, parts: Mapping[str, Any]) -> None:
        ledger.record(batch, parts)
        ledger.record(batch, parts)

    mine.keep = twice  # type: ignore[method-assign]
    mine.feed([sale(n, n) for n in range(5)])
    assert [row["decision"] for row in mine.table("velocity")] == ["allow", "allow", *["block"] * 3]
    assert [row["suspicious"] for row in mine.table("velocity__activity")] == [3]
    assert len(mine.outbox(TOPIC)) == 3
    assert len(mine.table("velocity__memory")) == 5


def test_an_event_id_again_after_the_gate_forgot_it_is_the_same_signal(
    stream: Callable[..., DerivedStream],
) -> None:
    mine = stream(signals(score="1.0"))
    mine.feed([sale(0, 0)])
    again = sale(1, 5)
    mine.feed([Event(again.partition, 1, "e0-0", again.event_time, again.log_time, again.fields)])
    assert len(mine.table("velocity")) == len(mine.outbox(TOPIC)) == 1
    assert [row["suspicious"] for row in mine.table("velocity__activity")] == [1]


def test_what_arrived_later_elsewhere_is_not_looked_at(stream: Callable[..., DerivedStream]) -> None:
    mine = stream(signals())
    mine.feed([sale(0, 10, partition=0, log=10)])
    mine.feed([sale(0, 11, partition=1, log=5), sale(1, 12, partition=1, log=12)])
    assert [row["n"] for row in sorted(mine.table("velocity"), key=lambda r: r["id"])] == [0, 0, 2]


def test_the_memory_goes_with_the_watermark(stream: Callable[..., DerivedStream]) -> None:
    mine = stream(signals())
    # Lateness is ten minutes: what may still be looked back at are eleven.
    for n in range(30):
        mine.feed([sale(n, n * 60)])
    assert len(mine.table("velocity__memory")) == 11
    mine.silence((5 + 60) * 60 * SECOND)
    assert mine.table("velocity__memory") == []
    assert len(mine.table("velocity")) == 30
    mine.feed([sale(30, 1741)])
    woken = next(row for row in mine.table("velocity") if row["offset"] == 30)
    assert (woken["complete"], woken["n"]) == (False, 0)
    late = mine.query("SELECT sum(taken), sum(late) FROM headrace.flow_ledger WHERE query = %(app)s")
    assert late == [(31, 1)]


def test_a_formula_that_fails_on_one_event_leaves_the_others_alone(
    stream: Callable[..., DerivedStream],
) -> None:
    mine = stream(signals(score="ln(n)"))
    mine.feed([sale(n, n) for n in range(4)])
    scores = {row["n"]: row["score"] for row in mine.table("velocity")}
    assert scores[0] is None
    assert scores[1] == 0.0
    assert scores[3] == pytest.approx(1.0986122886681098)


def test_a_record_says_what_it_was_made_of(stream: Callable[..., DerivedStream]) -> None:
    mine = stream(signals(publish="all", activity_by="region"))
    mine.feed([sale(0, 0, region="almaty"), sale(1, 1, region="almaty", price=Decimal("25.50"))])
    key, value = mine.outbox(TOPIC)[1]
    record = json.loads(value)
    assert key == "c1"
    assert record == {
        "id": "velocity:e0-1",
        "signals": "velocity",
        "event_id": "e0-1",
        "source": {"stream": "sales", "partition": 0, "offset": 1},
        "event_time": "2026-03-01T09:00:01Z",
        "customer": "c1",
        "region": "almaty",
        "features": {"n": 1, "amount": "10.00", "times": 2.55},
        "complete": True,
        "score": pytest.approx(1 / 3),
        "decision": "allow",
        "version": record["version"],
    }


def test_the_shadow_is_compared(stream: Callable[..., DerivedStream], tmp_path: Path) -> None:
    mine = stream(signals(shadow="n / 2", score="n / 3"))
    mine.feed([sale(n, n) for n in range(4)])
    pairs = {
        (r["decision"], r["shadow_decision"]): (r["events"], r["agree"])
        for r in mine.table("velocity__comparison")
    }
    assert pairs == {("allow", "allow"): (2, True), ("block", "block"): (2, True)}
    found = mine.store.transact(lambda c: mine.folds["signals.velocity"].export(c, tmp_path))
    assert found == {"accepted": 4, "taken": 4, "incomplete": 0, "decisions": {"allow": 2, "block": 2}}
    assert len((tmp_path / "velocity.csv").read_text().splitlines()) == 5
    assert len((tmp_path / "velocity.comparison.csv").read_text().splitlines()) == 3


def test_a_new_score_needs_no_new_table_and_a_new_feature_does(stream: Callable[..., DerivedStream]) -> None:
    mine = stream(signals())
    mine.feed([sale(0, 0)])
    stream(signals(score="n / 4", decision={"review": 0.1}), app=mine.app)
    with pytest.raises(AppError, match="memory changed"):
        stream(signals(memory="2 minutes"), app=mine.app)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"features": {"n": top("kind")}}, "no feature"),
        ({"features": {"score": count()}}, "two columns 'score'"),
        ({"features": {}}, "no features"),
        ({"decision": {"allow": 0.5}}, "no name for a decision"),
        ({"decision": {"block": 0.5, "review": 0.5}}, "same threshold"),
        ({"memory": "soon"}, "not a duration"),
        ({"topic": "a b"}, "no name for a topic"),
        ({"publish": "some"}, "no publish"),
    ],
)
def test_a_wrong_declaration_says_so(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(AppError, match=problem) as error:
        signals(**changed)
    assert error.value.where.startswith(__file__)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"key": "custmer"}, "no field 'custmer'"),
        ({"features": {"n": sum_of("region")}}, "needs numbers"),
        ({"features": {"n": count("price + 1")}}, "not a condition"),
        ({"score": "m / 3"}, "no column 'm'"),
        ({"score": "n > 3"}, "score"),
        ({"score": "no_such_function(n)"}, "no_such_function"),
    ],
)
def test_what_does_not_fit_the_contract_says_so(
    stream: Callable[..., DerivedStream], changed: dict[str, Any], problem: str
) -> None:
    with pytest.raises(AppError, match=problem) as error:
        stream(signals(**changed))
    assert error.value.where.startswith(__file__)
