"""What runs in a Python worker: Arrow batches in, one Kafka transaction out.

Producers live as long as their worker, since starting one costs more than a small batch does.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka as kafka
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from headrace.crash import crash_point
from headrace.enricher import PENDING, Enricher
from headrace.fates import ACCEPTED, LATE, REJECTED, Tally, by_partition, latest
from headrace.log.enriched import EnrichedBatch, accepted_of
from headrace.log.markers import Contact, NoAnswer, confirm, group_metadata, marker_reader, within
from headrace.log.slots import Slot
from headrace.workers import settle

METADATA_BYTES = 4000
PRODUCER = {
    "enable.idempotence": "true",
    "acks": "all",
    "linger.ms": "5",
    "batch.num.messages": "20000",
    "batch.size": "1000000",
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": "262144",
    "message.max.bytes": "2000000",
    "transaction.timeout.ms": "300000",
    "reconnect.backoff.max.ms": "1000",
}
RESULT = pa.schema(
    [  # type: ignore[arg-type]
        ("partition", pa.int32()),
        ("accepted", pa.int64()),
        ("rejected", pa.int64()),
        ("late", pa.int64()),
        ("reasons", pa.string()),
        ("clock", pa.int64()),
        ("enriched", pa.string()),
        ("waiting", pa.list_(pa.struct([("enrich", pa.string()), ("events", pa.binary())]))),
    ]
)


@dataclass(frozen=True)
class Marker:
    batch_id: int
    metadata: str


@dataclass(frozen=True)
class TaskPlan:
    """Everything a task needs to know; it travels to the worker with the job."""

    sink: str
    run: int
    options: dict[str, str]
    slots: str
    topics: tuple[str, str, str]
    contract: str
    batch_id: int
    marker_partitions: int
    markers: dict[int, Marker]
    clocks: dict[int, int | None]
    lateness_us: int
    # After this the batch is tried anew; its marker tells whether the commit had come through after all.
    commit_seconds: float
    accepted: bool = True  # whether accepted events are published as they are
    enrichers: Any = None  # a broadcast of Enricher objects, if accepted events are enriched


def run_task(plan: TaskPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    settle()
    context = TaskContext.get()
    task = context.partitionId() if context else 0
    marker = plan.markers.get(task)
    if marker is not None:
        tallies = [tally for batch in batches for tally in _counted(plan, batch)]
        yield _result(as_published(marker.metadata, tallies))
        return
    counted: list[Tally] = []
    sink: Sink | None = None
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if sink is None:
                sink = open_sink(plan)
                sink.begin()
            counted += [*count_fates(batch), *sink.send(plan, batch)]
        if sink is not None:
            sink.commit(plan, task, list(by_partition(counted).values()))
    except BaseException:
        if sink is not None:
            sink.discard()
        raise
    yield _result(counted)


class Sink:
    """A transactional producer with a slot of its own, for one run of one query."""

    def __init__(self, plan: TaskPlan) -> None:
        self.key, self.run = plan.sink, plan.run
        self.slot = Slot(Path(plan.slots), plan.sink)
        self._contact = Contact()
        own: dict[str, Any] = {
            "transactional.id": self.slot.transactional_id,
            "error_cb": self._contact.note,
        }
        self.producer = kafka.Producer({**PRODUCER, **plan.options, **own})
        self.producer.init_transactions(plan.commit_seconds)
        self._contact.begin(self.producer)
        self.groups: dict[str, Any] = {}
        self.readers: dict[str, kafka.Consumer] = {}

    @property
    def is_lost(self) -> bool:
        return self._contact.is_lost(self.producer)

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, plan: TaskPlan, batch: pa.RecordBatch) -> list[Tally]:
        """Hand every record to the producer; returns what became of those that are enriched."""
        headers = _Headers(plan)
        done = pc.equal(batch.column("fate"), pa.scalar(ACCEPTED, pa.int32()))
        if plan.accepted:
            done = pc.and_(done, pc.is_null(batch.column("headers")))
            self._send_common(plan, batch.filter(done), headers)
        self._send_rare(plan, batch.filter(pc.invert(done)), headers)
        if plan.enrichers is None:
            return []
        accepted = accepted_of(batch)
        return [t for e in plan.enrichers.value for t in self._send_enriched(e, accepted, headers)]

    def _send_enriched(self, enricher: Enricher, batch: pa.RecordBatch, headers: _Headers) -> list[Tally]:
        produce, clock = self.producer.produce, headers.clock
        enriched = EnrichedBatch(enricher, batch)
        for topic, partition, key, value, about in enriched.records():
            about.append(clock[partition])
            try:
                produce(topic, value, key, partition, headers=about)
            except BufferError:
                self._produce_slowly(topic, value, key, partition, about)
        return enriched.tallies(clock)

    def _send_common(self, plan: TaskPlan, batch: pa.RecordBatch, headers: _Headers) -> None:
        """Accepted records without headers of their own: nearly all, so nothing here is done twice."""
        produce, topic = self.producer.produce, plan.topics[ACCEPTED]
        columns = (batch.column(name).to_pylist() for name in ("partition", "key", "value", "source"))
        for partition, key, value, source in zip(*columns, strict=True):
            about = [("headrace-source", source), headers.contract, headers.clock[partition]]
            try:
                produce(topic, value, key, partition, headers=about)
            except BufferError:
                self._produce_slowly(topic, value, key, partition, about)

    def _send_rare(self, plan: TaskPlan, batch: pa.RecordBatch, headers: _Headers) -> None:
        for row in batch.to_pylist():
            topic, about = plan.topics[row["fate"]], headers.rare(row)
            self._produce_slowly(topic, row["value"], row["key"], row["partition"], about)

    def _produce_slowly(self, topic: str, value: Any, key: Any, partition: int, headers: Any) -> None:
        while True:
            try:
                return self.producer.produce(topic, value, key, partition, headers=headers)
            except BufferError:
                self.producer.poll(0.1)

    def commit(self, plan: TaskPlan, task: int, tallies: list[Tally]) -> None:
        group, partition = marker_place(plan.sink, plan.marker_partitions, task)
        place = kafka.TopicPartition(
            plan.topics[ACCEPTED], partition, plan.batch_id + 1, metadata=to_metadata(tallies)
        )
        seconds = plan.commit_seconds
        marker = ([place], self._group(plan, group), seconds)
        _or_end(seconds + 5, lambda: self.producer.send_offsets_to_transaction(*marker))
        crash_point("before_task_commit")
        _or_end(seconds + 5, lambda: self.producer.commit_transaction(seconds))
        _or_end(seconds + 5, lambda: confirm(self.readers[group], place, seconds))
        crash_point("after_task_commit")

    def _group(self, plan: TaskPlan, group: str) -> Any:
        if group not in self.groups:
            self.groups[group] = group_metadata(plan.options, group)
            self.readers[group] = marker_reader(plan.options, group)
        return self.groups[group]

    def discard(self) -> None:
        """Abort what is under way and give the slot back; the next task starts a producer anew."""
        _SINKS.pop(self.key, None)
        # If it fails, the next owner of the slot fences this producer, which aborts its transaction too.
        with suppress(kafka.KafkaException):
            _or_end(15.0, lambda: self.producer.abort_transaction(10.0))
        self.slot.release()


_SINKS: dict[str, Sink] = {}


def _or_end(seconds: float, call: Callable[[], None]) -> None:
    """A worker that is stuck in a call ends itself: the task fails, and the next worker takes over its id."""
    try:
        within(seconds, call)
    except NoAnswer:
        os._exit(1)


def open_sink(plan: TaskPlan) -> Sink:
    """This worker's producer for the sink; one of an earlier run has been fenced and is replaced.

    So is one whose broker was away.
    """
    sink = _SINKS.get(plan.sink)
    if sink is not None and (sink.run != plan.run or sink.is_lost):
        sink.slot.release()
        sink = None
    if sink is None:
        sink = _SINKS[plan.sink] = Sink(plan)
    return sink


class _Headers:
    """The headers that a published record gains."""

    def __init__(self, plan: TaskPlan) -> None:
        self.contract = ("headrace-contract", plan.contract.encode())
        self.clock = _ClockHeaders(plan.clocks)

    def rare(self, row: dict[str, Any]) -> list[tuple[str, Any]]:
        given = [(header["key"], header["value"]) for header in row["headers"] or ()]
        given += [("headrace-source", row["source"]), self.contract]
        if row["fate"] == REJECTED:
            given.append(("headrace-reasons", row["reasons"]))
        elif row["fate"] == LATE:
            behind_ms = (row["clock"] - row["event_time"]) // 1000
            given.append(("headrace-clock", _instant(row["clock"])))
            given.append(("headrace-behind-ms", str(behind_ms).encode()))
        else:
            given.append(self.clock[row["partition"]])
        return given


class _ClockHeaders(dict[int, tuple[str, bytes]]):
    def __init__(self, clocks: dict[int, int | None]) -> None:
        self.clocks = clocks

    def __missing__(self, partition: int) -> tuple[str, bytes]:
        clock = self.clocks.get(partition)
        self[partition] = ("headrace-clock", b"" if clock is None else _instant(clock))
        return self[partition]


def _instant(micros: int) -> bytes:
    seconds, rest = divmod(micros, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest).isoformat().encode()


def count_fates(batch: pa.RecordBatch) -> list[Tally]:
    fates = batch.column("fate").to_numpy(zero_copy_only=False)
    partitions = batch.column("partition").to_numpy(zero_copy_only=False)
    reasons: dict[int, dict[str, int]] = {}
    for row in np.flatnonzero(fates == REJECTED):
        counts = reasons.setdefault(int(partitions[row]), {})
        for reason in json.loads(batch.column("reasons")[int(row)].as_py()):
            counts[reason["code"]] = counts.get(reason["code"], 0) + 1
    times = batch.column("event_time").fill_null(np.iinfo(np.int64).min).to_numpy(zero_copy_only=False)
    tallies = []
    for partition in np.unique(partitions):
        mine = partitions == partition
        accepted = times[mine & (fates == ACCEPTED)]
        tallies.append(
            Tally(
                int(partition),
                len(accepted),
                int(np.count_nonzero(mine & (fates == REJECTED))),
                int(np.count_nonzero(mine & (fates == LATE))),
                reasons.get(int(partition), {}),
                latest(int(accepted.max())) if len(accepted) else None,
            )
        )
    return tallies


def _counted(plan: TaskPlan, batch: pa.RecordBatch) -> list[Tally]:
    tallies = count_fates(batch)
    if plan.enrichers is not None:
        accepted, clock = accepted_of(batch), _ClockHeaders(plan.clocks)
        tallies += [t for e in plan.enrichers.value for t in EnrichedBatch(e, accepted).tallies(clock)]
    return tallies


def as_published(metadata: str, again: list[Tally]) -> list[Tally]:
    """What the marker tells. The events that wait are in no topic: they come from the batch itself, which is
    looked up in the same versions again, unless the attempt that published knew no waiting."""
    told = _from_metadata(metadata)
    if not told:
        return again
    waited = {label for tally in told for label in tally.enriched}
    return told + [
        Tally(tally.partition, waiting={name: events})
        for tally in again
        for name, events in tally.waiting.items()
        if f"{name}:{PENDING}" in waited
    ]


def marker_place(sink: str, partitions: int, task: int) -> tuple[str, int]:
    """Group and partition of a task's marker; a topic may have fewer partitions than there are tasks."""
    return (f"{sink}.marker.{task // partitions}", task % partitions)


def to_metadata(tallies: list[Tally]) -> str:
    """As text that fits a broker's limit; a task of very many partitions leaves its counts out."""
    plain = json.dumps([tally.as_list() for tally in tallies], separators=(",", ":"))
    packed = base64.b64encode(zlib.compress(plain.encode())).decode()
    return packed if len(packed) <= METADATA_BYTES else ""


def _from_metadata(metadata: str) -> list[Tally]:
    if not metadata:
        return []
    return [Tally(*fields) for fields in json.loads(zlib.decompress(base64.b64decode(metadata)))]


def _result(tallies: list[Tally]) -> pa.RecordBatch:
    rows = [
        {
            "partition": t.partition,
            "accepted": t.accepted,
            "rejected": t.rejected,
            "late": t.late,
            "reasons": json.dumps(t.reasons),
            "clock": t.clock,
            "enriched": json.dumps(t.enriched),
            "waiting": [{"enrich": n, "events": each} for n, all_ in t.waiting.items() for each in all_],
        }
        for t in by_partition(tallies).values()
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RESULT)
