"""A batch reduced to panes: for every metric, grouping and pane, partial results that can be merged.

One job for all metrics of a source, written as one SQL text: it is made once, so that a batch costs one
analysis, and it holds nothing that changes from batch to batch, so that Spark compiles it once. A pane is as
long as the hop of its window; an event is in one pane, and the store spreads panes, not events, over sliding
windows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.fates import ACCEPTED
from headrace.measures import HLL_LG_K, Measure
from headrace.metrics import Metric
from headrace.views.resolve import ResolvedMetric

NONE, OTHER = "(none)", "(other)"  # labels of a missing value, and of the groups beyond the limit
FEW = 50_000  # rows that one task reduces sooner than a shuffle would
PLACE = "struct(__event_time, __partition, __offset)"
Watermarks = dict[str, int | None]  # of the source before the batch, by kind of time


@dataclass
class Panes:
    """What one metric gets from a batch. A row: pane, missed windows, grouping, labels, values as text."""

    resolved: ResolvedMetric
    rows: list[tuple[int, int, int, list[str], list[str | None]]] = field(default_factory=list)
    counts: dict[str, list[tuple[int, int, int, list[str], str, int]]] = field(default_factory=dict)  # top
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
    """One aggregation of the job: whose rows they are, and its SQL."""

    metric: int
    grouping: int
    top: str
    text: str


class PaneJob:
    """The job of one source."""

    def __init__(self, resolved: list[ResolvedMetric]) -> None:
        self._resolved = resolved
        self._branches = [b for n, r in enumerate(resolved) for b in _branches(n, r)]

    def reduce(self, judged: DataFrame, watermarks: Watermarks, rows: int) -> list[Panes]:
        """`watermarks` holds only what could make an event of this batch miss a window by itself."""
        session = judged.sparkSession
        judged.createOrReplaceTempView("judged")
        few = rows < FEW
        query = session.sql(self._text(watermarks, few))
        panes = [Panes(r) for r in self._resolved]
        for row in (query.coalesce(1) if few else query).toArrow().to_pylist():
            if row["branch"] < 0:
                for pane, filtered in zip(panes, row["items"][1:], strict=True):
                    pane.accepted, pane.filtered = int(row["items"][0]), int(filtered)
            else:
                _take(panes, self._branches[row["branch"]], row)
        for n, mine in enumerate(panes):
            if any(missed for _, missed, *_ in mine.rows):
                mine.late = self._late_rows(session, n, watermarks)
        return panes

    def _text(self, watermarks: Watermarks, few: bool) -> str:
        branches = [
            f"SELECT {n} AS branch, __pane AS pane, __missed AS missed, {branch.text}"
            for n, branch in enumerate(self._branches)
        ]
        return f"{self._tables(watermarks, few)} {_totals(self._resolved)} UNION ALL " + " UNION ALL ".join(
            branches
        )

    def _tables(self, watermarks: Watermarks, few: bool) -> str:
        hint = "/*+ COALESCE(1) */" if few else ""
        own = (
            "partition AS __partition, offset AS __offset, event_time AS __event_time, clock AS __clock,"
            " unix_micros(log_time) AS __log_time, dedupe_id AS __id, fields.*"
        )
        accepted = f"accepted AS (SELECT {hint} {own} FROM judged WHERE fate = {ACCEPTED})"
        taken = [f"m{n} AS ({_taken(r.metric, watermarks)})" for n, r in enumerate(self._resolved)]
        return f"WITH {', '.join([accepted, *taken])}"

    def _late_rows(self, session: SparkSession, number: int, watermarks: Watermarks) -> list[dict[str, Any]]:
        late = session.sql(
            f"{self._tables(watermarks, False)} SELECT substring(__id, 2) AS event_id,"
            " __partition AS partition, __offset AS offset, __event_time AS event_time, __pane AS pane,"
            " __missed AS missed, __missed_by_clock AS missed_by_clock, __limit AS clock"
            f" FROM m{number} WHERE __missed > 0"
        )
        return list(late.toArrow().to_pylist())


def _taken(metric: Metric, watermarks: Watermarks) -> str:
    """The events that the metric takes, with pane and number of windows that are over for them."""
    window = metric.window
    by_event = window.time == "event"
    time = "__event_time" if by_event else "__log_time"
    clock = "__clock" if by_event else "CAST(NULL AS BIGINT)"
    known = watermarks.get(window.time)
    limit = f"greatest({clock}, {'CAST(NULL AS BIGINT)' if known is None else f'{known}L'})"
    pane = f"({time} - pmod({time}, {window.hop_us}L))"

    def missed(now: str) -> str:
        # The window that ends first ends with the pane; each further one a hop later.
        over = f"floor(({now} - {metric.final_us}L - {pane} - {window.hop_us}L) / {window.hop_us}L) + 1"
        return f"CAST(coalesce(least(greatest({over}, 0), {window.panes}), 0) AS INT)"

    return (
        f"SELECT *, {pane} AS __pane, {limit} AS __limit, {missed(limit)} AS __missed,"
        f" {missed(clock)} AS __missed_by_clock FROM accepted"
        + (f" WHERE ({metric.where})" if metric.where else "")
    )


def _branches(number: int, resolved: ResolvedMetric) -> list[Branch]:
    metric = resolved.metric
    values = ["CAST(count(*) AS STRING)"]
    for name, measure in metric.measures.items():
        values += _aggregate(measure, resolved.types.get(name, ""))
    found = []
    for n, grouping in enumerate(metric.groupings):
        keys = ", ".join(["__pane", "__missed", *[f"`{name}`" for name in grouping]])
        labels = ", ".join(_label(f"`{name}`") for name in grouping)
        dims = f"CAST(array({labels}) AS array<string>) AS dims"
        text = f"{dims}, array({', '.join(values)}) AS items FROM m{number} GROUP BY {keys}"
        found.append(Branch(number, n, "", text))
        for name, measure in metric.measures.items():
            if measure.kind == "top":
                item = f"CAST(({measure.expression}) AS STRING)"
                kept = f" AND ({measure.where})" if measure.where else ""
                counted = (
                    f"{dims}, array({_label('__item')}, CAST(count(*) AS STRING)) AS items FROM"
                    f" (SELECT *, {item} AS __item FROM m{number} WHERE {item} IS NOT NULL{kept})"
                    f" GROUP BY {keys}, __item"
                )
                found.append(Branch(number, n, name, counted))
    return found


def _label(value: str) -> str:
    """A real value that looks like one of our labels gets a backslash, so that the two stay apart."""
    text = f"CAST({value} AS STRING)"
    escaped = rf"CASE WHEN startswith({text}, '(') THEN concat('\\', {text}) ELSE {text} END"
    return f"coalesce({escaped}, '{NONE}')"


def _aggregate(measure: Measure, type_: str) -> list[str]:
    """The partial results of a measure as texts, in the order of its parts."""
    if measure.kind == "count":
        return [_text(f"count({_if(measure, '1')})")]
    value = _if(measure, f"({measure.expression})")
    place = f"CASE WHEN {value} IS NOT NULL THEN {PLACE} END"
    match measure.kind:
        case "sum":
            return [_text(f"sum({_exact(value, type_)})")]
        case "mean":
            return [_text(f"sum({_exact(value, type_)})"), _text(f"count({value})")]
        case "variance" | "stddev":
            rounded = f"try_cast({value} AS DECIMAL(14,4))"
            return [
                _text(f"{what})")
                for what in (f"sum({rounded}", f"sum({rounded} * {rounded}", f"count({rounded}")
            ]
        case "min" | "max":
            return [_text(f"{measure.kind}({value})")]
        case "first":
            return [_text(f"min_by({value}, {place})"), _place(f"min({place})")]
        case "last":
            return [_text(f"max_by({value}, {place})"), _place(f"max({place})")]
        case "distinct":
            return [f"hex(hll_sketch_agg(CAST({value} AS STRING), {HLL_LG_K}))"]
        case "quantiles":
            return [f"hex(kll_sketch_agg_double(CAST({value} AS DOUBLE)))"]
        case _:
            return []


def _if(measure: Measure, value: str) -> str:
    return f"CASE WHEN ({measure.where}) THEN {value} END" if measure.where else value


def _exact(value: str, type_: str) -> str:
    if type_ == "double":
        return f"try_cast({value} AS DECIMAL(28,10))"
    return value if type_.startswith("decimal") else f"CAST({value} AS DECIMAL(20,0))"


def _text(value: str) -> str:
    return f"CAST({value} AS STRING)"


def _place(place: str) -> str:
    parts = ", ".join(f"{place}.{name}" for name in ("__event_time", "__partition", "__offset"))
    return f"CASE WHEN {place} IS NOT NULL THEN concat('{{', concat_ws(',', {parts}), '}}') END"


def _totals(resolved: list[ResolvedMetric]) -> str:
    """How many events there are, and for each metric how many its condition leaves out."""
    out = [f"count_if(NOT coalesce(({r.metric.where}), false))" if r.metric.where else "0" for r in resolved]
    counts = ", ".join(_text(c) for c in ("count(*)", *out))
    return (
        "SELECT -1 AS branch, 0L AS pane, 0 AS missed, CAST(array() AS array<string>) AS dims,"
        f" array({counts}) AS items FROM accepted"
    )


def _take(panes: list[Panes], branch: Branch, row: dict[str, Any]) -> None:
    mine = panes[branch.metric]
    place = (row["pane"], row["missed"], branch.grouping, row["dims"])
    if branch.top:
        item, count = row["items"]
        mine.counts.setdefault(branch.top, []).append((*place, item, int(count)))
    else:
        mine.rows.append((*place, row["items"]))
