"""A batch reduced to panes: for every metric, grouping and pane, partial results that can be merged.

One job for all metrics of a source. Spark evaluates each expression of any of them once for every event, and
hands the columns to its Python workers, where Arrow aggregates them, many times faster than rows could be
unpivoted and hashed one by one. A pane is as long as the hop of its window; an event is in one pane, and the
store spreads panes, not events, over sliding windows.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pyspark.sql import SparkSession

from headrace.gate.look import RESULT, Guess, Results
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
        self._merging = ThreadPoolExecutor(2, thread_name_prefix="panes")
        self.guess = Guess(self._guess_sql(), partial(reduce_events, self._plan, {}))

    def reduce(self, session: SparkSession, watermarks: Watermarks, rows: int) -> list[Panes]:
        """`watermarks` holds only what could make an event of this batch miss a window by itself."""
        # Only an event that misses a window is named, and without watermarks only one with a clock can.
        can_miss = "true" if watermarks else "__clock IS NOT NULL"
        named = f"CASE WHEN {can_miss} THEN substring(__id, 2) END AS event_id"
        select = ", ".join([*OWN, named, *self._columns])
        accepted = accepted_events(rows < FEW, with_fields=self._uses_fields)
        events = session.sql(f"WITH {accepted} SELECT {select} FROM accepted")
        found = events.mapInArrow(partial(reduce_events, self._plan, watermarks), RESULT)
        return self.take([(row[0], row[1]) for row in found.collect()])

    def take(self, results: Results) -> list[Panes]:
        """The results of all tasks as the panes of each metric."""
        reduced = Reduced(self._plan, results)
        panes = [Panes(r, late=reduced.late(n)) for n, r in enumerate(self._resolved)]
        for part, filtered in zip(panes, reduced.filtered, strict=True):
            part.accepted, part.filtered = reduced.accepted, filtered
        branches = self._plan.branches
        # Arrow works outside of Python's lock, and nothing else runs meanwhile.
        for branch, merged in zip(
            branches, self._merging.map(reduced.rows, range(len(branches))), strict=True
        ):
            if merged is not None:
                part = panes[branch.metric]
                (part.counts.setdefault(branch.top, []) if branch.top else part.rows).append(merged)
        return panes

    def _guess_sql(self) -> str:
        """The same columns while a batch is looked at, as if none of its events missed anything."""
        own = (
            "partition AS __partition, offset AS __offset, event_time AS __event_time,"
            " CAST(NULL AS BIGINT) AS __clock, unix_micros(log_time) AS __log_time,"
            " reasons IS NULL AS __sound, octet_length(value) AS __length"
        ) + (", fields.*" if self._uses_fields else "")
        timed = ("CASE WHEN __sound THEN __event_time END AS event_time", *OWN[1:])
        more = ("CAST(NULL AS STRING) AS event_id", "__sound AS sound", "__length AS length")
        return f"SELECT {', '.join([*timed, *more, *self._columns])} FROM (SELECT {own} FROM held)"
