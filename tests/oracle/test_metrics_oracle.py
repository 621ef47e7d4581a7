"""The metrics oracle on hand-written tables: the worked example of the design, every rule, every measure."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from tests.oracle.metrics_oracle import (
    Counts,
    Event,
    Kind,
    Late,
    MeasureSpec,
    MetricSpec,
    Outcome,
    Row,
    RowKey,
    outcome,
    window_starts,
)

SECOND = 1_000_000
MINUTE = 60 * SECOND
NEVER = 10**18
COUNT = {"n": MeasureSpec("count")}
MINUTES = MetricSpec(MINUTE, MINUTE, ((),), COUNT, preliminary_after=20 * SECOND, final_after=MINUTE)


def at(clock: str) -> int:
    """A moment of the day as `09:00:10`."""
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return (hours * 3600 + minutes * 60 + seconds) * SECOND


def event(partition: int, offset: int, clock: str, log: str = "09:00:00", **fields: Any) -> Event:
    return Event(partition, offset, f"{partition}-{offset}", at(clock), at(log), fields)


def key(start: str, *dimensions: Any, by: tuple[str, ...] = (), size: int = MINUTE) -> RowKey:
    return RowKey(at(start), at(start) + size, by, dimensions)


def told(spec: MetricSpec, *batches: list[Event], idle_after: int = NEVER, **more: Any) -> Outcome:
    result = outcome(spec, batches, idle_after=idle_after, **more)
    for counts, batch in zip(result.counts, batches, strict=True):
        assert counts.accepted == len(batch) == counts.counted + counts.filtered + counts.late
    return result


def life(row: Row) -> tuple[int, str, int, int]:
    return row.events, row.state, row.revision, row.late_events


KINDS: tuple[Kind, ...] = (
    "sum", "min", "max", "mean", "variance", "distinct", "quantiles", "top", "first", "last",
)  # fmt: skip


def measure(kind: Kind, only: str | None = None) -> MeasureSpec:
    return MeasureSpec(kind, lambda fields: fields.get("v"), (lambda f: f.get(only)) if only else None)


# partition, event time, watermark after it; then events, state, revision and late events of 09:00–09:01
WORKED = [
    (0, "09:00:10", "09:00:10", (1, "open", 0, 0)),
    (1, "09:00:40", "09:00:10", (2, "open", 0, 0)),
    (0, "09:01:25", "09:00:40", (2, "open", 0, 0)),
    (1, "09:01:30", "09:01:25", (2, "preliminary", 1, 0)),
    (0, "09:00:55", "09:01:25", (3, "corrected", 2, 0)),
    (0, "09:02:05", "09:01:30", (3, "corrected", 2, 0)),
    (0, "09:00:30", "09:01:30", (3, "corrected", 2, 1)),
    (1, "09:00:20", "09:01:30", (4, "corrected", 3, 1)),
    (1, "09:02:10", "09:02:05", (4, "final", 3, 1)),
    (1, "09:00:59", "09:02:05", (4, "final", 3, 2)),
]
WORKED_EVENTS = [event(partition, offset, clock) for offset, (partition, clock, _, _) in enumerate(WORKED)]
WORKED_LEDGER = [
    Late("0-6", 0, 6, at("09:00:30"), at("09:00:00"), at("09:01:00"), at("09:02:05"), 5 * SECOND, "late"),
    Late("1-9", 1, 9, at("09:00:59"), at("09:00:00"), at("09:01:00"), at("09:02:10"), 10 * SECOND, "late"),
]


@pytest.mark.parametrize("step", range(1, len(WORKED) + 1))
def test_the_worked_example_step_by_step(step: int) -> None:
    result = told(MINUTES, *([e] for e in WORKED_EVENTS[:step]))
    _, _, watermark, expected = WORKED[step - 1]
    assert result.watermarks[-1] == at(watermark)
    assert life(result.rows[key("09:00:00")]) == expected


def test_the_worked_example_turns_two_events_away() -> None:
    result = told(MINUTES, *([e] for e in WORKED_EVENTS))
    assert result.late == WORKED_LEDGER
    assert [c.late for c in result.counts] == [0, 0, 0, 0, 0, 0, 1, 0, 0, 1]


def test_the_worked_example_in_one_batch_differs_only_in_revisions() -> None:
    result = told(MINUTES, WORKED_EVENTS[::-1])
    assert result.late == WORKED_LEDGER
    assert life(result.rows[key("09:00:00")]) == (4, "final", 1, 2)
    assert result.counts == [Counts(accepted=10, counted=8, late=2)]


def test_batch_boundaries_decide_nothing_but_revisions() -> None:
    dice = random.Random(7)
    spec = MetricSpec(MINUTE, 20 * SECOND, ((), ("shop",)), COUNT, 20 * SECOND, MINUTE)
    first = [event(p, 0, "09:00:00", shop=0) for p in (0, 1)]
    rest = []
    for offset in range(1, 200):
        for partition in (0, 1):
            moment = at("09:00:00") + (offset * 3 + dice.randint(-200, 5)) * SECOND
            rest.append(Event(partition, offset, f"{partition}-{offset}", moment, 0, {"shop": offset % 3}))
    whole = told(spec, first, rest)
    assert {late.reason for late in whole.late} == {"late"}
    for length in (1, 2, 7, 50):
        cut = told(spec, first, *(rest[i : i + length] for i in range(0, len(rest), length)))
        assert sorted(cut.late) == sorted(whole.late)
        assert cut.watermarks[-1] == whole.watermarks[-1]
        assert {k: (r.events, r.late_events, r.values) for k, r in cut.rows.items()} == {
            k: (r.events, r.late_events, r.values) for k, r in whole.rows.items()
        }
        assert {k for k, r in cut.rows.items() if r.state == "final"} == {
            k for k, r in whole.rows.items() if r.state == "final"
        }


@pytest.mark.parametrize(
    ("size", "hop", "moment", "starts"),
    [
        (60, 60, 0, [0]),
        (60, 60, 59, [0]),
        (60, 60, 60, [60]),
        (60, 20, 60, [20, 40, 60]),
        (60, 20, 79, [20, 40, 60]),
        (60, 20, 80, [40, 60, 80]),
        (60, 30, -1, [-60, -30]),
    ],
)
def test_windows_are_aligned_to_the_epoch(size: int, hop: int, moment: int, starts: list[int]) -> None:
    assert window_starts(MetricSpec(size, hop, ((),), {}, 0, 0), moment) == starts


@pytest.mark.parametrize(("size", "hop"), [(60, 50), (60, 120), (60, 0), (0, 60)])
def test_a_hop_divides_the_size(size: int, hop: int) -> None:
    with pytest.raises(ValueError, match="does not divide"):
        MetricSpec(size, hop, ((),), {}, 0, 0)


def test_an_event_that_misses_some_of_its_windows_is_counted() -> None:
    spec = MetricSpec(MINUTE, 30 * SECOND, ((),), COUNT, 0, MINUTE)
    result = told(spec, [event(0, 0, "09:02:10"), event(0, 1, "09:00:40")])
    assert [(late.window_start, late.how_late) for late in result.late] == [(at("09:00:00"), 10 * SECOND)]
    assert life(result.rows[key("09:00:00")])[::3] == (0, 1)
    assert life(result.rows[key("09:00:30")])[::3] == (1, 0)
    assert result.counts == [Counts(accepted=2, counted=2)]


def test_every_limit_belongs_to_the_later_state() -> None:
    before = told(MINUTES, [event(0, 0, "09:00:10"), event(0, 1, "09:01:19")])
    assert before.rows[key("09:00:00")].state == "open"
    published = told(MINUTES, [event(0, 0, "09:00:10"), event(0, 1, "09:01:20")])
    assert life(published.rows[key("09:00:00")]) == (1, "preliminary", 1, 0)
    in_time = told(MINUTES, [event(0, 0, "09:01:59"), event(0, 1, "09:00:59")])
    assert (in_time.late, in_time.rows[key("09:00:00")].events) == ([], 1)
    missed = told(MINUTES, [event(0, 0, "09:02:00"), event(0, 1, "09:00:59")])
    assert [late.how_late for late in missed.late] == [0]


def test_a_batch_raises_the_revision_once() -> None:
    opening = [event(0, 0, "09:00:10"), event(0, 1, "09:01:30")]
    twice = [event(0, 2, "09:00:11"), event(0, 3, "09:00:12")]
    result = told(MINUTES, opening, twice, [event(0, 4, "09:00:13")])
    assert life(result.rows[key("09:00:00")]) == (4, "corrected", 3, 0)


def test_a_row_can_be_corrected_and_closed_by_one_batch() -> None:
    opening = [event(0, 0, "09:00:10"), event(0, 1, "09:01:30")]
    result = told(MINUTES, opening, [event(0, 2, "09:00:11"), event(0, 3, "09:02:00")])
    assert life(result.rows[key("09:00:00")]) == (2, "final", 2, 0)


def test_a_row_that_was_only_missed_is_final_once_the_watermark_says_so() -> None:
    spec = MetricSpec(MINUTE, MINUTE, ((),), {**COUNT, **{k: measure(k) for k in KINDS}}, 20 * SECOND, MINUTE)
    ahead = [event(0, 0, "09:05:00"), event(0, 1, "09:00:10", v=1)]
    alone = told(spec, ahead).rows[key("09:00:00")]
    assert alone == Row(0, 1, "final", 1, {"n": 0, **dict.fromkeys(KINDS, None)})
    held_back = told(spec, [*ahead, event(1, 0, "09:00:20", v=1)], [event(1, 1, "09:01:25")])
    assert life(held_back.rows[key("09:00:00")]) == (1, "preliminary", 1, 1)
    only_missed = told(spec, [*ahead, event(1, 0, "09:01:00")])
    assert life(only_missed.rows[key("09:00:00")]) == (0, "open", 0, 1)


def test_an_idle_partition_leaves_the_minimum_and_wakes_up_too_late() -> None:
    awake = [event(0, 0, "09:00:10", "09:00:10"), event(1, 0, "09:00:20", "09:00:20")]
    almost = [event(0, 1, "09:01:10", "09:01:20")]
    idle = [event(0, 2, "09:03:00", "09:01:21")]
    woken = [event(1, 1, "09:00:30", "09:01:22"), event(1, 2, "09:02:30", "09:01:22")]
    result = told(MINUTES, awake, almost, idle, woken, idle_after=MINUTE)
    assert result.watermarks == [at("09:00:10"), at("09:00:20"), at("09:03:00"), at("09:03:00")]
    assert result.late == [
        Late("1-1", 1, 1, at("09:00:30"), at("09:00:00"), at("09:01:00"), at("09:03:00"), MINUTE, "idle_wake")
    ]
    assert life(result.rows[key("09:00:00")]) == (2, "final", 1, 1)
    assert life(result.rows[key("09:02:00")]) == (1, "open", 0, 0)


def test_a_partition_that_is_new_meets_the_watermark_as_it_is() -> None:
    result = told(MINUTES, [event(0, 0, "09:03:00")], [event(1, 0, "09:00:30"), event(1, 1, "09:02:30")])
    assert [(late.event_id, late.reason) for late in result.late] == [("1-0", "idle_wake")]
    assert result.watermarks == [at("09:03:00"), at("09:03:00")]


def test_what_both_the_clock_and_the_watermark_turn_away_is_late() -> None:
    result = told(MINUTES, [event(0, 0, "09:02:30")], [event(0, 1, "09:00:30")])
    assert [(late.clock, late.reason) for late in result.late] == [(at("09:02:30"), "late")]


def test_a_watermark_that_ran_ahead_says_how_late_an_event_is() -> None:
    after = [event(0, 1, "09:02:30"), event(0, 2, "09:00:30")]
    result = told(MINUTES, [event(0, 0, "09:00:10")], after, idle_after=MINUTE, silences={0: 4 * MINUTE})
    assert [(late.clock, late.how_late, late.reason) for late in result.late] == [
        (at("09:03:10"), 70 * SECOND, "late")
    ]


def test_silence_closes_windows_and_the_watermark_does_not_go_back() -> None:
    batches = [[event(0, 0, "09:00:10")], [event(0, 1, "09:00:20")]]
    quiet = told(MINUTES, batches[0], idle_after=MINUTE, silences={0: MINUTE})
    assert quiet.watermarks == [at("09:00:10")]
    published = told(MINUTES, batches[0], idle_after=MINUTE, silences={0: MINUTE + 70 * SECOND})
    assert life(published.rows[key("09:00:00")]) == (1, "preliminary", 1, 0)
    closed = told(MINUTES, *batches, idle_after=MINUTE, silences={0: MINUTE + 110 * SECOND})
    assert closed.watermarks == [at("09:02:00"), at("09:02:00")]
    assert life(closed.rows[key("09:00:00")]) == (1, "final", 1, 1)
    assert [late.reason for late in closed.late] == ["idle_wake"]


def test_before_the_first_event_there_is_no_watermark() -> None:
    result = told(MINUTES, [], [event(0, 0, "09:00:10")], idle_after=0, silences={0: MINUTE})
    assert result.watermarks == [None, at("09:00:10")]
    assert result.counts[0] == Counts(accepted=0)


def test_a_filtered_event_is_nowhere_but_moves_the_clock() -> None:
    spec = MetricSpec(MINUTE, MINUTE, ((),), COUNT, 0, MINUTE, where=lambda fields: fields.get("paid"))
    batch = [event(0, 0, "09:05:00", paid=False), event(0, 1, "09:00:10", paid=True), event(0, 2, "09:00:11")]
    result = told(spec, batch)
    assert list(result.rows) == [key("09:00:00")]
    assert [late.event_id for late in result.late] == ["0-1"]
    assert result.counts == [Counts(accepted=3, filtered=2, late=1)]


def test_every_grouping_has_rows_of_its_own_and_null_is_a_dimension() -> None:
    by_shop, by_both = ("shop",), ("city", "shop")
    spec = MetricSpec(MINUTE, MINUTE, ((), by_shop, by_both), COUNT, 20 * SECOND, MINUTE)
    batch = [
        event(0, 0, "09:00:10", shop="a", city="x"),
        event(0, 1, "09:00:20", shop="a", city="y"),
        event(0, 2, "09:00:30", city="y"),
        event(0, 3, "09:02:30", shop="b", city="x"),
        event(0, 4, "09:00:40", shop="a", city="x"),
    ]
    result = told(spec, batch)
    assert {k: (r.events, r.late_events) for k, r in result.rows.items() if k[0] == at("09:00:00")} == {
        key("09:00:00"): (3, 1),
        key("09:00:00", "a", by=by_shop): (2, 1),
        key("09:00:00", None, by=by_shop): (1, 0),
        key("09:00:00", "x", "a", by=by_both): (1, 1),
        key("09:00:00", "y", "a", by=by_both): (1, 0),
        key("09:00:00", "y", None, by=by_both): (1, 0),
    }
    assert len(result.late) == 1
    assert result.counts == [Counts(accepted=5, counted=4, late=1)]


def values_of(measures: dict[str, MeasureSpec], *batch: Event) -> dict[str, Any]:
    spec = MetricSpec(MINUTE, MINUTE, ((),), measures, 20 * SECOND, MINUTE)
    return told(spec, list(batch)).rows[key("09:00:00")].values


MEASURED = [
    event(0, 0, "09:00:30", v=4, big=True),
    event(0, 1, "09:00:10"),
    event(0, 2, "09:00:20", v=1),
    event(1, 0, "09:00:40", v=None, big=True),
    event(1, 1, "09:00:20", v=2),
    event(1, 2, "09:00:30", v=4, big=True),
]


@pytest.mark.parametrize(
    ("kind", "of_all", "of_big", "of_none"),
    [
        ("count", 6, 3, 0),
        ("sum", 11, 8, None),
        ("min", 1, 4, None),
        ("max", 4, 4, None),
        ("mean", Fraction(11, 4), 4, None),
        ("variance", Fraction(27, 16), 0, None),
        ("distinct", 3, 1, 0),
        ("quantiles", [1, 2, 4, 4], [4, 4], []),
        ("top", {1: 1, 2: 1, 4: 2}, {4: 2}, {}),
        ("first", 1, 4, None),
        ("last", 4, 4, None),
    ],
)
def test_measures_skip_nulls_and_what_their_condition_turns_away(
    kind: Kind, of_all: object, of_big: object, of_none: object
) -> None:
    measures = {"all": measure(kind), "big": measure(kind, "big"), "none": measure(kind, "absent")}
    assert values_of(measures, *MEASURED) == {"all": of_all, "big": of_big, "none": of_none}


@pytest.mark.parametrize(
    ("events", "first", "last"),
    [
        ([event(0, 0, "09:00:20", v="x"), event(0, 1, "09:00:10", v="y")], "y", "x"),
        ([event(1, 0, "09:00:10", v="x"), event(0, 9, "09:00:10", v="y")], "y", "x"),
        ([event(0, 10, "09:00:10", v="x"), event(0, 9, "09:00:10", v="y")], "y", "x"),
        ([event(0, 0, "09:00:10"), event(0, 1, "09:00:20", v="x"), event(0, 2, "09:00:30")], "x", "x"),
    ],
)
def test_first_and_last_go_by_event_time_then_partition_then_offset(
    events: list[Event], first: str, last: str
) -> None:
    measures = {"first": measure("first"), "last": measure("last")}
    assert values_of(measures, *events) == {"first": first, "last": last}


def test_sums_are_exact_for_decimals_and_doubles() -> None:
    prices = [event(0, i, "09:00:10", v=Decimal("0.1")) for i in range(3)]
    assert values_of({"sum": measure("sum")}, *prices) == {"sum": Fraction(3, 10)}
    doubles = [event(0, i, "09:00:10", v=v) for i, v in enumerate((1e16, 1.0, -1e16))]
    assert values_of({"sum": measure("sum")}, *doubles) == {"sum": 1}


def test_only_a_count_can_do_without_a_value() -> None:
    with pytest.raises(ValueError, match="needs a value"):
        MeasureSpec("sum")
