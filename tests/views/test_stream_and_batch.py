"""The same events in any order of batches, and as one batch, come to the same rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headrace import Metric
from headrace.gate.clock import measure_extent, with_fates
from headrace.gate.ledger import Batch, Entry, Outcome
from headrace.local.services import Services
from tests.oracle.metrics_oracle import Event
from tests.views.stream import LATENESS, Stream
from tests.views.test_against_oracle import EVERYTHING, ROLLING, SECOND, START, batches_of

MINUTE = 60 * SECOND
Rows = dict[tuple[Any, ...], dict[str, Any]]


def events_of(seed: int, count: int, furthest_back: int) -> list[Event]:
    """Two partitions that are never silent for long, so that the watermark turns nobody away."""
    r = random.Random(seed)
    offsets: Counter[int] = Counter()
    events = []
    for n in range(count):
        now = START + n * 3 * SECOND
        fields = {
            "customer": f"c{r.randrange(25)}",
            "kind": r.choice(["sale", "visit", "(other)", None]),
            "region": r.choice(["tashkent", "almaty", None]),
            "price": r.choice([None, Decimal(r.randrange(1, 99999)) / 100]),
            "seconds": r.choice([None, r.randrange(1000) / 8]),
            "items": r.choice([None, 1, 2, 3]),
        }
        partition = n % 2
        back = r.choice([0, 0, 0, r.randint(0, furthest_back)]) * SECOND
        events.append(Event(partition, offsets[partition], f"e{n}", now - back, now, fields))
        offsets[partition] += 1
    return events


def told(rows: Rows, metric: Metric) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """What a row says, but for how often it was said."""
    names = ("events", "late_events", *metric.visible)
    return {
        key: (*(_plain(row[name]) for name in names), row["state"].replace("corrected", "preliminary"))
        for key, row in rows.items()
    }


def _plain(value: Any) -> Any:
    return round(value, 9) if isinstance(value, float) else value


@pytest.fixture(scope="module")
def reduced(spark: SparkSession, services: Services) -> list[Mapping[str, Any]]:
    """Six batches as Spark reduces them; each has events of all windows."""
    stream = Stream(spark, services.store_url, EVERYTHING, ROLLING)
    chance = random.Random(11)
    shares: list[list[Event]] = [[] for _ in range(6)]
    for event in events_of(5, 180, 0):
        chance.choice(shares).append(event)
    found = []
    for share in shares:
        held = stream._frame(share)
        extent = measure_extent(held)
        judged, *_ = with_fates(held, extent, {}, LATENESS, stream.views.closest)
        found.append(stream.views.reduce(judged, {}, extent, {}, len(share)))
    return found


def merged(services: Services, spark: SparkSession, parts: Sequence[Mapping[str, Any]]) -> list[Any]:
    stream = Stream(spark, services.store_url, EVERYTHING, ROLLING)
    entry = Entry(0, 0, 0, 0, 0, 0, 0, 0, {}, START, START)
    for n, part in enumerate(parts):
        stream.keep(Batch(stream.app, n, datetime.now(UTC), Outcome((entry,), 0, 0)), part)
    return [told(stream.rows(metric), metric) for metric in (EVERYTHING, ROLLING)]


@settings(
    max_examples=8,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(order=st.permutations(range(6)))
def test_every_measure_merges_to_the_same_in_any_order_of_batches(
    spark: SparkSession, services: Services, reduced: list[Mapping[str, Any]], order: list[int]
) -> None:
    rows = merged(services, spark, reduced)
    assert min(map(len, rows)) > 20
    assert merged(services, spark, [reduced[n] for n in order]) == rows


@pytest.mark.parametrize("seed", [21, 22])
def test_a_stream_comes_to_what_one_batch_comes_to(
    spark: SparkSession, services: Services, seed: int
) -> None:
    events = events_of(seed, 240, 200)
    streamed, whole = (Stream(spark, services.store_url, EVERYTHING, ROLLING) for _ in range(2))
    for batch in [events[:2], *batches_of(events[2:], seed, 90)]:
        streamed.feed(batch)
    whole.feed(events)
    for metric in (EVERYTHING, ROLLING):
        assert told(streamed.rows(metric), metric) == told(whole.rows(metric), metric)
        assert late_of(streamed, metric) == late_of(whole, metric)
    states = Counter(row["state"] for row in streamed.rows(EVERYTHING).values())
    assert states["final"] and states["open"], states
    assert_plain_spark_agrees(spark, events, streamed)


def late_of(stream: Stream, metric: Metric) -> set[tuple[Any, ...]]:
    found = stream.query(
        "SELECT event_id, window_end, clock, late_by, reason FROM headrace.late_events"
        f" WHERE app = %(app)s AND metric = '{metric.name}'"
    )
    assert found
    return set(found)


def assert_plain_spark_agrees(spark: SparkSession, events: list[Event], stream: Stream) -> None:
    """Spark's own windows over the events that were not late: nothing of ours but the late ledger."""
    late = {event_id for event_id, *_ in late_of(stream, EVERYTHING)}
    counted = [e for e in events if e.event_id not in late]
    frame = spark.createDataFrame(
        [(e.event_time // SECOND, e.fields["price"], e.fields["kind"]) for e in counted],
        "at bigint, price decimal(12, 2), kind string",
    )
    rows = (
        frame.groupBy(F.window(F.timestamp_seconds("at"), "1 minute"))
        .agg(
            F.count("*"), F.count_if(F.expr("kind = 'sale'")), F.min("price"), F.max("price"), F.avg("price")
        )
        .select(F.unix_micros("window.start"), "*")
        .collect()
    )
    found = {
        key[0]: (row["n"], row["sold"], row["cheapest"], row["dearest"], row["mean_price"])
        for key, row in stream.rows(EVERYTHING).items()
        if key[2] == "all" and row["events"]
    }
    assert set(found) == {row[0] for row in rows}
    for row in rows:
        *exact, mean = found[row[0]]
        assert tuple(exact) == tuple(row[2:6])
        assert mean == (None if row[6] is None else pytest.approx(float(row[6]), abs=1e-5))
