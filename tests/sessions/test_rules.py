"""The rules of sessions, one example each: what belongs together, what splits, what is over, what is late."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace import App, count
from headrace.local.services import Services
from headrace.sessions import Sessions
from tests.oracle.metrics_oracle import Event
from tests.sessions.stream import SessionStream

SECOND = 1_000_000
START = 1_772_355_600 * SECOND  # 2026-03-01 09:00, a border of cells
_offsets = itertools.count()


def visits(**more: Any) -> Sessions:
    given = {
        "of": "sales",
        "key": "customer",
        "gap": "30 seconds",
        "max_length": "2 minutes",
        "measures": {"n": count()},
        "preliminary_after": "10 seconds",
        "final_after": "20 seconds",
    }
    return App("rules").sessions("visits", **{**given, **more})


VISITS = visits()


def at(seconds: float, customer: str | None = "a", partition: int = 0, log: float | None = None) -> Event:
    offset = next(_offsets)
    moment = START + round(seconds * SECOND)
    log_time = moment if log is None else START + round(log * SECOND)
    return Event(partition, offset, f"e{offset}", moment, log_time, {"customer": customer})


@pytest.fixture
def stream(spark: SparkSession, services: Services) -> SessionStream:
    return SessionStream(spark, services.store_url, VISITS)


def shown(stream: SessionStream, sessions: Sessions = VISITS) -> list[tuple[float, float, int, str, int]]:
    """Start and last event in seconds, events, state and revision."""
    return sorted(
        ((row.start - START) / SECOND, (row.last - START) / SECOND, row.events, row.state, row.revision)
        for row in stream.sessions(sessions)
    )


def test_events_exactly_one_gap_apart_belong_together(stream: SessionStream) -> None:
    stream.feed([at(0), at(30), at(0, "b"), at(30.000001, "b")])
    rows = {(row.key, row.events) for row in stream.sessions(VISITS)}
    assert rows == {("a", 2), ("b", 1)} and len(stream.sessions(VISITS)) == 3


def test_a_late_event_bridges_two_sessions_into_one(stream: SessionStream) -> None:
    stream.feed([at(0), at(49)])
    assert shown(stream) == [(0, 0, 1, "preliminary", 1), (49, 49, 1, "open", 0)]
    stream.feed([at(25)])
    assert shown(stream) == [(0, 49, 3, "corrected", 2)]


def test_a_final_session_never_changes(stream: SessionStream) -> None:
    stream.feed([at(0), at(50)])
    assert shown(stream) == [(0, 0, 1, "final", 1), (50, 50, 1, "open", 0)]
    stream.feed([at(25)])
    assert shown(stream) == [(0, 0, 1, "final", 1), (25, 50, 2, "open", 0)]


def test_the_same_in_one_batch(stream: SessionStream) -> None:
    stream.feed([at(0), at(50), at(25)])
    assert [row[:3] for row in shown(stream)] == [(0, 0, 1), (25, 50, 2)]


def test_an_old_event_that_touches_an_open_session_is_taken(stream: SessionStream) -> None:
    stream.feed([at(t) for t in (0, 25, 50, 75, 100)])
    stream.feed([at(10)])
    assert shown(stream) == [(0, 100, 6, "open", 0)] and stream.late(VISITS) == []


def test_an_old_event_that_touches_nothing_is_late(stream: SessionStream) -> None:
    stream.feed([at(0), at(200)])
    stream.feed([at(100), at(151)])
    assert [row[:3] for row in shown(stream)] == [(0, 0, 1), (151, 151, 1), (200, 200, 1)]
    [late] = stream.late(VISITS)
    assert (late.event_time - START, late.how_late, late.reason) == (100 * SECOND, 50 * SECOND, "late")
    assert stream.counts(VISITS) == [(2, 2, 0, 0), (2, 1, 0, 1)]


def test_a_long_session_is_split_between_cells(stream: SessionStream) -> None:
    stream.feed([at(t) for t in range(10, 260, 20)])
    assert [row[:3] for row in shown(stream)] == [(10, 130, 7), (150, 250, 6)]
    stream.feed([at(270)])
    assert [row[:3] for row in shown(stream)] == [(10, 130, 7), (150, 270, 7)]
    stream.feed([at(280)])
    assert [row[:3] for row in shown(stream)] == [(10, 130, 7), (150, 250, 6), (270, 280, 2)]


def test_an_event_without_a_key_is_filtered(stream: SessionStream) -> None:
    stream.feed([at(0), at(1, None)])
    assert stream.counts(VISITS) == [(2, 1, 1, 0)] and len(shown(stream)) == 1


def test_a_sealed_session_keeps_its_state_beside_one_that_overlaps_it(stream: SessionStream) -> None:
    """The other partition holds the watermark at 45: what is over for the customer is not final yet."""
    stream.feed([at(0), at(60), at(45, "z", 1)])
    assert shown(stream)[0] == (0, 0, 1, "preliminary", 1)
    stream.feed([at(35, log=60), at(5, log=60), at(0, log=60)])
    a = [row for row in shown(stream) if row[:2] != (45, 45)]
    assert a == [(0, 0, 1, "preliminary", 1), (0, 60, 4, "open", 0)]
    assert stream.late(VISITS) == []
    stream.feed([at(55, "z", 1)])
    a = [row for row in shown(stream) if row[:2] != (45, 55)]
    assert a == [(0, 0, 1, "final", 1), (0, 60, 4, "open", 0)]


def test_a_partition_that_slept_is_judged_by_the_watermark(stream: SessionStream) -> None:
    stream.feed([at(0), at(0, "z", 1)])
    stream.feed([at(400), at(370, "c")])
    assert {row.state for row in stream.sessions(VISITS) if row.key == "z"} == {"final"}
    stream.feed([at(20, "z", 1, log=400), at(360, "z", 1, log=400)])
    assert [(late.event_time - START, late.reason) for late in stream.late(VISITS)] == [
        (20 * SECOND, "idle_wake")
    ]
    assert [row[:2] for row in shown(stream)] == [(0, 0), (0, 0), (360, 360), (370, 370), (400, 400)]


def test_old_rows_leave(spark: SparkSession, services: Services) -> None:
    brief = visits(retain="1 minute")
    stream = SessionStream(spark, services.store_url, brief)
    for number in range(6):
        stream.feed([at(number * 60, f"c{number}")])
    assert [row[0] for row in shown(stream, brief)] == [240, 300]
    assert stream.pieces(brief) == 1


def test_any_text_is_a_key_and_a_value(spark: SparkSession, services: Services) -> None:
    names = ("key", "cell", "seal", "start", "chain", "before", "same", "o", "t")
    sessions = visits(measures={name: count() for name in names})
    stream = SessionStream(spark, services.store_url, sessions)
    keys = ["a\tb", "c\\N", "d\ne\r", "\\", "", "\u0000f", "ў'\"", "{1,2}", "\\N"]
    stream.feed([at(0, key) for key in keys])
    stream.feed([at(10, key) for key in keys])
    stream.feed([at(100, "other"), *(at(5, key) for key in keys)])
    found = {row.key: row.events for row in stream.sessions(sessions) if row.key != "other"}
    assert found == dict.fromkeys((key.replace("\0", "\N{REPLACEMENT CHARACTER}") for key in keys), 2)
    assert len(stream.late(sessions)) == len(keys)
