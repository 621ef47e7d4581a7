"""Rows of a batch written by hand, as Spark would hand them over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.views.pane_rows import PaneRows


def pane_rows(grouping: int, rows: Sequence[tuple[int, int, tuple[str, ...], Sequence[Any]]]) -> PaneRows:
    """Each row: pane, missed windows, labels, values: texts, and lists of sketches."""
    panes, missed, labels, values = zip(*rows, strict=True)
    dims = [pa.array(column, pa.string()) for column in zip(*labels, strict=True)]
    texts = [pa.array(column) for column in zip(*values, strict=True)]
    counts = np.array([int(each[0] or 0) for each in values])
    return PaneRows(grouping, np.array(panes), np.array(missed), counts, dims, texts)
