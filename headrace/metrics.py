"""A metric: a windowed number with a name. Frozen values; checking against a contract happens later."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from headrace.contracts.durations import parse_duration
from headrace.errors import AppError, UsageError
from headrace.measures import Measure, quantile_name
from headrace.windows import MICROSECOND, Window

NAME = re.compile(r"[a-z][a-z0-9_]{0,50}")
OWN_COLUMNS = (
    *("window_start", "window_end", "grouping", "state", "revision"),
    *("events", "late_events", "watermark", "updated_at"),
)
GROWING = "__growing"  # how the table ends in which a running window with a trigger grows
LIMIT = 10_000


@dataclass(frozen=True)
class Metric:
    name: str
    of: str
    window: Window
    groupings: tuple[tuple[str, ...], ...]
    measures: Mapping[str, Measure]
    where: str = ""
    derived: Mapping[str, str] = field(default_factory=dict)
    preliminary_after: timedelta = timedelta()
    final_after: timedelta = timedelta(minutes=1)
    retain: timedelta = timedelta(days=7)
    limit: int = LIMIT  # groups of one window and grouping
    declared_at: str = ""
    noun: str = "metric"  # what errors call it

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Every field that some grouping uses, in order of appearance."""
        return tuple(dict.fromkeys(name for grouping in self.groupings for name in grouping))

    @property
    def final_us(self) -> int:
        return self.final_after // MICROSECOND

    @property
    def settles_after(self) -> timedelta:
        """How long after its start a window is final."""
        return self.window.size + self.final_after

    @property
    def visible(self) -> tuple[str, ...]:
        """The columns of results, in the order of the declaration."""
        shown: list[str] = []
        for name, measure in self.measures.items():
            shown += [quantile_name(name, r) for r in measure.ranks] if measure.ranks else [name]
        return (*shown, *self.derived)


def make_metric(
    name: str,
    of: str,
    window: Window,
    by: str | Sequence[str] | Sequence[Sequence[str]],
    measures: Mapping[str, Measure],
    where: str,
    derived: Mapping[str, str],
    preliminary_after: str,
    final_after: str,
    retain: str,
    limit: int,
    declared_at: str,
) -> Metric:
    """Raises AppError for what is wrong without looking at a contract."""
    _check_kinds(name, window, measures, declared_at)
    try:
        times = [parse_duration(text) for text in (preliminary_after, final_after, retain)]
    except UsageError as error:
        raise AppError(f"metric '{name}': {error.what}", where=declared_at, hint=error.hint) from error
    metric = Metric(
        *(name, of, window, _groupings(name, by, declared_at), dict(measures), where, dict(derived)),
        *(times[0], times[1], times[2], limit, declared_at),
    )
    _check_names(metric)
    if metric.preliminary_after > metric.final_after:
        raise AppError(
            f"metric '{name}': a row cannot be preliminary after it is final",
            where=declared_at,
            hint=f"preliminary_after is {preliminary_after}, final_after is {final_after}",
        )
    if not isinstance(limit, int) or limit < 1:
        raise AppError(f"metric '{name}': limit must be at least 1, not {limit!r}", where=declared_at)
    if not metric.retain:
        raise AppError(f"metric '{name}': retain must be longer than {retain}", where=declared_at)
    return metric


def _check_kinds(name: str, window: object, measures: Mapping[str, object], where: str) -> None:
    if not isinstance(window, Window):
        raise AppError(
            f"metric '{name}': {window!r} is no window", where=where, hint='window=tumbling("1 minute")'
        )
    for column, measure in measures.items():
        if not isinstance(measure, Measure):
            raise AppError(
                f"metric '{name}', {column}: {measure!r} is no measure",
                where=where,
                hint='like sum_of("price")',
            )


def _groupings(
    metric: str, by: str | Sequence[str] | Sequence[Sequence[str]], where: str
) -> tuple[tuple[str, ...], ...]:
    """`"region"` and `["region"]` are one grouping; `[[], "region"]` are two, the total and by region."""
    try:
        if isinstance(by, str):
            return ((by,),)
        if all(isinstance(name, str) for name in by):
            found: tuple[tuple[str, ...], ...] = (tuple(str(name) for name in by),)
        else:
            found = tuple(dict.fromkeys((g,) if isinstance(g, str) else tuple(g) for g in by))
    except TypeError:
        raise AppError(
            f"metric '{metric}', by: {by!r} is no list of fields",
            where=where,
            hint='by="region", by=["region", "kind"] or, for several groupings, by=[[], ["region"]]',
        ) from None
    for n, own in enumerate(found):
        if len(set(own)) < len(own):
            raise AppError(f"metric '{metric}', by: {list(own)} names a field twice", where=where)
        same = next((other for other in found[:n] if set(other) == set(own)), None)
        if same is not None:
            raise AppError(
                f"metric '{metric}', by: {list(same)} and {list(own)} are the same grouping", where=where
            )
    return found


def _check_names(metric: Metric) -> None:
    where = metric.declared_at
    if not metric.measures:
        raise AppError(
            f"metric '{metric.name}' measures nothing", where=where, hint='measures={"n": count()}'
        )
    for what, names in (
        ("metric", [metric.name]),
        ("measure", metric.measures),
        ("derived column", metric.derived),
    ):
        for name in names:
            if not NAME.fullmatch(name):
                raise AppError(
                    f"'{name}' is no name for a {what}",
                    where=where,
                    hint="lower-case letters, digits and _, a letter first: it names a table or column",
                )
    if metric.name.endswith(GROWING):
        raise AppError(
            f"'{metric.name}' is no name for a metric",
            where=where,
            hint=f"tables that end in {GROWING} belong to running windows with a trigger",
        )
    partial = next((name for name in (*metric.measures, *metric.derived) if "__" in name), None)
    if partial:
        raise AppError(
            f"metric '{metric.name}': '{partial}' is no name for a column",
            where=where,
            hint="columns with two underscores hold partial results",
        )
    columns = (*OWN_COLUMNS, *metric.dimensions, *metric.visible)
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice:
        raise AppError(
            f"metric '{metric.name}' has two columns '{twice}'",
            where=where,
            hint=f"every table has {', '.join(OWN_COLUMNS)}; dimensions and measures need other names",
        )
