"""A batch reduced to panes: for every metric, grouping and pane, partial results that can be merged.

One job for all metrics of a source, written as one SQL text that holds nothing that changes from batch to
batch, so that Spark compiles it once. All aggregations over fixed-size values are fused into one; a metric
with sketches, texts or positions has some of its own. A pane is as long as the hop of its window; an event is
in one pane, and the store spreads panes, not events, over sliding windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.metrics import Metric
from headrace.views.accepted import FEW, accepted_events
from headrace.views.aggregates import EVENTS, Aggregate, aggregates
from headrace.views.fused import Fused, FusedBranch, Wide
from headrace.views.resolve import ResolvedMetric

NONE, OTHER = "(none)", "(other)"  # labels of a missing value, and of the groups beyond the limit
NO_TEXT = "CAST(NULL AS STRING)"
Labels = tuple[str, ...]
Watermarks = dict[str, int | None]  # of the source before the batch, by kind of time


@dataclass
class Panes:
    """What one metric gets from a batch. A row: pane, missed windows, grouping, labels, values as text."""

    resolved: ResolvedMetric
    rows: list[tuple[int, int, int, Labels, Sequence[str | None]]] = field(default_factory=list)
    counts: dict[str, list[tuple[int, int, int, Labels, str, int]]] = field(default_factory=dict)  # top
    late: list[dict[str, Any]] = field(default_factory=list)
    accepted: int = 0
    filtered: int = 0

    @property
    def counted(self) -> int:
        return sum(n for n, missed in self._first_grouping() if missed < self.resolved.metric.window.panes)

    @property
    def too_late(self) -> int:
        return sum(n for n, missed in self._first_grouping() if missed >= self.resolved.metric.window.panes)

    def _first_grouping(self) -> list[tuple[int, int]]:
        return [(int(items[0] or 0), missed) for _, missed, grouping, _, items in self.rows if grouping == 0]


@dataclass(frozen=True)
class Branch:
    """One aggregation of the job: whose rows they are, by what they are grouped, and what is computed."""

    metric: int
    grouping: int
    top: str  # the measure whose items are counted, or none
    takes: str
    dims: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]

    @property
    def is_fixed(self) -> bool:
        return all(aggregate.type for aggregate in self.aggregates)


class PaneJob:
    """The job of one source."""

    def __init__(self, resolved: list[ResolvedMetric]) -> None:
        self._resolved = resolved
        self._branches = [b for n, r in enumerate(resolved) for b in _branches(n, r)]
        # Without watermarks, that is in nearly all batches, the text stays the same.
        self._usual = {few: _Text(resolved, self._branches, {}, few) for few in (True, False)}

    def reduce(self, session: SparkSession, watermarks: Watermarks, rows: int) -> list[Panes]:
        """`watermarks` holds only what could make an event of this batch miss a window by itself."""
        few = rows < FEW
        text = _Text(self._resolved, self._branches, watermarks, few) if watermarks else self._usual[few]
        query = session.sql(text.job)
        panes = [Panes(r) for r in self._resolved]
        found = (query.coalesce(1) if few else query).toArrow()
        numbers = found.column(0).to_numpy()
        for number in np.unique(numbers).tolist():
            mine = found.filter(pa.array(numbers == number))
            if number < 0:
                [counts] = _texts(mine, range(text.width.dims, text.width.dims + 1 + len(panes)))
                for part, filtered in zip(panes, counts[1:], strict=True):
                    part.accepted, part.filtered = int(counts[0] or 0), int(filtered or 0)
                continue
            branch = self._branches[number]
            items = [text.width.dims + n for n in text.places(number, branch)]
            _take(panes[branch.metric], branch, mine, items)
        if any(missed for mine in panes for _, missed, *_ in mine.rows):
            for row in session.sql(text.late).toArrow().to_pylist():
                panes[row["metric"]].late.append(row)
        return panes


class _Text:
    """The SQL of the job for given watermarks, and where its rows keep what."""

    def __init__(
        self, resolved: list[ResolvedMetric], branches: list[Branch], watermarks: Watermarks, few: bool
    ) -> None:
        places = [_Place(r.metric, watermarks) for r in resolved]
        fixed = {n: b for n, b in enumerate(branches) if b.is_fixed}
        self.fused = Fused([_fused(n, b, places[b.metric]) for n, b in fixed.items()])
        dims, items = self.fused.width
        self.width = Width(
            max([dims, *[len(b.dims) for b in branches]]),
            max([items, len(resolved) + 1, *[len(b.aggregates) for b in branches]]),
        )
        own = [_alone(n, b, places[b.metric], self.width) for n, b in enumerate(branches) if not b.is_fixed]
        shared = [self.fused.select("accepted", self.width.columns)] if fixed else []
        parts = " UNION ALL ".join([_totals(resolved, self.width), *shared, *own])
        self.job = f"WITH {accepted_events(few)} {parts}"
        self.late = _late(resolved, places)

    def places(self, number: int, branch: Branch) -> Sequence[int]:
        """Which items of a row are the results of a branch, in the order of its aggregates."""
        return self.fused.places(number) if branch.is_fixed else range(len(branch.aggregates))


def _fused(number: int, branch: Branch, place: _Place) -> FusedBranch:
    return FusedBranch(number, branch.takes, place.pane, place.missed, branch.dims, branch.aggregates)


@dataclass(frozen=True)
class Width:
    """All rows of the job have the same columns: texts, which cost less in Python than lists of texts."""

    dims: int
    items: int

    def columns(self, dims: Sequence[str], items: Sequence[str]) -> str:
        labels = [LABEL.format(dim) for dim in dims] + [NO_TEXT] * (self.dims - len(dims))
        texts = [*labels, *items, *[NO_TEXT] * (self.items - len(items))]
        return ", ".join(f"{text} AS t{n}" for n, text in enumerate(texts))


def _texts(rows: pa.Table, places: Iterable[int]) -> Iterable[tuple[Any, ...]]:
    """Some of the text columns, row by row."""
    columns = [rows.column(3 + place).to_pylist() for place in places]
    return zip(*columns, strict=True) if columns else repeat((), rows.num_rows)


class _Place:
    """Where an event belongs in a metric: its pane, and how many of its windows are over for it."""

    def __init__(self, metric: Metric, watermarks: Watermarks) -> None:
        window = metric.window
        by_event = window.time == "event"
        time = "__event_time" if by_event else "__log_time"
        clock = "__clock" if by_event else "CAST(NULL AS BIGINT)"
        known = watermarks.get(window.time)
        self.pane = f"({time} - pmod({time}, {window.hop_us}L))"
        self.limit = clock if known is None else f"greatest({clock}, {known}L)"
        self.missed, self.missed_by_clock = self._missed(metric, self.limit), self._missed(metric, clock)

    def _missed(self, metric: Metric, now: str) -> str:
        hop = metric.window.hop_us
        # The window that ends first ends with the pane; each further one a hop later.
        over = f"floor(({now} - {metric.final_us}L - {self.pane} - {hop}L) / {hop}L) + 1"
        return f"CAST(coalesce(least(greatest({over}, 0), {metric.window.panes}), 0) AS INT)"


def _branches(number: int, resolved: ResolvedMetric) -> list[Branch]:
    metric = resolved.metric
    takes = f"({metric.where})" if metric.where else "true"
    values = [EVENTS]
    for name, measure in metric.measures.items():
        values += aggregates(measure, resolved.types.get(name, ""))
    found = []
    for n, grouping in enumerate(metric.groupings):
        dims = tuple(f"`{name}`" for name in grouping)
        found.append(Branch(number, n, "", takes, dims, tuple(values)))
        for name, measure in metric.measures.items():
            if measure.kind == "top":
                item = f"({measure.expression})"
                kept = f"{takes} AND {item} IS NOT NULL" + (
                    f" AND ({measure.where})" if measure.where else ""
                )
                found.append(Branch(number, n, name, kept, (*dims, item), (EVENTS,)))
    return found


# A real value that looks like one of our labels gets a backslash, so that the two stay apart.
LABEL = rf"coalesce(CASE WHEN startswith({{0}}, '(') THEN concat('\\', {{0}}) ELSE {{0}} END, '{NONE}')"


def _alone(number: int, branch: Branch, place: _Place, width: Width) -> str:
    """A branch as an aggregation of its own."""
    keys = [f"__d{n}" for n in range(len(branch.dims))]
    dims = "".join(f", CAST({dim} AS STRING) AS {key}" for dim, key in zip(branch.dims, keys, strict=True))
    rows = f"SELECT *, {place.pane} AS __pane, {place.missed} AS __missed{dims} FROM accepted"
    shown = width.columns(keys, [aggregate.text for aggregate in branch.aggregates])
    return (
        f"SELECT {number} AS branch, __pane AS pane, __missed AS missed, {shown}"
        f" FROM ({rows} WHERE {branch.takes}) GROUP BY {', '.join(['__pane', '__missed', *keys])}"
    )


def _totals(resolved: list[ResolvedMetric], width: Width) -> str:
    """How many events there are, and for each metric how many its condition leaves out."""
    out = [f"count_if(NOT coalesce(({r.metric.where}), false))" if r.metric.where else "0" for r in resolved]
    counts = [f"CAST({count} AS STRING)" for count in ("count(*)", *out)]
    return f"SELECT -1 AS branch, 0L AS pane, 0 AS missed, {width.columns((), counts)} FROM accepted"


def _late(resolved: list[ResolvedMetric], places: list[_Place]) -> str:
    """The events that missed a window, once for each metric in which they did."""
    wide = Wide()
    rows = []
    for n, (r, place) in enumerate(zip(resolved, places, strict=True)):
        takes = f"coalesce(({r.metric.where}), false)" if r.metric.where else "true"
        own = (str(n), takes, place.pane, place.missed, place.missed_by_clock, place.limit)
        rows.append(f"({', '.join(wide.name(text) for text in own)}) AS m{n}")
    ids = ("event_id", "partition", "offset", "event_time")
    kept = ("substring(__id, 2)", "__partition", "__offset", "__event_time")
    events = ", ".join(f"{text} AS {name}" for text, name in zip(kept, ids, strict=True))
    source = f"SELECT {events}, {wide.columns()} FROM accepted"
    columns = "metric, takes, pane, missed, missed_by_clock, clock"
    return (
        f"WITH {accepted_events(False)} SELECT * EXCEPT (named, takes) FROM ({source})"
        f" UNPIVOT INCLUDE NULLS (({columns}) FOR named IN ({', '.join(rows)})) WHERE takes AND missed > 0"
    )


def _take(mine: Panes, branch: Branch, rows: pa.Table, items: Sequence[int]) -> None:
    """The rows of a branch; only the columns that it uses become Python's."""
    panes, missed = rows.column(1).to_numpy().tolist(), rows.column(2).to_numpy().tolist()
    groups = repeat(branch.grouping, rows.num_rows)
    labels, values = _texts(rows, range(len(branch.dims))), _texts(rows, items)
    if branch.top:
        mine.counts.setdefault(branch.top, []).extend(
            (pane, out, group, own[:-1], own[-1], int(count or 0))
            for pane, out, group, own, (count,) in zip(panes, missed, groups, labels, values, strict=True)
        )
    else:
        mine.rows.extend(zip(panes, missed, groups, labels, values, strict=True))
