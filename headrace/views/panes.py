"""A batch reduced to panes: for every metric, grouping and pane, partial results that can be merged.

One job for all metrics of a source. Spark evaluates each expression of any of them once for every event, and
hands the columns to its Python workers, where Arrow aggregates them, many times faster than rows could be
unpivoted and hashed one by one. A pane is as long as the hop of its window; an event is in one pane, and the
store spreads panes, not events, over sliding windows.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import SparkSession

from headrace.views.accepted import FEW, accepted_events
from headrace.views.pane_merge import Reduced
from headrace.views.pane_plan import Columns, Watermarks, make_plan
from headrace.views.pane_rows import Panes
from headrace.views.pane_task import reduce_events
from headrace.views.resolve import ResolvedMetric

OWN = (
    "__event_time AS event_time",
    "__log_time AS log_time",
    "__clock AS clock",
    "__partition AS partition",
    "__offset AS offset",
)


class PaneJob:
    """The job of one source."""

    def __init__(self, resolved: list[ResolvedMetric]) -> None:
        self._resolved = resolved
        columns = Columns()
        self._plan = make_plan(resolved, columns)
        self._columns = columns.select()
        self._uses_fields = any(r.fields for r in resolved)

    def reduce(self, session: SparkSession, watermarks: Watermarks, rows: int) -> list[Panes]:
        """`watermarks` holds only what could make an event of this batch miss a window by itself."""
        # Only an event that misses a window is named, and without watermarks only one with a clock can.
        named = (
            "substring(__id, 2)"
            if watermarks
            else "CASE WHEN __clock IS NOT NULL THEN substring(__id, 2) END"
        )
        select = ", ".join([*OWN, f"{named} AS event_id", *self._columns])
        accepted = accepted_events(rows < FEW, with_fields=self._uses_fields)
        events = session.sql(f"WITH {accepted} SELECT {select} FROM accepted")
        found = events.mapInArrow(partial(reduce_events, self._plan, watermarks), "branch int, rows binary")
        reduced = Reduced(self._plan, [(row[0], row[1]) for row in found.collect()])
        panes = [Panes(r, late=reduced.late(n)) for n, r in enumerate(self._resolved)]
        for part, filtered in zip(panes, reduced.filtered, strict=True):
            part.accepted, part.filtered = reduced.accepted, filtered
        for number, branch in enumerate(self._plan.branches):
            merged = reduced.rows(number)
            if merged is not None:
                part = panes[branch.metric]
                (part.counts.setdefault(branch.top, []) if branch.top else part.rows).append(merged)
        return panes
