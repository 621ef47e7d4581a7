"""The lab's windows: a file of events through the gate and a metric, with one clock for the file."""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from headrace.app import App
from headrace.contracts.model import Contract, Field, Rules, Type
from headrace.declared import Declared
from headrace.local.scratch_store import scratch_store
from headrace.log.arrivals import instant_of
from headrace.measures import count, max_of
from headrace.ops.lab import ALL, Row
from headrace.ops.local_session import local_session
from headrace.ops.simulate import Input, simulate
from headrace.settings import load
from headrace.store.times import moved, to_time
from headrace.windows import MICROSECOND, tumbling

STREAM, METRIC = "events", "windows"
EVER = timedelta(days=36_500)
NO_VALUE = "(none)"  # the metric's label of an event without the dimension
Key = tuple[datetime, str]


def run_windows(
    input: Path, window_seconds: int, lateness_seconds: Sequence[int], by: Sequence[str]
) -> dict[int, list[Row]]:
    """The rows of every lateness. The gate decides what is late, so the metric itself never does."""
    found = {}
    with (
        scratch_store() as store_url,
        local_session("lab", load()) as spark,
        tempfile.TemporaryDirectory(prefix="headrace-lab-") as folder,
    ):
        for lateness in lateness_seconds:
            contract = _contract(timedelta(seconds=lateness), by)
            metric = _app(window_seconds, by).metrics[METRIC]
            given = Input(contract, input, 1, "arrival_time", Declared((metric,)))
            output = Path(folder) / f"lateness-{lateness}"
            simulate(spark, [given], output, salt="", store_url=store_url, app=f"lab_{lateness}")
            found[lateness] = _rows(output, window_seconds, by)
    return found


def _contract(lateness: timedelta, by: Sequence[str]) -> Contract:
    text, time = Type("string"), Type("timestamp")
    fields = (
        Field("event_id", text, required=True, rules=Rules(min_length=1)),
        Field("event_type", text, required=True),
        Field("event_time", time, required=True),
        Field("arrival_time", time, required=True),
        Field("user_id", text),
        *[Field(name, text) for name in by if name not in ("event_type", "user_id")],
    )
    return Contract(
        STREAM,
        "1.0.0",
        fields,
        event_id="event_id",
        event_time="event_time",
        key="user_id",
        lateness=lateness,
        max_future_skew=EVER,
        dedupe_horizon=EVER,
        idle_after=EVER,
        partitions=1,
        retention=EVER,
    )


def _app(window_seconds: int, by: Sequence[str]) -> App:
    app = App("lab")
    app.metric(
        METRIC,
        of=STREAM,
        window=tumbling(f"{window_seconds} seconds"),
        by=[[], *[[name] for name in by]],
        measures={
            "impressions": count("event_type = 'product_impression'"),
            "clicks": count("event_type = 'product_click'"),
            "purchases": count("event_type = 'purchase'"),
            "lag_us": max_of("unix_micros(arrival_time) - unix_micros(event_time)"),
        },
        final_after="36500 days",
        limit=1_000_000,
    )
    return app


def _rows(output: Path, window_seconds: int, by: Sequence[str]) -> list[Row]:
    size = timedelta(seconds=window_seconds)
    late = _late(output / f"{STREAM}.late.jsonl", size, by)
    rows = []
    with (output / f"{METRIC}.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            dimension = _dimension(row)
            if dimension is None:
                continue
            start = datetime.fromisoformat(row["window_start"])
            lags = late.pop((start, dimension), [])
            counts = (int(row["impressions"]), int(row["clicks"]), int(row["purchases"]))
            lag = max([timedelta(microseconds=int(row["lag_us"])), *lags])
            events = int(row["events"]) + len(lags)
            rows.append(Row(start, moved(start, size), dimension, *counts, len(lags), events, lag))
    # Windows in which every event was late.
    rows += [
        Row(start, moved(start, size), dimension, 0, 0, 0, len(lags), len(lags), max(lags))
        for (start, dimension), lags in late.items()
    ]
    return rows


def _dimension(row: dict[str, str]) -> str | None:
    name = row["grouping"]
    if name == "all":
        return ALL
    label = row[name]
    return None if label == NO_VALUE else f"{name}={label.removeprefix(chr(92))}"


def _late(file: Path, size: timedelta, by: Sequence[str]) -> dict[Key, list[timedelta]]:
    """The lags of the late events, by window and dimension."""
    found: dict[Key, list[timedelta]] = {}
    for event in _events(file):
        at, arrival = instant_of(event["event_time"]), instant_of(event["arrival_time"])
        assert at is not None and arrival is not None
        start = to_time(at // (size // MICROSECOND) * (size // MICROSECOND))
        dimensions = [ALL, *[f"{name}={event[name]}" for name in by if event.get(name) is not None]]
        for dimension in dimensions:
            found.setdefault((start, dimension), []).append(timedelta(microseconds=arrival - at))
    return found


def _events(file: Path) -> Iterator[dict[str, Any]]:
    with file.open("rb") as lines:
        for line in lines:
            yield json.loads(line)
