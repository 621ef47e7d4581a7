"""The events of a window, from the validated topic: which of them a metric takes, and into which group.

Most metrics take every event and group by texts: those need no Spark. Any other condition or field goes
through the same decoding and the same expressions as in the engine, a chunk of the window at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.contracts.model import Contract, Rules, Type
from headrace.contracts.values import ordered
from headrace.log.scan import LogRecord
from headrace.metrics import Metric
from headrace.ops.explain_row import Spans
from headrace.ops.explanation import Event
from headrace.store.times import moved
from headrace.views.pane_rows import NONE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHUNK = 20_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Labels = tuple[str, ...]


class Candidate(NamedTuple):
    """An event of the window, before anybody asks whether the metric takes it."""

    event: Event
    value: bytes
    fields: dict[str, Any]


Taken = Iterator[tuple[Event, Labels]]
Judge = Callable[[Iterable[Candidate]], Taken]


def candidates(
    records: Iterable[LogRecord], contract: Contract, metric: Metric, start: datetime, spans: Spans
) -> Iterator[Candidate]:
    """The records of the window that belong to the batches."""
    end = moved(start, metric.window.size)
    by_event = metric.window.time == "event"
    for record in records:
        place = _place(record, contract.topics.raw)
        if place is None or record.value is None or not spans.covers(place[0], place[1]):
            continue
        partition, offset, millis = place
        arrived = _EPOCH + timedelta(milliseconds=millis)
        if not (by_event or start <= arrived < end):
            continue
        fields = _fields(record.value)
        event_time = ordered(fields.get(contract.event_time), "timestamp")
        if isinstance(event_time, datetime) and (not by_event or start <= event_time < end):
            event = Event(arrived, partition, offset, event_time, str(fields.get(contract.event_id)))
            yield Candidate(event, record.value, fields)


def needs_spark(contract: Contract, metric: Metric, grouping: Labels) -> bool:
    """Whether some expression or type is beyond a plain look at the JSON."""
    fields = [contract.field(name) for name in grouping]
    return bool(metric.where) or any(f.type.kind != "string" and f.mask is None for f in fields)


def plain_judge(grouping: Labels) -> Judge:
    def judge(found: Iterable[Candidate]) -> Taken:
        for candidate in found:
            yield candidate.event, tuple(_label(candidate.fields.get(name)) for name in grouping)

    return judge


def spark_judge(spark: SparkSession, contract: Contract, metric: Metric, grouping: Labels) -> Judge:
    import pyarrow as pa
    from pyspark.sql import functions as F

    from headrace.gate.json_decoder import JsonDecoder
    from headrace.gate.typed import typed_fields

    published = _as_published(contract)
    names = tuple(field.name for field in published.fields)
    event = JsonDecoder(published).parse(F.col("__value"))

    def judge(found: Iterable[Candidate]) -> Taken:
        left = iter(found)
        while chunk := list(islice(left, CHUNK)):
            values = {"__n": list(range(len(chunk))), "__value": [c.value for c in chunk]}
            decoded = spark.createDataFrame(pa.table(values)).select("__n", event.alias("__event"))
            fields = typed_fields(published, names, F.col("__event"), "").alias("__fields")
            taken = decoded.select("__n", fields).select("__n", "__fields.*")
            if metric.where:
                taken = taken.where(F.expr(metric.where))
            texts = [F.col(name).cast("string").alias(f"__by_{n}") for n, name in enumerate(grouping)]
            for n, *labels in taken.select("__n", *texts).collect():
                yield chunk[n].event, tuple(map(_label, labels))

    return judge


def _as_published(contract: Contract) -> Contract:
    """The plain fields as they are in the validated topic: what was masked is a text there."""
    from headrace.gate.mask import plain_fields

    fields = [
        replace(f, type=Type("string") if f.mask else f.type, mask=None, rules=Rules())
        for f in plain_fields(contract)
    ]
    return replace(contract, fields=tuple(fields))


def _fields(value: bytes) -> dict[str, Any]:
    """Empty for what no gate has published; the count of events tells."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _label(value: str | None) -> str:
    """As the tables have it: a real value that looks like a label of ours gets a backslash."""
    if value is None:
        return NONE
    return f"\\{value}" if value.startswith("(") else value


def _place(record: LogRecord, topic: str) -> tuple[int, int, int] | None:
    """Partition, offset and log time of the raw record that a published one names."""
    named, *numbers = (record.header("headrace-source") or b"").decode(errors="replace").split("/")
    if named != topic or len(numbers) != 3 or not all(n.isdecimal() for n in numbers):
        return None
    return int(numbers[0]), int(numbers[1]), int(numbers[2])
