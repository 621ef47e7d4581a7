"""Partial results that no SQL can merge: sketches, and counts by item with a bound."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from datasketches import hll_sketch, hll_union, kll_doubles_sketch, tgt_hll_type

from headrace.measures import HLL_LG_K, Measure, quantile_name
from headrace.views.pane_rows import OTHER

Columns = dict[str, Any]


def merge_packed(name: str, measure: Measure, before: Any, new: list[Any]) -> Columns:
    """The columns of a packed measure, from what the row had and what a batch adds."""
    match measure.kind:
        case "distinct":
            return _distinct(name, [b for b in (before, *new) if b is not None])
        case "quantiles":
            return _quantiles(name, measure, [b for b in (before, *new) if b is not None])
        case _:
            return _top(name, measure, before or {}, new)


def _distinct(name: str, sketches: list[bytes]) -> Columns:
    union = hll_union(HLL_LG_K)
    for sketch in sketches:
        union.update(hll_sketch.deserialize(bytes(sketch)))
    merged = union.get_result(tgt_hll_type.HLL_4)  # half as large, as exact
    return {f"{name}__sketch": merged.serialize_compact(), name: round(merged.get_estimate())}


def _quantiles(name: str, measure: Measure, sketches: list[bytes]) -> Columns:
    merged = kll_doubles_sketch()
    for sketch in sketches:
        merged.merge(kll_doubles_sketch.deserialize(bytes(sketch)))
    shown = {
        quantile_name(name, rank): None if merged.is_empty() else merged.get_quantile(rank, True)
        for rank in measure.ranks
    }
    return {f"{name}__sketch": merged.serialize(), **shown}


def _top(name: str, measure: Measure, before: dict[str, int], new: Iterable[tuple[str, int]]) -> Columns:
    """Items beyond the limit are counted together; who is in stays in. Ties go by the item."""
    counts = dict(before)
    added: dict[str, int] = {}
    for item, count in new:
        added[item] = added.get(item, 0) + count
    for item, count in sorted(added.items(), key=lambda pair: (-pair[1], pair[0])):
        known = item in counts or len(counts) - (OTHER in counts) < measure.limit
        place = item if known else OTHER
        counts[place] = counts.get(place, 0) + count
    ranked = sorted(
        ((item, n) for item, n in counts.items() if item != OTHER), key=lambda pair: (-pair[1], pair[0])
    )
    shown = [{"item": item, "count": n} for item, n in ranked[: measure.n]]
    return {f"{name}__counts": json.dumps(counts), name: json.dumps(shown)}
