"""What a batch adds to a metric, as columns: a large batch has a row for almost every event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.views.resolve import ResolvedMetric

NONE, OTHER = "(none)", "(other)"  # labels of a missing value, and of the groups beyond the limit
NO_PANES = np.empty(0, np.int64)
Labels = tuple[str, ...]
Texts = Any  # an array of Arrow, in chunks or whole


@dataclass(frozen=True)
class PaneRows:
    """The rows of one grouping, in the order of panes; `missed` windows are over for them.

    `hows` tells how each of the values was aggregated; the first is the number of events. Sketches are lists,
    with one from each part of the batch.
    """

    grouping: int
    panes: npt.NDArray[np.int64]
    missed: npt.NDArray[np.int64]
    events: npt.NDArray[np.int64]
    labels: Sequence[Texts]
    values: Sequence[Any]  # columns of Arrow
    hows: Sequence[str]

    def __len__(self) -> int:
        return len(self.panes)

    def where(self, kept: npt.NDArray[np.bool_]) -> PaneRows:
        mask = pa.array(kept)
        return PaneRows(
            *(self.grouping, self.panes[kept], self.missed[kept], self.events[kept]),
            [column.filter(mask) for column in self.labels],
            [column.filter(mask) for column in self.values],
            self.hows,
        )

    def one_by_one(self, value: int) -> Iterator[tuple[int, int, Labels, Any]]:
        """Pane, missed windows, labels and one of the values of each row, for what only Python can merge."""
        labels = zip(*[column.to_pylist() for column in self.labels], strict=True)
        none: Iterator[Labels] = iter([()] * len(self))
        values = self.values[value].to_pylist()
        places = (self.panes.tolist(), self.missed.tolist(), labels if self.labels else none, values)
        return zip(*places, strict=True)


@dataclass
class Panes:
    """What one metric gets from a batch."""

    resolved: ResolvedMetric
    rows: list[PaneRows] = field(default_factory=list)
    counts: dict[str, list[PaneRows]] = field(default_factory=dict)  # of a top; the last label is the item
    late: list[dict[str, Any]] = field(default_factory=list)
    accepted: int = 0
    filtered: int = 0

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The panes that the batch touches."""
        return np.unique(np.concatenate([NO_PANES, *[rows.panes for rows in self.rows]]))

    @property
    def counted(self) -> int:
        return sum(int(rows.events[~self._over(rows)].sum()) for rows in self._first_grouping())

    @property
    def too_late(self) -> int:
        return sum(int(rows.events[self._over(rows)].sum()) for rows in self._first_grouping())

    def _over(self, rows: PaneRows) -> npt.NDArray[np.bool_]:
        over: npt.NDArray[np.bool_] = rows.missed >= self.resolved.metric.window.panes
        return over

    def _first_grouping(self) -> list[PaneRows]:
        return [rows for rows in self.rows if rows.grouping == 0]
