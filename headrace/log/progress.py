"""What Spark itself says about the batch that is running: offsets, rows read, rows dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class BatchFacts:
    """`start` and `end` are offsets by partition, `end` exclusive; empty for a source without offsets."""

    start: dict[int, int]
    end: dict[int, int]
    scanned: int
    duplicates: int
    dropped: int


def batch_facts(query: StreamingQuery) -> BatchFacts:
    """The facts of the running batch, once its plan has been executed."""
    execution = query._jsq.streamingQuery().lastExecution()
    start: dict[int, int] = {}
    end: dict[int, int] = {}
    scanned = duplicates = dropped = 0
    for node in _nodes(execution.executedPlan()):
        kind = node.getClass().getSimpleName()
        if kind == "MicroBatchScanExec":
            start |= _offsets(node.start())
            end |= _offsets(node.end())
            scanned += _metric(node, "numOutputRows")
        elif kind == "StreamingDeduplicateWithinWatermarkExec":
            duplicates += _metric(node, "numDroppedDuplicateRows")
            dropped += _metric(node, "numRowsDroppedByWatermark")
    return BatchFacts(start, end, scanned, duplicates, dropped)


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for index in range(children.size()):
        yield from _nodes(children.apply(index))


def _metric(node: Any, name: str) -> int:
    metric = node.metrics().get(name)
    return int(metric.get().value()) if metric.isDefined() else 0


def _offsets(offset: Any) -> dict[int, int]:
    try:
        topics = json.loads(offset.json())
    except ValueError:
        return {}
    if not isinstance(topics, dict):
        return {}
    return {
        int(p): int(o)
        for of_topic in topics.values()
        if isinstance(of_topic, dict)
        for p, o in of_topic.items()
    }
