"""Every kind of metric on random streams, batch by batch, against an oracle in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace import (
    App,
    Metric,
    count,
    distinct,
    first_of,
    last_of,
    max_of,
    mean_of,
    min_of,
    quantiles,
    running,
    sliding,
    stddev_of,
    sum_of,
    top,
    tumbling,
    variance_of,
)
from headrace.local.services import Services
from headrace.measures import HLL_ERROR
from headrace.store import metric_merge
from headrace.store.times import FIRST, LAST
from headrace.views import window_rows
from headrace.views.resolve import PACKED
from headrace.windows import MICROSECOND, Window
from tests.oracle.metrics_oracle import Event, MeasureSpec, MetricSpec, Outcome, Row, outcome
from tests.views.stream import Stream

SECOND = 1_000_000
START = 1_772_355_600 * SECOND  # 2026-03-01 09:00
app = App("oracle")
EVERYTHING = app.metric(
    "everything",
    of="sales",
    window=tumbling("1 minute"),
    by=[[], ["region"], ["region", "kind"]],
    measures={
        "n": count(),
        "sold": count("kind = 'sale'"),
        "revenue": sum_of("price * items", where="kind = 'sale'"),
        "cheapest": min_of("price"),
        "dearest": max_of("price"),
        "mean_price": mean_of("price"),
        "mean_seconds": mean_of("seconds"),
        "spread": variance_of("price"),
        "deviation": stddev_of("price"),
        "customers": distinct("customer"),
        "latency": quantiles("seconds", (0.5, 0.9)),
        "favourites": top("customer", 3),
        "opener": first_of("customer"),
        "closer": last_of("customer", where="kind = 'sale'"),
    },
    derived={"share": "sold / n"},
    preliminary_after="20 seconds",
    final_after="60 seconds",
)
ROLLING = app.metric(
    "rolling",
    of="sales",
    window=sliding("3 minutes", every="1 minute"),
    by=["region"],
    where="kind <> 'visit'",
    measures={
        "n": count(),
        "revenue": sum_of("price"),
        "customers": distinct("customer"),
        "tops": top("kind", 2),
    },
    preliminary_after="10 seconds",
    final_after="30 seconds",
)
SO_FAR = app.metric(
    "so_far",
    of="sales",
    window=running(reset="5 minutes", trigger="30 seconds"),
    by=[[], ["region"]],
    measures={
        "n": count(),
        "revenue": sum_of("price"),
        "mean_price": mean_of("price"),
        "customers": distinct("customer"),
        "latency": quantiles("seconds", (0.5,)),
        "favourites": top("customer", 3),
        "closer": last_of("customer"),
    },
    derived={"each": "revenue / n"},
    preliminary_after="10 seconds",
    final_after="45 seconds",
)


def _plain(metric: Metric, name: str, window: Window) -> Metric:
    """Without what only Python can merge: rows of new windows then go straight into the table."""
    measures = {each: m for each, m in metric.measures.items() if m.kind not in PACKED}
    return replace(metric, name=name, window=window, measures=measures)


PLAIN = _plain(EVERYTHING, "plain", tumbling("1 minute"))
PLAIN_ROLLING = _plain(EVERYTHING, "plain_rolling", sliding("3 minutes", every="1 minute"))
METRICS = (EVERYTHING, ROLLING, SO_FAR, PLAIN, PLAIN_ROLLING)


def _sale(f: dict[str, Any]) -> bool:
    return f["kind"] == "sale"


def _field(name: str) -> Any:
    return lambda f: f[name]


def _amount(f: dict[str, Any]) -> Any:
    return None if f["price"] is None or f["items"] is None else f["price"] * f["items"]


def _spec(metric: Metric, measures: dict[str, MeasureSpec], where: Any = None) -> MetricSpec:
    window = metric.window
    return MetricSpec(
        window.size // MICROSECOND,
        window.hop_us,
        metric.groupings,
        measures,
        metric.preliminary_after // MICROSECOND,
        metric.final_us,
        where,
        window.trigger // MICROSECOND if window.trigger else None,
    )


SPECS = {
    "everything": _spec(
        EVERYTHING,
        {
            "n": MeasureSpec("count"),
            "sold": MeasureSpec("count", where=_sale),
            "revenue": MeasureSpec("sum", _amount, _sale),
            "cheapest": MeasureSpec("min", _field("price")),
            "dearest": MeasureSpec("max", _field("price")),
            "mean_price": MeasureSpec("mean", _field("price")),
            "mean_seconds": MeasureSpec("mean", _field("seconds")),
            "spread": MeasureSpec("variance", _field("price")),
            "deviation": MeasureSpec("variance", _field("price")),
            "customers": MeasureSpec("distinct", _field("customer")),
            "latency": MeasureSpec("quantiles", _field("seconds")),
            "favourites": MeasureSpec("top", _field("customer")),
            "opener": MeasureSpec("first", _field("customer")),
            "closer": MeasureSpec("last", _field("customer"), _sale),
        },
    ),
    "rolling": _spec(
        ROLLING,
        {
            "n": MeasureSpec("count"),
            "revenue": MeasureSpec("sum", _field("price")),
            "customers": MeasureSpec("distinct", _field("customer")),
            "tops": MeasureSpec("top", _field("kind")),
        },
        lambda f: f["kind"] is not None and f["kind"] != "visit",
    ),
    "so_far": _spec(
        SO_FAR,
        {
            "n": MeasureSpec("count"),
            "revenue": MeasureSpec("sum", _field("price")),
            "mean_price": MeasureSpec("mean", _field("price")),
            "customers": MeasureSpec("distinct", _field("customer")),
            "latency": MeasureSpec("quantiles", _field("seconds")),
            "favourites": MeasureSpec("top", _field("customer")),
            "closer": MeasureSpec("last", _field("customer")),
        },
    ),
}
SPECS |= {
    metric.name: _spec(
        metric, {n: m for n, m in SPECS["everything"].measures.items() if n in metric.measures}
    )
    for metric in (PLAIN, PLAIN_ROLLING)
}


def stream_of(seed: int, count: int) -> list[Event]:
    """Two busy partitions and one that falls asleep; times jump back by up to three minutes."""
    r = random.Random(seed)
    offsets: Counter[int] = Counter()
    events = []
    for n in range(count):
        now = START + n * 4 * SECOND + r.randrange(SECOND)
        partition = 2 if n < count // 5 and r.random() < 0.3 else r.randrange(2)
        back = r.choice([0, 0, 0, 1, 2, 5, 30, 90, 180]) * SECOND
        fields = {
            "customer": f"c{r.randrange(25)}",
            "kind": r.choice(["sale", "visit", "(other)", None]),
            "region": r.choice(["tashkent", "almaty", None]),
            "price": r.choice([None, Decimal(r.randrange(1, 99999)) / 100]),
            "seconds": r.choice([None, r.randrange(1000) / 8]),
            "items": r.choice([None, 1, 2, 3]),
        }
        events.append(Event(partition, offsets[partition], f"e{n}", now - back, now, fields))
        offsets[partition] += 1
    return events


def batches_of(events: list[Event], seed: int, largest: int) -> list[list[Event]]:
    """Neighbours in batches of any size; inside a batch, the order is anybody's."""
    r = random.Random(seed)
    rest, batches = list(events), []
    while rest:
        size = r.randint(1, largest)
        batch, rest = rest[:size], rest[size:]
        r.shuffle(batch)
        batches.append(batch)
    return batches


@pytest.mark.parametrize(
    ("seed", "largest", "many"),
    [(1, 200, metric_merge.MANY), (2, 60, 0), (3, 400, 0), (4, 16, metric_merge.MANY)],
)
def test_rows_late_events_and_ledger_are_the_oracles(
    spark: SparkSession,
    services: Services,
    seed: int,
    largest: int,
    many: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From `many` rows on, a batch asks first which of its windows are new."""
    monkeypatch.setattr(metric_merge, "MANY", many)
    monkeypatch.setattr(window_rows, "AT_ONCE", 50)
    batches = batches_of(stream_of(seed, 200), seed, largest)
    stream = Stream(spark, services.store_url, *METRICS)
    idle = stream.contract.idle_after // MICROSECOND
    silence = {len(batches) - 1: idle + 45 * SECOND}
    for batch in batches:
        stream.feed(batch)
    stream.silence(silence[len(batches) - 1])
    _same_as_the_oracle(stream, batches, silence)


@pytest.mark.parametrize("many", [0, metric_merge.MANY])
@pytest.mark.parametrize("end", ["first", "last"])
def test_the_first_and_the_last_date_count_like_any_other(
    spark: SparkSession, services: Services, end: str, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows that begin before the year 1, or end after 9999, are held at its first or last moment."""
    monkeypatch.setattr(metric_merge, "MANY", many)
    events = stream_of(5, 100)
    times = [event.event_time for event in events]
    far = FIRST - min(times) if end == "first" else LAST - max(times)
    batches = batches_of([replace(e, event_time=e.event_time + far) for e in events], 5, 30)
    stream = Stream(spark, services.store_url, *METRICS)
    for batch in batches:
        stream.feed(batch)
    _same_as_the_oracle(stream, batches)
    stream.silence(stream.contract.idle_after // MICROSECOND + 45 * SECOND)
    for metric in METRICS:
        starts, ends = {key[0] for key in stream.rows(metric)}, {key[1] for key in stream.rows(metric)}
        assert min(starts) == FIRST if end == "first" else max(ends) == LAST


def _same_as_the_oracle(
    stream: Stream, batches: list[list[Event]], silence: dict[int, int] | None = None
) -> None:
    idle = stream.contract.idle_after // MICROSECOND
    for metric in METRICS:
        wanted = outcome(SPECS[metric.name], batches, idle_after=idle, silences=silence)
        _same_rows(stream.rows(metric), wanted, metric)
        _same_late(stream, wanted, metric)
        counts = stream.query(
            "SELECT accepted, counted, filtered, late FROM headrace.metric_ledger WHERE query = %(app)s"
            f" AND metric = '{metric.name}' ORDER BY batch_id"
        )
        assert counts == [(c.accepted, c.counted, c.filtered, c.late) for c in wanted.counts]


def _same_rows(found: dict[tuple[Any, ...], dict[str, Any]], wanted: Outcome, metric: Metric) -> None:
    keys = {}
    for key in wanted.rows:
        given = dict(zip(key.grouping, key.dimensions, strict=True))
        labels = [_label(given[d]) if d in given else "(all)" for d in metric.dimensions]
        place = (max(FIRST, key.window_start), min(key.window_end, LAST))
        keys[(*place, ",".join(key.grouping) or "all", *labels)] = key
    assert set(found) == set(keys)
    for key, oracle_key in keys.items():
        row, oracle = found[key], wanted.rows[oracle_key]
        about = (row["events"], row["late_events"], row["state"], row["revision"])
        assert about == (oracle.events, oracle.late_events, oracle.state, oracle.revision), key
        for name, value in oracle.values.items():
            _same_value(metric, name, row, oracle, value)
        if "share" in row and oracle.events:
            assert row["share"] == pytest.approx(oracle.values["sold"] / oracle.values["n"])


def _label(value: str | None) -> str:
    if value is None:
        return "(none)"
    return "\\" + value if value.startswith("(") else value


def _same_value(metric: Metric, name: str, row: dict[str, Any], oracle: Row, value: Any) -> None:
    measure = metric.measures[name]
    match measure.kind:
        case "sum":
            assert (None if row[name] is None else Fraction(row[name])) == value, name
        case "mean" | "variance":
            assert row[name] == (
                None if value is None else pytest.approx(float(value), rel=1e-9, abs=1e-9)
            ), name
        case "stddev":
            assert row[name] == (None if value is None else pytest.approx(float(value) ** 0.5, abs=1e-6)), (
                name
            )
        case "distinct":
            assert abs((row[name] or 0) - (value or 0)) <= 4 * HLL_ERROR * max(value or 0, 1), name
        case "quantiles":
            # A sketch of so few values keeps all of them: the answer is one of the values, at its rank.
            for rank in measure.ranks:
                shown = row[f"{name}_p{rank * 100:g}"]
                assert (
                    shown is None
                    if not value
                    else shown == value[max(0, -(-int(rank * 1e6) * len(value) // 10**6) - 1)]
                )
        case "top":
            labelled = [(_label(item), n) for item, n in (value or {}).items()]
            ranked = sorted(labelled, key=lambda pair: (-pair[1], pair[0]))[: measure.n]
            assert [(x["item"], x["count"]) for x in row[name] or []] == ranked, name
        case _:
            assert row[name] == value, name


def _same_late(stream: Stream, wanted: Outcome, metric: Metric) -> None:
    found = stream.query(
        'SELECT event_id, partition, "offset", (extract(epoch FROM window_end) * 1000000)::bigint,'
        " (extract(epoch FROM clock) * 1000000)::bigint,"
        " (extract(epoch FROM late_by) * 1000000)::bigint, reason"
        f" FROM headrace.late_events WHERE app = %(app)s AND metric = '{metric.name}'"
    )
    assert sorted(found) == sorted(
        (x.event_id, x.partition, x.offset, x.window_end, x.clock, x.how_late, x.reason) for x in wanted.late
    )
