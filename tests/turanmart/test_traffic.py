"""The shoppers: deterministic, valid by contract, and with exactly the faults that were asked for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from headrace.contracts import Contract, load_contracts
from headrace.errors import UsageError
from headrace.log.record import Record
from headrace.testing.traffic import TrafficModel, load_traffic
from tests.oracle.gate_oracle import Raw, examine, judge

APP = Path(__file__).parents[2] / "apps" / "turanmart"
START = datetime(2026, 7, 1, 9, tzinfo=UTC)
CLEAN = {"duplicates": 0.0, "late": 0.0, "malformed": 0.0, "future": 0.0, "start": START}


@pytest.fixture(scope="module")
def model() -> TrafficModel:
    return load_traffic(APP)


@pytest.fixture(scope="module")
def contracts() -> dict[str, Contract]:
    return load_contracts(APP / "contracts")


def made(model: TrafficModel, **options: Any) -> list[Record]:
    return list(model.records(model.options(**CLEAN | options)))


def parsed(records: list[Record]) -> Iterator[tuple[Record, dict[str, Any]]]:
    return ((record, json.loads(record.value or b"")) for record in records)


def event_second(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["event_time"]).timestamp()


def log_time(record: Record) -> datetime:
    return datetime.fromtimestamp(record.at, UTC)


def test_the_same_seed_makes_the_same_bytes(model: TrafficModel) -> None:
    options = model.options(seed=3, events=5000, start=START)
    assert list(model.records(options)) == list(model.records(options))
    assert list(model.records(options)) != list(
        model.records(model.options(seed=4, events=5000, start=START))
    )


def test_every_clean_record_satisfies_its_contract(
    model: TrafficModel, contracts: dict[str, Contract]
) -> None:
    records = made(model, events=10_000, late=0.2, spike=3.0, spike_at=1.0, spike_for=2.0, hot_key=0.1)
    assert {record.stream for record in records} == set(contracts)
    wrong = Counter(
        (record.stream, reasons)
        for record in records
        if (reasons := examine(contracts[record.stream], record.value, log_time(record))[1])
    )
    assert wrong == {}


def test_the_kafka_key_is_the_contracts_key(model: TrafficModel, contracts: dict[str, Contract]) -> None:
    for record, event in parsed(made(model, events=2000)):
        assert record.key == event[contracts[record.stream].key].encode()


def test_event_ids_are_unique_and_times_have_the_contracted_form(model: TrafficModel) -> None:
    events = [event for _, event in parsed(made(model, events=20_000))]
    assert len({event["event_id"] for event in events}) == len(events)
    for event in events:
        assert len(event["event_time"]) == len("2026-07-01T09:00:00.000Z")


def test_every_malformed_record_breaks_its_contract(
    model: TrafficModel, contracts: dict[str, Contract]
) -> None:
    records = made(model, events=5000, malformed=1.0)
    codes: Counter[str] = Counter()
    for record in records:
        reasons = examine(contracts[record.stream], record.value)[1]
        assert reasons, record
        codes.update(code for code, _ in reasons)
    wanted = {
        "empty",
        "not_utf8",
        "not_json",
        "not_object",
        "missing",
        "wrong_type",
        "not_allowed",
        "bad_format",
    }
    assert wanted <= set(codes)


def test_duplicates_repeat_a_recent_record(model: TrafficModel) -> None:
    seen: dict[bytes, Record] = {}
    again = []
    for record in made(model, events=20_000, duplicates=0.05):
        assert record.value is not None
        if record.value in seen:
            again.append((seen[record.value], record))
        else:
            seen[record.value] = record
    assert 0.04 < len(again) / 20_000 < 0.06
    assert all(second.at - first.at > 0 for first, second in again)
    same_key = sum(first.key == second.key for first, second in again) / len(again)
    assert 0.8 < same_key < 0.98
    assert all(second.key in (first.key, None) for first, second in again)


def test_late_journeys_are_mobile_and_come_in_a_burst(
    model: TrafficModel, contracts: dict[str, Contract]
) -> None:
    records = made(model, streams={"clickstream": 1.0}, events=20_000, late=0.3)
    delays = [(record.at - event_second(event), event) for record, event in parsed(records)]
    late = [(delay, event) for delay, event in delays if delay > 1.5]
    assert late and all(event["device_type"] != "web" for _, event in late)
    assert max(delay for delay, _ in late) <= 1801
    assert any(delay > 600 for delay, _ in late)
    raws = [Raw(0, i, r.key, r.value, log_time(r)) for i, r in enumerate(records)]
    fates = Counter(verdict.fate for verdict in judge(contracts["clickstream"], raws))
    assert fates["late"] > 100
    assert fates["accepted"] + fates["late"] == 20_000


def test_without_late_journeys_nothing_is_late(model: TrafficModel, contracts: dict[str, Contract]) -> None:
    records = made(model, streams={"clickstream": 1.0}, events=5000)
    raws = [Raw(0, i, r.key, r.value, log_time(r)) for i, r in enumerate(records)]
    assert {verdict.fate for verdict in judge(contracts["clickstream"], raws)} == {"accepted"}


def test_future_stamps_are_rejected_as_such(model: TrafficModel, contracts: dict[str, Contract]) -> None:
    records = made(model, events=10_000, future=0.1)
    found = [examine(contracts[r.stream], r.value, log_time(r))[1] for r in records]
    assert {reasons for reasons in found if reasons} == {frozenset({("future", "event_time")})}
    assert 0.08 < sum(bool(reasons) for reasons in found) / 10_000 < 0.12


def test_the_funnel_narrows(model: TrafficModel) -> None:
    records = made(model, streams={"clickstream": 1.0}, events=60_000, rate=500.0)
    count = Counter(event["event_type"] for _, event in parsed(records))
    funnel = ("product_impression", "product_click", "add_to_cart", "checkout_started", "purchase")
    steps = [count[step] for step in funnel]
    assert steps == sorted(steps, reverse=True) and steps[-1] > 100
    assert count["product_click"] / count["product_impression"] == pytest.approx(0.35, abs=0.05)
    assert count["purchase"] / count["checkout_started"] == pytest.approx(0.72, abs=0.1)


def test_a_session_goes_through_its_steps_in_order(model: TrafficModel) -> None:
    order = ["add_to_cart", "checkout_started", "purchase"]
    reached: dict[str, list[str]] = {}
    for _, event in parsed(made(model, streams={"clickstream": 1.0}, events=20_000)):
        if event["event_type"] in order:
            reached.setdefault(event["session_id"], []).append(event["event_type"])
    for steps in reached.values():
        assert [order.index(step) for step in steps] == sorted(order.index(step) for step in steps)


def test_a_payment_follows_a_checkout(model: TrafficModel) -> None:
    checkouts: dict[str, tuple[int, str]] = {}
    linked = 0
    for position, (record, event) in enumerate(parsed(made(model, events=60_000))):
        if event["event_type"] == "checkout_started":
            checkouts[event["trace_id"]] = (position, event["customer_id"])
        elif record.stream == "payments" and event["trace_id"] in checkouts:
            linked += 1
            assert event["customer_id"] == checkouts[event["trace_id"]][1]
    assert linked > 0.5 * len(checkouts)


def test_an_order_lives_forward_and_adds_up(model: TrafficModel) -> None:
    path = ["order_created", "order_paid", "order_packed", "order_shipped", "order_delivered"]
    lives: dict[str, list[str]] = {}
    for _, event in parsed(made(model, streams={"orders": 1.0}, events=10_000)):
        lives.setdefault(event["order_id"], []).append(event["event_type"])
        total = sum(round(item["unit_price"] * 100) * item["quantity"] for item in event["items"])
        assert round(event["total"] * 100) == total
    for life in lives.values():
        forward = [step for step in life if step != "order_cancelled"]
        assert forward == path[: len(forward)]
        assert "order_cancelled" not in life[:-1]
    assert any(life == path for life in lives.values())


def test_products_have_a_long_tail_and_regions_their_weights(model: TrafficModel) -> None:
    events = [event for _, event in parsed(made(model, streams={"clickstream": 1.0}, events=40_000))]
    products = Counter(event["product_id"] for event in events if "product_id" in event)
    top = sum(count for _, count in products.most_common(40))
    assert len(products) > 1500 and 0.3 < top / products.total() < 0.7
    regions = Counter(event["region"] for event in events)
    assert [name for name, _ in regions.most_common(2)] == ["tashkent", "almaty"]
    assert set(regions) == {"tashkent", "almaty", "bishkek", "samarkand", "astana"}


def test_some_logins_are_guessed(model: TrafficModel) -> None:
    failures = Counter(
        (event["customer_id"], event["ip_address"])
        for _, event in parsed(made(model, streams={"logins": 1.0}, events=20_000))
        if event["event_type"] == "login_failed"
    )
    assert sum(count >= 15 for count in failures.values()) >= 5
    assert sum(count == 1 for count in failures.values()) > 500


def test_some_cards_are_tried(model: TrafficModel) -> None:
    """Small payments that fail, one after the other, then a large one that does not."""
    attempts: dict[str, list[tuple[str, float]]] = {}
    for _, event in parsed(made(model, streams={"payments": 1.0}, events=20_000)):
        attempts.setdefault(event["order_id"], []).append((event["event_type"], event["amount"]))
    tried = [
        made
        for made in attempts.values()
        if len(made) >= 4
        and all(kind == "payment_failed" for kind, _ in made[:-1])
        and made[-1][0] == "payment_authorized"
    ]
    assert 15 <= len(tried) <= 80
    assert all(made[-1][1] >= 500 * max(amount for _, amount in made[:-1]) for made in tried)


def test_a_hot_key_has_its_share(model: TrafficModel) -> None:
    keys = Counter(r.key for r in made(model, streams={"clickstream": 1.0}, events=20_000, hot_key=0.3))
    assert 0.2 < keys.most_common(1)[0][1] / 20_000 < 0.35
    usual = Counter(r.key for r in made(model, streams={"clickstream": 1.0}, events=20_000))
    assert usual.most_common(1)[0][1] < 200


def test_a_spike_multiplies_the_rate_with_one_campaign(model: TrafficModel) -> None:
    records = made(model, rate=500.0, seconds=20.0, spike=4.0, spike_at=5.0, spike_for=5.0)
    by_second = Counter(int(record.at - START.timestamp()) for record in records)
    assert by_second[2] == pytest.approx(500, abs=5)
    assert by_second[7] == pytest.approx(2000, abs=10)
    assert by_second[15] == pytest.approx(500, abs=5)
    campaigns = Counter(
        event.get("campaign")
        for record, event in parsed(records)
        if record.stream == "clickstream" and 5 <= record.at - START.timestamp() < 10
    )
    assert campaigns["navruz-2026"] / campaigns.total() > 0.7


def test_length_is_by_count_by_time_or_without_end(model: TrafficModel) -> None:
    assert len(made(model, events=123)) == 123
    assert len(made(model, rate=100.0, seconds=2.0)) == pytest.approx(200, abs=1)
    assert len(made(model, rate=20_000.0, seconds=2.0)) == pytest.approx(40_000, abs=1)
    assert len(made(model, rate=100.0, seconds=2.0, events=50)) == 50
    assert made(model, events=0) == []
    assert len(list(islice(model.records(model.options(start=START)), 5000))) == 5000


def test_live_traffic_is_stamped_with_the_clock_on_the_wall(model: TrafficModel) -> None:
    before = datetime.now(UTC).timestamp()
    first = next(model.records(model.options(late=0.0, malformed=0.0, future=0.0, duplicates=0.0)))
    assert before <= first.at <= datetime.now(UTC).timestamp()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"late": 1.5}, "late is a share between 0 and 1, not 1.5"),
        ({"duplicates": float("nan")}, "duplicates is a share"),
        ({"rate": 0.0}, "rate must be above 0"),
        ({"events": -1}, "events cannot be -1"),
        ({"spike": 0.5}, "at least 1"),
        ({"streams": {"clicks": 1.0}}, "no stream 'clicks'"),
        ({"streams": {}}, "at least one stream"),
        ({"spike_campaign": "easter"}, "not a campaign"),
        ({"start": datetime(2026, 7, 1)}, "time zone"),
        ({"malformed": 0.6, "duplicates": 0.6}, "together are more than 1"),
        ({"speed": 1}, "no option 'speed'"),
    ],
)
def test_wrong_options_are_refused(model: TrafficModel, options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        model.options(**options)
