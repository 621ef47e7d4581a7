"""The partial results of a batch's tasks become the rows that it adds to each metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.views.pane_plan import Branch, PanePlan
from headrace.views.pane_rows import NONE, PaneRows, Texts
from headrace.views.pane_task import LATE, MERGED, TOTALS

SKETCHES = ("distinct", "quantiles")


class Reduced:
    """The partial results of all tasks of a job, to be merged branch by branch."""

    def __init__(self, plan: PanePlan, results: Sequence[tuple[int, bytes]]) -> None:
        self._plan = plan
        self._tables: dict[int, list[pa.Table]] = {}
        for number, table in results:
            self._tables.setdefault(number, []).append(pa.ipc.open_stream(table).read_all())
        totals = [table.column("n").to_numpy() for table in self._tables.get(TOTALS, ())]
        counts = sum(totals, np.zeros(len(plan.takes) + 1, np.int64)).tolist()
        self.accepted, self.filtered = int(counts[0]), counts[1:]

    def late(self, metric: int) -> list[dict[str, Any]]:
        rows = [row for table in self._tables.get(LATE, ()) for row in table.to_pylist()]
        return [row for row in rows if row["metric"] == metric]

    def rows(self, number: int) -> PaneRows | None:
        if number not in self._tables:
            return None
        branch = self._plan.branches[number]
        table = _merged(branch, self._tables[number])
        # In the order of the primary key: Postgres then adds to its index page by page.
        table = table.sort_by(
            [(name, "ascending") for name in ("pane", *[f"d{n}" for n, _ in enumerate(branch.dims)])]
        )
        labels = [_label(table.column(f"d{n}")) for n, _ in enumerate(branch.dims)]
        values = [table.column(f"a{n}") for n, _ in enumerate(branch.hows)]
        panes, missed, events = (table.column(name).to_numpy() for name in ("pane", "missed", "a0"))
        return PaneRows(branch.grouping, panes, missed, events, labels, values, branch.hows)


def _merged(branch: Branch, tables: Sequence[pa.Table]) -> pa.Table:
    """One row for each group; sketches stay apart, since Postgres's are merged with them anyway."""
    names = tables[0].column_names
    keys = names[: len(names) - len(branch.hows)]
    asked: list[Any] = [(f"a{n}", MERGED[how]) for n, how in enumerate(branch.hows)]
    if len(tables) == 1 and not any(h in SKETCHES for h in branch.hows):
        return tables[0].combine_chunks()
    merged = pa.concat_tables(tables).group_by(keys, use_threads=False).aggregate(asked)
    return merged.rename_columns(names).combine_chunks()


def _label(values: Any) -> Texts:
    """A real value that looks like one of our labels gets a backslash, so that the two stay apart.

    A NUL cannot be kept in Postgres, neither in a text nor in JSON.
    """
    if pc.any(pc.match_substring_regex(values, r"\x00")).as_py():
        values = pc.replace_substring(values, "\0", "\N{REPLACEMENT CHARACTER}")
    like_ours = pc.fill_null(pc.starts_with(values, "("), False)
    if pc.any(like_ours).as_py():
        parts: Any = (pa.scalar("\\"), values, "")
        values = pc.if_else(like_ours, pc.binary_join_element_wise(*parts), values)
    return pc.fill_null(values, NONE) if values.null_count else values
