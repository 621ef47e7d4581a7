"""Sessions of random streams, batch by batch, against an oracle in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace import App, count, first_of, last_of, max_of, mean_of, min_of, sum_of
from headrace.local.services import Services
from headrace.store.times import FIRST, LAST
from headrace.windows import MICROSECOND
from tests.oracle.metrics_oracle import Event
from tests.oracle.sessions_oracle import Fields, Oracle, Outcome, SessionRow, SessionSpec
from tests.sessions.stream import SessionStream

SECOND = 1_000_000
START = 1_772_355_600 * SECOND  # 2026-03-01 09:00
app = App("oracle")
VISITS = app.sessions(
    "visits",
    of="sales",
    key="customer",
    gap="30 seconds",
    max_length="2 minutes",
    where="region IS NULL OR region <> 'nowhere'",
    measures={
        "sold": count("kind = 'sale'"),
        "revenue": sum_of("price * items", where="kind = 'sale'"),
        "cheapest": min_of("price"),
        "dearest": max_of("price"),
        "bought": max_of("kind = 'sale'"),
        "mean_price": mean_of("price"),
        "entry": first_of("region"),
        "exit": last_of("region"),
    },
    derived={"converted": "sold > 0", "returned": "entry = exit", "per_sale": "revenue / sold"},
    preliminary_after="10 seconds",
    final_after="20 seconds",
)


def _values(fields: list[Fields], name: str) -> list[Any]:
    return [f[name] for f in fields if f[name] is not None]


def _sold(fields: list[Fields]) -> int:
    return sum(f["kind"] == "sale" for f in fields)


def _revenue(fields: list[Fields]) -> Any:
    sales = [f for f in fields if f["kind"] == "sale" and f["price"] is not None and f["items"] is not None]
    return sum((Fraction(f["price"]) * f["items"] for f in sales), Fraction(0)) if sales else None


def _mean(fields: list[Fields]) -> Any:
    prices = _values(fields, "price")
    return float(sum(map(Fraction, prices)) / len(prices)) if prices else None


def _per_sale(fields: list[Fields]) -> Any:
    revenue, sold = _revenue(fields), _sold(fields)
    return None if revenue is None or not sold else float(revenue / sold)


def _end(fields: list[Fields], place: int) -> Any:
    regions = _values(fields, "region")
    return regions[place] if regions else None


def _bought(fields: list[Fields]) -> Any:
    kinds = _values(fields, "kind")
    return "sale" in kinds if kinds else None


def _returned(fields: list[Fields]) -> Any:
    return _end(fields, 0) == _end(fields, -1) if _values(fields, "region") else None


SPEC = SessionSpec(
    "customer",
    VISITS.gap_us,
    VISITS.max_us,
    VISITS.preliminary_after // MICROSECOND,
    VISITS.final_us,
    {
        "sold": _sold,
        "revenue": _revenue,
        "cheapest": lambda f: min(_values(f, "price"), default=None),
        "dearest": lambda f: max(_values(f, "price"), default=None),
        "bought": _bought,
        "mean_price": _mean,
        "entry": lambda f: _end(f, 0),
        "exit": lambda f: _end(f, -1),
        "converted": lambda f: _sold(f) > 0,
        "returned": _returned,
        "per_sale": _per_sale,
    },
    lambda f: f["region"] != "nowhere",
)


def stream_of(seed: int, number: int, *, sleeper: bool) -> list[Event]:
    """A customer stays in one partition. Times are whole seconds, so that events a gap apart are frequent.

    Some customers come all the time, others rarely; some events are up to five minutes old. The sleeper's
    partition is silent for the second quarter of the stream.
    """
    r = random.Random(seed)
    offsets: Counter[int] = Counter()
    events = []
    customers = [f"c\t{n}" if n == 3 else f"c{n}" for n in range(8)]
    now = START
    for n in range(number):
        now += r.choice([0, 1, 1, 2, 3, 8]) * SECOND
        place = r.choice([0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7])
        partition = 2 if place == 7 else place % 2
        if sleeper and partition == 2 and number // 4 < n < number // 2:
            continue
        back = r.choice([0, 0, 0, 0, 0, 1, 5, 15, 25, 30, 40, 50, 60, 75, 90, 120, 180, 300]) * SECOND
        fields = {
            "customer": customers[place],
            "kind": r.choice(["sale", "visit", None]),
            "region": r.choice(["tashkent", "almaty", "as\\tana\n", None, "nowhere"]),
            "price": r.choice([None, Decimal(r.randrange(1, 99999)) / 100]),
            "items": r.choice([None, 1, 2, 3]),
        }
        events.append(Event(partition, offsets[partition], f"e{n}", now - back, now, fields))
        offsets[partition] += 1
    return events


def in_batches(events: list[Event], size: int, seed: int) -> Iterator[list[Event]]:
    r = random.Random(seed)
    for first in range(0, len(events), size):
        batch = events[first : first + size]
        r.shuffle(batch)
        yield batch


def same(found: list[SessionRow], wanted: list[SessionRow]) -> None:
    order = sorted(found, key=lambda row: row[:4])
    expected = sorted(wanted, key=lambda row: row[:4])
    assert [row[:6] for row in order] == [row[:6] for row in expected]
    for row, oracle in zip(order, expected, strict=True):
        for name, value, right in zip(VISITS.visible, row.values, oracle.values, strict=True):
            if isinstance(right, Fraction):
                assert Fraction(value) == right, (name, row)
            elif isinstance(right, float):
                assert value == pytest.approx(right, rel=1e-9), (name, row)
            else:
                assert value == right, (name, row)


def check(stream: SessionStream, wanted: Outcome) -> None:
    same(stream.sessions(VISITS), wanted.rows)
    assert stream.late(VISITS) == wanted.late
    counts = [(c.accepted, c.counted, c.filtered, c.late) for c in wanted.counts]
    assert stream.counts(VISITS) == counts
    assert all(accepted == sum(rest) for accepted, *rest in counts)


@pytest.mark.parametrize(("seed", "size"), [(1, 40), (2, 15), (3, 150), (4, 400)])
def test_rows_late_events_and_ledger_are_the_oracles(
    spark: SparkSession, services: Services, seed: int, size: int
) -> None:
    stream = SessionStream(spark, services.store_url, VISITS)
    idle = stream.contract.idle_after // MICROSECOND
    oracle = Oracle(SPEC, idle)
    r = random.Random(seed)
    batches = list(in_batches(stream_of(seed, 400, sleeper=True), size, seed))
    for number, batch in enumerate(batches):
        silence = idle + r.choice([20, 70, 200]) * SECOND if number == len(batches) // 2 else 0
        oracle.batch(batch, silence)
        stream.feed(batch)
        if silence:
            stream.silence(silence)
    check(stream, oracle.outcome())


@pytest.mark.parametrize("end", ["first", "last"])
def test_the_first_and_the_last_date_count_like_any_other(
    spark: SparkSession, services: Services, end: str
) -> None:
    stream = SessionStream(spark, services.store_url, VISITS)
    oracle = Oracle(SPEC, stream.contract.idle_after // MICROSECOND)
    events = stream_of(6, 150, sleeper=False)
    times = [event.event_time for event in events]
    far = FIRST - min(times) if end == "first" else LAST - max(times)
    for batch in in_batches([replace(e, event_time=e.event_time + far) for e in events], 40, 6):
        oracle.batch(batch)
        stream.feed(batch)
    check(stream, oracle.outcome())
    [(latest,)] = stream.query(f'SELECT max(session_end) FROM "{stream.app}"."{VISITS.name}"')
    assert latest.year == (1 if end == "first" else 9999)


def test_many_keys_with_old_events_are_looked_up_by_a_join(
    spark: SparkSession, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.views.session_pieces.FEW_KEYS", 0)
    stream = SessionStream(spark, services.store_url, VISITS)
    oracle = Oracle(SPEC, stream.contract.idle_after // MICROSECOND)
    for batch in in_batches(stream_of(12, 300, sleeper=False), 100, 12):
        oracle.batch(batch)
        stream.feed(batch)
    check(stream, oracle.outcome())


def test_the_size_of_batches_decides_nothing(spark: SparkSession, services: Services) -> None:
    events = stream_of(11, 120, sleeper=False)
    outcomes = []
    for size in (3, 7, 1000):
        stream = SessionStream(spark, services.store_url, VISITS)
        oracle = Oracle(SPEC, stream.contract.idle_after // MICROSECOND)
        for batch in in_batches(events, size, size):
            oracle.batch(batch)
            stream.feed(batch)
        check(stream, oracle.outcome())
        rows = sorted((row[:4], row.state == "final", row.values) for row in stream.sessions(VISITS))
        outcomes.append((repr(rows), stream.late(VISITS)))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert outcomes[0][1], "no event of the stream is late"


def test_silence_makes_everything_final_and_leaves_no_pieces(spark: SparkSession, services: Services) -> None:
    stream = SessionStream(spark, services.store_url, VISITS)
    for batch in in_batches(stream_of(5, 120, sleeper=False), 60, 5):
        stream.feed(batch)
    assert stream.pieces(VISITS) > 0
    stream.silence(stream.contract.idle_after // MICROSECOND + 3600 * SECOND)
    assert {row.state for row in stream.sessions(VISITS)} == {"final"}
    assert stream.pieces(VISITS) == 0
