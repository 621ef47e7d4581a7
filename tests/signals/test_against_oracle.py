"""Features, scores and decisions on random streams, in batches of any size, against an oracle."""

from __future__ import annotations

import json
import random
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace import App, count, distinct, mean_of, rule, seconds_since_last, sum_of, times_last
from headrace.declared import Declared
from headrace.local.services import Services
from tests.oracle.metrics_oracle import Event
from tests.oracle.signals_oracle import FeatureSpec, Scored, SignalSpec, scored
from tests.signals.stream import DerivedStream

SECOND = 1_000_000
START = 1_772_355_600 * SECOND  # 2026-03-01 09:00
TOPIC = "signals_tests.v1"
FRAUD = App("oracle").signals(
    "fraud",
    of="sales",
    key="customer",
    where="kind = 'sale'",
    memory="2 minutes",
    features={
        "price_now": "price",
        "sales_2m": count(),
        "dear_2m": count("price > 300"),
        "amount_2m": sum_of("price"),
        "seconds_2m": sum_of("seconds"),
        "mean_2m": mean_of("price", where="region = 'almaty'"),
        "regions_2m": distinct("region"),
        "times_last_price": times_last("price"),
        "seconds_since": seconds_since_last(),
    },
    score=rule("least(1.0, sales_2m / 8 + coalesce(times_last_price, 0) / 40)", version="7"),
    decision={"block": 0.6, "review": 0.3},
    shadow="regions_2m / dear_2m",
    topic=TOPIC,
)


def _price(fields: Any) -> Any:
    return fields["price"]


def _score(features: Any) -> float:
    return min(1.0, features["sales_2m"] / 8 + (features["times_last_price"] or 0) / 40)


SPEC = SignalSpec(
    key="customer",
    memory=120 * SECOND,
    where=lambda f: f["kind"] == "sale",
    features={
        "price_now": FeatureSpec("own", _price),
        "sales_2m": FeatureSpec("count"),
        "dear_2m": FeatureSpec("count", where=lambda f: f["price"] is not None and f["price"] > 300),
        "amount_2m": FeatureSpec("sum", _price),
        "seconds_2m": FeatureSpec("sum", lambda f: f["seconds"]),
        "mean_2m": FeatureSpec("mean", _price, lambda f: f["region"] == "almaty"),
        "regions_2m": FeatureSpec("distinct", lambda f: f["region"]),
        "times_last_price": FeatureSpec("times_last", _price),
        "seconds_since": FeatureSpec("seconds_since_last"),
    },
    score=_score,
    decisions={"block": 0.6, "review": 0.3},
)


def stream_of(seed: int, events: int, keyed: bool) -> list[Event]:
    """In order of arrival. A key stays in its partition, or is seen in all three; times jump back."""
    r = random.Random(seed)
    offsets: Counter[int] = Counter()
    found = []
    for n in range(events):
        now = START + n * 3 * SECOND
        customer = r.choice(["c1", "c2", "c3", "c4", None])
        partition = sum(map(ord, customer or "")) % 3 if keyed else r.randrange(3)
        back = r.choice([0, 0, 0, 0, 1, 5, 60, 119, 120, 121, 400]) * SECOND
        fields = {
            "customer": customer,
            "kind": r.choice(["sale", "sale", "sale", "visit", None]),
            "region": r.choice(["tashkent", "almaty", None]),
            "price": r.choice([None, Decimal(0), Decimal(r.randrange(1, 99999)) / 100]),
            "seconds": r.choice([None, r.randrange(1000) / 8]),
        }
        found.append(Event(partition, offsets[partition], f"e{n:04}", now - back, now, fields))
        offsets[partition] += 1
    return found


def batches_of(events: list[Event], seed: int, size: int) -> list[list[Event]]:
    """Neighbours; inside a batch the order is anybody's."""
    r = random.Random(seed)
    batches = [events[n : n + size] for n in range(0, len(events), size)]
    for batch in batches:
        r.shuffle(batch)
    return batches


@pytest.mark.parametrize(("seed", "size"), [(1, 1), (1, 7), (1, 1000), (2, 7), (3, 40), (4, 1000)])
def test_signals_are_the_oracles_whatever_the_batches(
    spark: SparkSession, services: Services, seed: int, size: int
) -> None:
    events = stream_of(seed, 60 if size == 1 else 250, keyed=seed != 2)
    stream = DerivedStream(spark, services.store_url, Declared(signals=(FRAUD,)))
    for batch in batches_of(events, seed, size):
        stream.feed(batch)
    wanted = scored(SPEC, events)
    rows = {row["event_id"]: row for row in stream.table("fraud")}
    assert set(rows) == set(wanted)
    for event_id, row in rows.items():
        _same(row, wanted[event_id])
        assert row["id"] == f"fraud:{event_id}"
    decided = Counter(row.decision for row in wanted.values())
    assert min(decided["review"], decided["allow"]) > 0
    suspicious = Counter(
        e.fields["customer"]
        for e in events
        if e.event_id in wanted and wanted[e.event_id].decision != "allow"
    )
    assert {row["customer"]: row["suspicious"] for row in stream.table("fraud__activity")} == suspicious
    published = [json.loads(value) for _, value in stream.outbox(TOPIC)]
    assert len(published) == decided["block"] + decided["review"]
    assert {record["event_id"]: record["decision"] for record in published} == {
        event_id: row.decision for event_id, row in wanted.items() if row.decision != "allow"
    }


def _same(row: dict[str, Any], wanted: Scored) -> None:
    for name, value in wanted.features.items():
        if isinstance(value, Fraction):
            assert Fraction(row[name]) == value, name
        elif isinstance(value, float):
            assert row[name] == pytest.approx(value, rel=1e-12), name
        else:
            assert row[name] == value, name
    assert row["score"] == pytest.approx(wanted.score, rel=1e-12)
    assert (row["decision"], row["version"], row["complete"]) == (wanted.decision, "7", True)
    dear, regions = wanted.features["dear_2m"], wanted.features["regions_2m"]
    assert row["shadow_score"] == (pytest.approx(regions / dear) if dear else None)
