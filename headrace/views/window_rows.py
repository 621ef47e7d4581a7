"""Panes spread over their windows: what a batch adds to each row of a metric's table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.views.pane_rows import PaneRows, Texts
from headrace.views.pane_task import MERGED, WHERE
from headrace.windows import MICROSECOND, Window

AT_ONCE = 250_000  # rows of panes that are spread together: a sliding window multiplies them
ALIKE = r"^\\|\x{FFFD}"  # how names begin, or what they hold, that were not written as they are
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WindowRows:
    """Rows of whole windows, one for each group of a grouping, with texts as COPY reads them.

    `events` were in time for the window; `late` missed it, and are in none of the values.
    """

    grouping: int
    starts: Int64s
    events: Texts
    late: Texts
    labels: Sequence[Texts]
    values: Sequence[Texts]


def spread(rows: PaneRows, window: Window, asked: Sequence[int], starts: Int64s) -> Iterator[WindowRows]:
    """The rows of the windows that begin at `starts`, with the values that are asked for, by their places."""
    hows = [rows.hows[n] for n in asked]
    if window.panes == 1 and not rows.missed.any() and not _may_coincide(rows):
        asked_for = np.isin(rows.panes, starts)
        mine = rows if asked_for.all() else rows.where(asked_for)
        values = [as_texts(how, mine.values[n]) for how, n in zip(hows, asked, strict=True)]
        none = pa.repeat("0", len(mine))
        yield WindowRows(rows.grouping, mine.panes, _counts(mine.values[0]), none, mine.labels, values)
        return
    keys = ["start", *[f"d{n}" for n, _ in enumerate(rows.labels)]]
    sums: list[Any] = [("events", "sum"), ("late", "sum")]
    sums += [(f"a{n}", MERGED[how]) for n, how in enumerate(hows)]
    for begins, places in _pieces(rows, window, starts):
        table = _expanded(rows, window, asked, begins, places)
        merged: Any = (
            table.group_by(keys, use_threads=False).aggregate(sums).sort_by([(k, "ascending") for k in keys])
        )
        labels = [merged.column(key) for key in keys[1:]]
        events, late, *values = (merged.column(len(keys) + n) for n in range(len(sums)))
        texts = [as_texts(how, column) for how, column in zip(hows, values, strict=True)]
        begun = merged.column("start").to_numpy()
        yield WindowRows(rows.grouping, begun, _counts(events), _counts(late), labels, texts)


def _pieces(rows: PaneRows, window: Window, starts: Int64s) -> Iterator[tuple[Int64s, Int64s]]:
    """For some windows at a time, the starts and the rows of their panes: those are in the order of panes."""
    firsts = np.searchsorted(rows.panes, starts)
    ends = np.searchsorted(rows.panes, starts + window.size // MICROSECOND)
    counts = ends - firsts
    piece = np.cumsum(counts) // AT_ONCE
    for number in np.unique(piece[counts > 0]):
        mine = np.flatnonzero((piece == number) & (counts > 0))
        places = np.concatenate([np.arange(firsts[n], ends[n]) for n in mine])
        yield np.repeat(starts[mine], counts[mine]), places


def _expanded(
    rows: PaneRows, window: Window, asked: Sequence[int], begins: Int64s, places: Int64s
) -> pa.Table:
    """A row for each pane and window; of what missed the window only the number counts."""
    first = rows.panes[places] + window.hop_us - window.size // MICROSECOND  # the window that ends first
    is_late = (begins - first) // window.hop_us < rows.missed[places]
    events = rows.events[places]
    columns: dict[str, Any] = {
        "start": begins,
        **{f"d{n}": column.take(pa.array(places)) for n, column in enumerate(rows.labels)},
        "events": np.where(is_late, 0, events),
        "late": np.where(is_late, events, 0),
    }
    in_time = pa.array(places, mask=is_late)
    for n, place in enumerate(asked):
        columns[f"a{n}"] = rows.values[place].take(in_time)
    return pa.table(columns)


def as_texts(how: str, values: Any) -> Texts:
    if how == "count":
        return _counts(values)
    if how not in ("first", "first_at", "last", "last_at"):
        return pc.cast(values, pa.string())
    # Bytes of each row by itself: slices of columns of bytes fail in Arrow 26 where a value is missing.
    rows: list[bytes | None] = values.to_pylist()
    cut = WHERE.itemsize
    if how in ("first", "last"):
        return pa.array([row[cut:].decode() if row is not None else None for row in rows], pa.string())
    return pa.array([_place(row[:cut]) if row is not None else None for row in rows], pa.string())


def _counts(values: Any) -> Texts:
    return pc.cast(pc.fill_null(values, pa.scalar(0)), pa.string())


def _place(packed: bytes) -> str:
    """Where a value was found, as an array of Postgres."""
    [(time, partition, offset)] = np.frombuffer(packed, WHERE).tolist()
    return f"{{{time - (1 << 63)},{partition},{offset}}}"


def _may_coincide(rows: PaneRows) -> bool:
    """Whether two groups may be written alike: names that look like ours, or that Postgres cannot keep."""
    return any(pc.any(pc.match_substring_regex(column, ALIKE)).as_py() for column in rows.labels)
