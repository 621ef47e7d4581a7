"""Rows of a batch written by hand, as Spark would hand them over."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.views.pane_rows import PaneRows

Row = tuple[int, int, tuple[str, ...], Sequence[Any]]


def pane_rows(grouping: int, rows: Sequence[Row]) -> PaneRows:
    """Each row: pane, missed windows, labels, values: numbers as texts, and lists of sketches."""
    panes, missed, labels, values = zip(*sorted(rows, key=lambda row: row[:3]), strict=True)
    dims = [pa.array(column, pa.string()) for column in zip(*labels, strict=True)]
    columns = [_column(column) for column in zip(*values, strict=True)]
    counts = np.array([int(each[0] or 0) for each in values])
    hows = ["count" if pa.types.is_integer(column.type) else "sum" for column in columns]
    return PaneRows(grouping, np.array(panes), np.array(missed), counts, dims, columns, hows)


def _column(values: Sequence[Any]) -> Any:
    if any(isinstance(value, list) for value in values):
        return pa.array(values)
    if all(value is None or value.isdigit() for value in values):
        return pa.array([None if value is None else int(value) for value in values], pa.int64())
    return pa.array([None if value is None else Decimal(value) for value in values])
