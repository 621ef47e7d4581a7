"""A batch of many rows asks which of its windows are new; the limit of groups is the same as without."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from headrace import App, count, sliding, tumbling
from headrace.local.services import Services
from headrace.store import metric_merge
from tests.oracle.metrics_oracle import Event
from tests.views.stream import Stream

SECOND = 1_000_000
START = 1_772_355_600 * SECOND  # 2026-03-01 09:00
app = App("large")
CROWDED = [
    app.metric(
        name,
        of="sales",
        window=window,
        by=["customer"],
        measures={"n": count()},
        final_after="1 hour",
        limit=3,
    )
    for name, window in (
        ("tumbling", tumbling("1 minute")),
        ("sliding", sliding("2 minutes", every="1 minute")),
    )
]


def sold(first: int, minute: int, customers: str) -> list[Event]:
    at = START + 60 * minute * SECOND
    return [
        Event(0, first + n, f"e{first + n}", at, at, {"customer": customer})
        for n, customer in enumerate(customers)
    ]


@pytest.mark.parametrize("many", [0, metric_merge.MANY])
def test_groups_beyond_the_limit_are_one(
    spark: SparkSession, services: Services, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_merge, "MANY", many)
    stream = Stream(spark, services.store_url, *CROWDED)
    stream.feed(sold(0, 0, "aabb"))
    stream.feed([*sold(4, 0, "accd"), *sold(8, 1, "abcdd")])
    stream.feed(sold(13, 1, "az"))
    groups = {
        metric.name: {
            ((key[0] - START) // SECOND // 60, key[3]): row["n"] for key, row in stream.rows(metric).items()
        }
        for metric in CROWDED
    }
    assert groups["tumbling"] == {
        (0, "a"): 3, (0, "b"): 2, (0, "c"): 2, (0, "(other)"): 1,
        (1, "a"): 2, (1, "b"): 1, (1, "d"): 2, (1, "(other)"): 2,
    }  # fmt: skip
    assert groups["sliding"] == {
        (-1, "a"): 3, (-1, "b"): 2, (-1, "c"): 2, (-1, "(other)"): 1,
        (0, "a"): 5, (0, "b"): 3, (0, "c"): 3, (0, "(other)"): 4,
        (1, "a"): 2, (1, "b"): 1, (1, "d"): 2, (1, "(other)"): 2,
    }  # fmt: skip
