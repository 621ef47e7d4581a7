"""Sessions: the events of a key that follow one another without a long gap. Frozen values, no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from headrace.contracts.durations import format_duration, parse_duration
from headrace.errors import AppError, UsageError
from headrace.measures import Measure
from headrace.metrics import NAME, Metric
from headrace.windows import MICROSECOND, Window

OWN_COLUMNS = (
    *("session_start", "session_end", "last_event", "duration", "events"),
    *("state", "revision", "sealed", "watermark", "published_at", "updated_at"),
)
# Sketches and counts by item are merged in Python, row by row: too slow for as many rows as there are keys.
UNMERGED = ("distinct", "quantiles", "top")


@dataclass(frozen=True)
class Sessions:
    name: str
    of: str
    key: str
    gap: timedelta
    max_length: timedelta
    measures: Mapping[str, Measure]
    where: str = ""
    derived: Mapping[str, str] = field(default_factory=dict)
    preliminary_after: timedelta = timedelta()
    final_after: timedelta = timedelta(minutes=5)
    retain: timedelta = timedelta(days=7)
    declared_at: str = ""

    @property
    def gap_us(self) -> int:
        return self.gap // MICROSECOND

    @property
    def max_us(self) -> int:
        return self.max_length // MICROSECOND

    @property
    def final_us(self) -> int:
        return self.final_after // MICROSECOND

    @property
    def visible(self) -> tuple[str, ...]:
        """The columns of results, in the order of the declaration."""
        return (*self.measures, *self.derived)

    @property
    def measured(self) -> Metric:
        """What a session measures, as a metric with one group for each key: it is checked and read alike."""
        return Metric(
            *(self.name, self.of, Window(self.gap, self.gap), ((self.key,),), self.measures, self.where),
            *(self.derived, self.preliminary_after, self.final_after, self.retain),
            declared_at=self.declared_at,
            noun="sessions",
        )


def make_sessions(
    name: str,
    of: str,
    key: str,
    gap: str,
    max_length: str,
    measures: Mapping[str, Measure],
    where: str,
    derived: Mapping[str, str],
    preliminary_after: str,
    final_after: str,
    retain: str,
    declared_at: str,
) -> Sessions:
    """Raises AppError for what is wrong without looking at a contract."""
    try:
        times = [parse_duration(t) for t in (gap, max_length, preliminary_after, final_after, retain)]
    except UsageError as error:
        raise AppError(f"sessions '{name}': {error.what}", where=declared_at, hint=error.hint) from error
    made = Sessions(
        *(name, of, key, times[0], times[1], dict(measures), where, dict(derived)),
        *(times[2], times[3], times[4], declared_at),
    )
    _check_names(made)
    _check_measures(made)
    _check_times(made)
    return made


def _check_times(made: Sessions) -> None:
    name, where = made.name, made.declared_at
    if not made.gap:
        raise AppError(f"sessions '{name}' need a gap", where=where, hint='gap="30 minutes"')
    if made.max_length < made.gap:
        raise AppError(
            f"sessions '{name}': max_length is shorter than the gap of {format_duration(made.gap)}",
            where=where,
            hint="two events may be a gap apart: a session must have room for them",
        )
    if not made.final_after:
        raise AppError(
            f"sessions '{name}': final_after must be longer than nothing",
            where=where,
            hint="events of one key may come a little out of order: allow for it, like '1 minute'",
        )
    if made.preliminary_after > made.final_after:
        raise AppError(
            f"sessions '{name}': a row cannot be preliminary after it is final",
            where=where,
            hint=f"preliminary_after is {format_duration(made.preliminary_after)},"
            f" final_after is {format_duration(made.final_after)}",
        )


def _check_measures(made: Sessions) -> None:
    for name, measure in made.measures.items():
        if measure.kind in UNMERGED:
            raise AppError(
                f"sessions '{made.name}', {name}: {measure.kind} is not possible in sessions",
                where=made.declared_at,
                hint="count, sum, min, max, mean, variance, stddev, first and last are",
            )


def _check_names(made: Sessions) -> None:
    for what, names in (
        ("sessions", [made.name]),
        ("a measure", made.measures),
        ("a derived column", made.derived),
    ):
        for name in names:
            if not NAME.fullmatch(name):
                raise AppError(
                    f"'{name}' is no name for {what}",
                    where=made.declared_at,
                    hint="lower-case letters, digits and _, a letter first: it names a table or column",
                )
    columns = (*OWN_COLUMNS, made.key, *made.visible)
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice:
        raise AppError(
            f"sessions '{made.name}' have two columns '{twice}'",
            where=made.declared_at,
            hint=f"every table has {', '.join(OWN_COLUMNS)}; key and measures need other names",
        )
