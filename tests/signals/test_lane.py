"""The real-time lane: what may run in it, and that it says what the normal lane says."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace import App, Signals, count, model, rule, seconds_since_last, table
from headrace.contracts import load_contract
from headrace.declared import Declared
from headrace.errors import AppError, UsageError
from headrace.flows.realtime_check import check_lane_plan
from headrace.flows.signals import resolve_signals
from headrace.local.services import Services
from headrace.ops.check import RAW
from headrace.ops.lane_reports import added
from headrace.ops.pipeline_lanes import lane_part
from headrace.ops.realtime_query import RealtimeQuery, lane_records, lane_session
from headrace.spark import with_slots
from headrace.store.dimensions import Dimensions
from tests.oracle.metrics_oracle import Event
from tests.oracle.signals_oracle import FeatureSpec, SignalSpec, scored
from tests.signals.stream import DerivedStream
from tests.views.stream import CONTRACT

SECOND = 1_000_000
START = 1_772_355_600 * SECOND
RISKS = (
    "customer,valid_from,risk,kind,visits,trusted\n"
    "c1,2026-03-01T09:00:30Z,0.90,new,3,false\n"
    "c1,2026-03-01T09:01:30Z,0.1,old,,true\n"
    "c2,,0.25,,12,\n"
)
ARTEFACT = {
    "kind": "logistic",
    "version": "3",
    "intercept": -0.5,
    "features": [
        {"name": "price_now", "weight": 0.8, "mean": 2.0, "scale": 1.5, "log": True},
        {"name": "risk", "weight": 1.7, "mean": 0.4, "scale": 0.2},
        {"name": "trusted", "weight": -0.7, "mean": 0.5, "scale": 1.0},
    ],
}


def signals(name: str = "fast", folder: Path | None = None, **changed: Any) -> Signals:
    app = App("lanes")
    app.file = (folder or Path()) / "app.py"
    given: dict[str, Any] = {
        "of": "sales",
        "key": "customer",
        "features": {"price_now": "price"},
        "score": rule("price_now / 500", version="9"),
        "decision": {"block": 0.8, "review": 0.4},
        "topic": f"{name}.v1",
        "lane": "realtime",
    }
    return app.signals(name, **(given | changed))


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"features": {"now": "price", "n": count()}}, "'fast', n: count looks at earlier events"),
        ({"features": {"s": seconds_since_last()}}, "s: seconds_since_last looks at earlier events"),
        ({"score": None, "model": model("m.onnx", version="1")}, "model m.onnx: .* runs no artefact of ONNX"),
        ({"shadow": model("m.joblib", version="1")}, "model m.joblib: .* of scikit-learn"),
        ({"topic": ""}, "writes to a topic"),
        ({"lane": "fast"}, "no lane 'fast'"),
    ],
)
def test_what_the_lane_cannot_run_is_named_with_what_to_do(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(AppError, match=problem) as error:
        signals(**changed)
    assert error.value.where.startswith(__file__)
    assert error.value.hint


def test_slots_for_tasks_that_never_end() -> None:
    assert with_slots("local[3]", 0, {"a": "b"}) == {"master": "local[3]", "extra": {"a": "b"}}
    placed = with_slots("local[3,2]", 4, {"a": "b"})
    assert placed["master"] == "local[7,2]"
    assert placed["extra"]["spark.default.parallelism"] == "3"
    assert with_slots("local", 4, {})["master"] == "local[5]"
    assert with_slots("spark://host:7077", 4, {})["master"] == "spark://host:7077"


def test_a_batch_without_signals_keeps_the_delays_of_the_last_one_with_some() -> None:
    told = {"batchId": 4, "timestamp": "", "numInputRows": 7, "observedMetrics": {}}
    first = added({}, told | {"observedMetrics": {"lane": {"signals": 3, "delays": [8, 90]}}})
    then = added(first, told | {"batchId": 5})
    assert (then["received"], then["signals"], then["batch_id"]) == (14, 3, 5)
    assert then["latency_ms"] == {"p50": 8, "p99": 90}


def test_a_report_says_between_which_offsets_signals_are_in_the_lane() -> None:
    def batch(first: dict[str, int] | None, end: dict[str, int]) -> dict[str, Any]:
        ends = {"startOffset": first and {"raw.v1": first}, "endOffset": {"raw.v1": end}}
        return {"batchId": 4, "timestamp": "now", "numInputRows": 7, "sources": [ends]}

    one, two = (f"{name} {name}.v1 decisions block=0.9" for name in ("one", "two"))
    assert lane_part(signals("one")) != one and lane_part(signals("one", decision={"block": 0.9})) == one
    first = added({}, batch(None, {"0": 5, "1": 2}), [one])
    assert (first["offsets"], first["begun"]) == ({"0": 5, "1": 2}, {one: {}})
    then = added(first, batch({"0": 5, "1": 2}, {"0": 9, "1": 4}), [one, two])
    assert (then["offsets"], then["begun"]) == ({"0": 9, "1": 4}, {one: {}, two: {"0": 5, "1": 2}})
    without = added(then, batch({"0": 9, "1": 4}, {"0": 9, "1": 8}), [two], changes=[7.5])
    assert (then["changes"], without["changes"]) == ([], [7.5])
    assert without["begun"] == {two: {"0": 5, "1": 2}}, "what has left the lane begins anew"


def test_the_mode_refuses_python_and_the_error_says_where(spark: SparkSession) -> None:
    session = lane_session(spark)
    session.udf.register("ask_somebody", lambda price: 1.0, "double")
    contract = load_contract(CONTRACT)
    mine = signals(features={"price_now": "price", "asked": "ask_somebody(price)"})
    with pytest.raises(
        AppError, match="'fast', asked: Spark's real-time mode refuses BatchEvalPython"
    ) as error:
        check_lane_plan(session, contract, resolve_signals(session, [mine], contract))
    assert "leave lane=" in error.value.hint
    with pytest.raises(AppError, match="log_of"):
        wrong = signals(score="log_of(price_now)")
        check_lane_plan(session, contract, resolve_signals(session, [wrong], contract))
    with pytest.raises(UsageError, match="at least 5"):
        RealtimeQuery(spark, "a", contract, [mine], None, checkpoints="", salt="", batch_seconds=1)  # type: ignore[arg-type]


def test_it_says_what_the_normal_lane_and_the_oracle_say(
    spark: SparkSession, services: Services, tmp_path: Path
) -> None:
    (tmp_path / "risks.csv").write_text(RISKS)
    (tmp_path / "m.json").write_text(json.dumps(ARTEFACT))
    risks = table(
        *("risks",),
        key="customer",
        file="risks.csv",
        types={"risk": "number", "visits": "integer", "trusted": "boolean"},
    )
    shared = {"price_now": "price", "risk": "risks.risk", "trusted": "risks.trusted"}
    ruled = signals(
        folder=tmp_path,
        where="kind = 'sale'",
        features={
            **shared,
            "tiny": "price / 10000000",
            "at": "event_time",
            "day": "CAST(event_time AS DATE)",
            "dear": "price > 300",
            "kind_of": "risks.kind",
            "visits": "risks.visits",
            "share": "seconds / nullif(items, 0)",
        },
        with_=risks,
        score=rule("ln(price_now) / 10 + coalesce(risk, 0) / CASE WHEN dear THEN 1 ELSE 2 END", version="7"),
        decision={"block": 0.8, "review": 0.55},
        shadow="share / (visits - 3)",
        activity_by="region",
        publish="all",
    )
    modelled = signals(
        "learnt",
        tmp_path,
        features=shared,
        with_=risks,
        score=None,
        model=model("m.json", version="3"),
        decision={"block": 0.6},
    )
    events = _events(200)
    normal = DerivedStream(spark, services.store_url, Declared(signals=(ruled, modelled)))
    normal.feed(events)
    lane = _through_the_lane(spark, [ruled, modelled], events)
    for one in (ruled, modelled):
        wanted = {record["id"]: {"key": key, **record} for key, record in _read(normal.outbox(one.topic))}
        found = {record["id"]: {"key": key, **record} for key, record in _read(lane[one.topic])}
        assert found.keys() == wanted.keys()
        for name, record in found.items():
            other = wanted[name]
            assert list(record) == list(other)
            for number in ("score", "shadow_score"):
                here, there = record.pop(number, None), other.pop(number, None)
                assert (here is None) == (there is None), name
                assert here is None or here == pytest.approx(there, rel=1e-12), name
            assert record == other
    spec = SignalSpec(
        *("customer", 1),
        {"price": FeatureSpec("own", lambda f: f["price"])},
        lambda features: None,
        {},
        lambda f: f["kind"] == "sale",
    )
    assert {record["event_id"] for _, record in _read(lane[ruled.topic])} == set(scored(spec, events))
    assert 0 < len(lane[modelled.topic]) < len(events)
    assert normal.table("fast__memory") == []


def test_a_formula_that_fails_is_no_score_and_stops_nobody(spark: SparkSession) -> None:
    mine = signals(
        features={"each": "price / items", "root": "sqrt(-price)"},
        score="each + coalesce(root, 0)",
        shadow="exp(each * 1000)",
        publish="all",
    )
    event = {"customer": "c", "price": Decimal("4.00")}
    events = [Event(0, n, f"e{n}", START, START, {**event, "items": n}) for n in range(3)]
    found = [record for _, record in _read(_through_the_lane(spark, [mine], events)["fast.v1"])]
    assert [(r["score"], r["decision"], r["shadow_score"], r["features"]["root"]) for r in found] == [
        (None, "allow", None, None)
    ] * 3
    assert found[0]["features"]["each"] is None
    assert Decimal(found[1]["features"]["each"]) == 4


def test_only_what_the_gate_would_not_reject(spark: SparkSession) -> None:
    mine = signals(score="1.0")
    good = Event(0, 0, "e0", START, START, {"customer": "c", "price": Decimal(1)})
    ahead = Event(0, 1, "e1", START + 3600 * SECOND, START, {"customer": "c"})
    nobody = Event(0, 2, "e2", START, START, {"price": Decimal(1)})
    again = Event(0, 3, "e0", START - 9 * 3600 * SECOND, START, {"customer": "c"})
    found = _through_the_lane(spark, [mine], [good, ahead, nobody, again], also=b'{"event_id": ')["fast.v1"]
    assert [record["source"]["offset"] for _, record in _read(found)] == [0, 3]
    assert {record["id"] for _, record in _read(found)} == {"fast:e0"}


def _events(number: int) -> list[Event]:
    r = random.Random(5)
    found = []
    for n in range(number):
        at = START + n * SECOND + r.choice([0, 0, 250_000, 1])
        fields = {
            "event_time": datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at),
            "customer": r.choice(["c1", "c2", "c3"]),
            "kind": r.choice(["sale", "sale", "visit", None]),
            "region": r.choice(["tashkent", None]),
            "price": r.choice([None, Decimal(0), Decimal(r.randrange(1, 99999)) / 100]),
            "seconds": r.choice([None, 0.0, r.randrange(1000) / 8]),
            "items": r.choice([None, 0, 1, 3]),
        }
        found.append(Event(0, n, f"e{n:03}", at, at, fields))
    return found


def _through_the_lane(
    spark: SparkSession, lane: list[Signals], events: list[Event], also: bytes = b"{}"
) -> dict[str, list[tuple[str, str]]]:
    """Keys and values by topic, in the order of the events; `also` is one more record."""
    session, contract = lane_session(spark), load_contract(CONTRACT)
    zero = datetime.fromtimestamp(0, UTC)
    values = [_json(event) for event in events]
    rows: list[tuple[Any, ...]] = [
        (0, e.offset, zero + timedelta(microseconds=e.log_time), None, value, None)
        for e, value in zip(events, values, strict=True)
    ]
    rows.append((0, len(rows), zero + timedelta(microseconds=START), None, also, None))
    raw = session.createDataFrame(rows, RAW).coalesce(1)
    found: dict[str, list[tuple[str, str]]] = {one.topic: [] for one in lane}
    for topic, key, value, delay in lane_records(raw, contract, lane, Dimensions(), "").collect():
        assert delay > 0
        found[topic].append((key, value))
    return found


def _json(event: Event) -> bytes:
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=event.event_time)
    fields = {n: float(v) if isinstance(v, Decimal) else v for n, v in event.fields.items() if v is not None}
    about = {"event_id": event.event_id, "event_time": moment.isoformat()}
    return json.dumps(fields | about).encode()


def _read(records: list[tuple[str, str]]) -> list[tuple[str, dict[str, Any]]]:
    return [(key, json.loads(value)) for key, value in records]
