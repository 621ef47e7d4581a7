"""What runs in a Python worker: columns of events in, the partial results of every branch out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from datasketches import hll_sketch, kll_doubles_sketch, tgt_hll_type

from headrace.gate.look import result_of
from headrace.measures import HLL_LG_K
from headrace.views.pane_plan import Branch, PanePlan, Place, Watermarks

TOTALS, LATE = -1, -2  # what is no branch
WHERE = np.dtype([("event_time", ">u8"), ("partition", ">u4"), ("offset", ">u8")])
SIGN = np.uint64(1 << 63)
AT_ONCE = 250_000  # events that are reduced together: what a task holds has a limit
Int64s = npt.NDArray[np.int64]


def reduce_events(
    plan: PanePlan, watermarks: Watermarks, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= AT_ONCE:
            yield _reduced(plan, watermarks, held)
            held = []
    if held:
        yield _reduced(plan, watermarks, held)


def _reduced(plan: PanePlan, watermarks: Watermarks, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    events = pa.Table.from_batches(batches).combine_chunks()
    places = [Placed(place, watermarks, events) for place in plan.places]
    found = {TOTALS: _totals(plan, events), LATE: _late(plan, places, events)}
    for number, branch in enumerate(plan.branches):
        found[number] = _branch(branch, places[branch.metric], events)
    kept = {number: table for number, table in found.items() if table.num_rows}
    return result_of(kept)


class Placed:
    """The panes of events in one metric, and how many of its windows are over for each."""

    def __init__(self, place: Place, watermarks: Watermarks, events: pa.Table) -> None:
        self._place = place
        time = _numbers(events, "event_time" if place.by_event else "log_time")
        self.panes = time - time % place.hop
        clock = _clock(events) if place.by_event else None
        known = watermarks.get("event" if place.by_event else "ingestion")
        self.limit = clock
        if known is not None:
            self.limit = np.full(len(time), known) if clock is None else np.maximum(clock, known)
        self.missed_by_clock, self.missed = self._missed(clock), self._missed(self.limit)

    def _missed(self, now: Int64s | None) -> Int64s:
        if now is None:
            return np.zeros(len(self.panes), np.int64)
        hop = self._place.hop
        # The window that ends first ends with the pane; each further one a hop later.
        over = (now - self._place.final - self.panes - hop) // hop + 1
        return np.clip(np.where(now == NEVER, 0, over), 0, self._place.panes)


NEVER = np.iinfo(np.int64).min // 2  # the clock of an event that is not older than it


def _clock(events: pa.Table) -> Int64s | None:
    clock: Any = events.column("clock")
    if clock.null_count == len(clock):
        return None
    found: Int64s = pc.fill_null(clock, int(NEVER)).to_numpy()
    return found


def _totals(plan: PanePlan, events: pa.Table) -> pa.Table:
    """How many events there are, and for each metric how many its condition leaves out."""
    left_out = [
        events.num_rows - (pc.sum(events.column(takes)).as_py() or 0) if takes else 0 for takes in plan.takes
    ]
    return pa.table({"n": pa.array([events.num_rows, *left_out], pa.int64())})


def _late(plan: PanePlan, places: Sequence[Placed], events: pa.Table) -> pa.Table:
    """The events that missed a window, once for each metric in which they did."""
    found = []
    for metric, (takes, placed) in enumerate(zip(plan.takes, places, strict=True)):
        missed = placed.missed > 0
        if not missed.any():
            continue
        if takes:
            missed &= events.column(takes).to_numpy()
        mine = events.select(["event_id", "partition", "offset", "event_time"]).filter(pa.array(missed))
        own = {"pane": placed.panes, "missed": placed.missed, "missed_by_clock": placed.missed_by_clock}
        assert placed.limit is not None
        for name, column in {**own, "clock": placed.limit}.items():
            mine = mine.append_column(name, pa.array(column[missed]))
        found.append(mine.append_column("metric", pa.array(np.full(mine.num_rows, metric))))
    return pa.concat_tables(found) if found else pa.table({"metric": pa.array([], pa.int64())})


def _branch(branch: Branch, placed: Placed, events: pa.Table) -> pa.Table:
    """A row for each group: pane, missed windows, dims, and a column for each aggregate."""
    columns: dict[str, Any] = {
        "pane": pa.array(placed.panes),
        "missed": pa.array(placed.missed),
        **{f"d{n}": events.column(name) for n, name in enumerate(branch.dims)},
    }
    keys = list(columns)
    asked: list[Any] = []
    for n, (how, name) in enumerate(zip(branch.hows, branch.inputs, strict=True)):
        if name:
            columns[f"a{n}"] = _input(how, events, name)
        asked.append((f"a{n}" if name else [], FUNCTIONS[how] if name else "count_all"))
    table = pa.table(columns)
    if branch.takes:
        table = table.filter(events.column(branch.takes))
    grouped = table.group_by(keys, use_threads=False).aggregate(asked)
    results = [_packed(how, grouped.column(len(keys) + n)) for n, how in enumerate(branch.hows)]
    names = [*keys, *[f"a{n}" for n in range(len(results))]]
    return pa.table([*[grouped.column(n) for n in range(len(keys))], *results], names)


FUNCTIONS = {
    "count": "count",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "first": "min",
    "first_at": "min",
    "last": "max",
    "last_at": "max",
    "distinct": "distinct",
    "quantiles": "list",
}
# How the results of two parts become one; sketches stay apart.
MERGED = {**FUNCTIONS, "count": "sum", "distinct": "list"}


def _input(how: str, events: pa.Table, name: str) -> Any:
    if how in ("first", "first_at", "last", "last_at"):
        return _with_place(events, name)
    return events.column(name)


def _with_place(events: pa.Table, name: str) -> Any:
    """A value behind its place in the log, so that the smallest of them is the first."""
    places = np.empty(events.num_rows, WHERE)
    # Big-endian bytes sort as the numbers do; with another sign bit those before 1970 do so too.
    places["event_time"] = _numbers(events, "event_time").astype(np.uint64) ^ SIGN
    places["partition"], places["offset"] = _numbers(events, "partition"), _numbers(events, "offset")
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(WHERE.itemsize), len(places), [None, pa.py_buffer(places.tobytes())]
    )
    values: Any = [fixed.cast(pa.binary()), events.column(name).combine_chunks().cast(pa.binary())]
    return pc.binary_join_element_wise(*values, b"")


def _packed(how: str, groups: Any) -> Any:
    """Sketches of the values of every group; other results are what they are."""
    if how == "distinct":
        return pa.array([_hll(values) for values in groups.to_pylist()], pa.binary())
    if how == "quantiles":
        return pa.array(
            [_kll(values.values.to_numpy(zero_copy_only=False)) for values in groups], pa.binary()
        )
    return groups


def _hll(values: Sequence[str | None]) -> bytes:
    sketch = hll_sketch(HLL_LG_K, tgt_hll_type.HLL_8)
    for value in values:
        if value is not None:
            sketch.update(value)
    return bytes(sketch.serialize_compact())


def _kll(values: npt.NDArray[np.float64]) -> bytes:
    sketch = kll_doubles_sketch()
    sketch.update(values[~np.isnan(values)])
    return bytes(sketch.serialize())


def _numbers(events: pa.Table, name: str) -> Int64s:
    found: Int64s = events.column(name).to_numpy()
    return found
