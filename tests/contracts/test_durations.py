from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts import parse_duration
from headrace.contracts.durations import format_duration
from headrace.errors import UsageError

MILLIS = {
    "ms": 1,
    "s": 1000,
    "seconds": 1000,
    "min": 60_000,
    "Hours": 3_600_000,
    "d": 86_400_000,
    "week": 604_800_000,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 minutes", timedelta(minutes=10)),
        ("1 hour", timedelta(hours=1)),
        ("2 days", timedelta(days=2)),
        ("90 s", timedelta(seconds=90)),
        ("90s", timedelta(seconds=90)),
        ("  1.5 Hours ", timedelta(minutes=90)),
        ("0 seconds", timedelta(0)),
        ("250ms", timedelta(milliseconds=250)),
    ],
)
def test_what_people_write(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "not a duration"),
        ("10", "not a duration"),
        ("minutes", "not a duration"),
        ("-5 minutes", "not a duration"),
        ("1e3 s", "not a duration"),
        ("٣ minutes", "not a duration"),
        ("1 hour 30 minutes", "not a duration"),
        ("10 m", "write 'min' for minutes"),
        ("1 month", "no fixed length"),
        ("1 year", "no fixed length"),
        ("5 parsecs", "'parsecs' is not a unit of time"),
        ("0.1 ms", "finer than a millisecond"),
        ("101 years", "no fixed length"),
        ("36501 days", "longer than 100 years"),
        ("9" * 400 + " s", "not a duration"),
        (5, "5 is not a duration"),
        (None, "None is not a duration"),
    ],
)
def test_nonsense_is_refused_with_a_reason(text: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration(text)
    assert part in str(caught.value)
    assert len(str(caught.value)) < 200


@given(st.integers(0, 5_000), st.sampled_from(sorted(MILLIS)), st.sampled_from(["", " ", "  "]))
def test_a_whole_number_of_units_is_that_many_milliseconds(count: int, unit: str, space: str) -> None:
    assert parse_duration(f"{count}{space}{unit}") == timedelta(milliseconds=count * MILLIS[unit])


@given(st.integers(0, 10**11))
def test_a_duration_survives_being_written_down(millis: int) -> None:
    duration = timedelta(milliseconds=millis)
    assert parse_duration(format_duration(duration)) == duration


@given(st.text(max_size=30))
def test_any_text_is_a_duration_or_a_clear_error(text: str) -> None:
    try:
        assert parse_duration(text) >= timedelta(0)
    except UsageError as error:
        assert error.what
