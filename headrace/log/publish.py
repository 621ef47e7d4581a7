"""Exactly-once publishing: one Kafka transaction for each task of a batch, with a marker inside it.

The marker is an offset commit, `(sink, task) → batch + 1`, that carries what was published in its metadata.
When a batch runs again, a task whose marker is there publishes nothing and answers from the marker.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import confluent_kafka as kafka
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.contracts.model import Contract
from headrace.errors import ServiceError
from headrace.fates import Tally
from headrace.log.enriched import LOG_TIME, OFFSET, lookup_column
from headrace.log.markers import committed, take_over
from headrace.log.publish_task import Marker, TaskPlan, marker_place, run_task
from headrace.log.slots import used_ids

TALLY_TYPE = (
    "partition int, accepted bigint, rejected bigint, late bigint, reasons string, clock bigint,"
    " enriched string, waiting array<struct<enrich:string,events:binary>>"
)
ARROW_ROWS = 10_000
ARROW_BYTES = 64 * 1024 * 1024


class Enriching(Protocol):
    """What is published of each accepted event beside the event itself, in the same transaction."""

    @property
    def fields(self) -> tuple[str, ...]: ...
    @property
    def topics(self) -> tuple[str, ...]: ...
    def shared(self, spark: SparkSession, batch_id: int) -> Any: ...


class Publisher:
    """The sink of one source: its three output topics and its markers."""

    def __init__(
        self,
        name: str,
        contract: Contract,
        options: dict[str, str],
        slots: Path,
        commit_seconds: float = 30.0,
        *,
        accepted: bool = True,
    ) -> None:
        self.name, self._accepted = name, accepted
        self._commit_seconds = commit_seconds
        self.contract = contract
        self.options = options
        self.slots = slots
        self.enriching: Enriching | None = None
        self._run = 0
        self._markers: dict[int, Marker] | None = None

    @property
    def takes_accepted(self) -> bool:
        """Whether anything of an accepted event is published: the event itself, or what is made of it."""
        return self._accepted or self.enriching is not None

    def recover(self, run: int, tasks: int) -> None:
        """End the transactions that a crash left open; what had been published is read with the first batch.

        In that order: fencing makes sure that no earlier process can commit any more, and an open
        transaction would make the read wait.
        """
        self._run = run
        groups = {marker_place(self.name, self.contract.partitions, task)[0] for task in range(tasks)}
        for transactional_id in used_ids(self.slots, self.name):
            producer = kafka.Producer({**self.options, "transactional.id": transactional_id})
            try:
                topics = (*self.contract.topics.outputs, *(self.enriching.topics if self.enriching else ()))
                take_over(producer, self.options, topics, sorted(groups))
            except kafka.KafkaException as error:
                raise ServiceError(
                    f"cannot take over the transactional id {transactional_id}: {error}",
                    hint="is the broker up? headrace status tells",
                ) from error
        self._markers = None

    def has_begun(self, rows: DataFrame, batch_id: int) -> bool:
        """Whether an earlier attempt has published a part of the batch."""
        return any(marker.batch_id >= batch_id for marker in self._known_markers(rows).values())

    def publish(self, rows: DataFrame, batch_id: int, clocks: dict[int, int | None]) -> list[Tally]:
        """Send every row to the topic of its fate; returns what Kafka acknowledged."""
        markers = self._known_markers(rows)
        plan = TaskPlan(
            sink=self.name,
            run=self._run,
            options=self.options,
            slots=str(self.slots),
            topics=self.contract.topics.outputs,
            contract=f"{self.contract.name}:{self.contract.version}",
            batch_id=batch_id,
            marker_partitions=self.contract.partitions,
            markers={task: m for task, m in markers.items() if m.batch_id >= batch_id},
            clocks=clocks,
            lateness_us=int(self.contract.lateness.total_seconds() * 1_000_000),
            commit_seconds=self._commit_seconds,
            accepted=self._accepted,
            enrichers=self.enriching.shared(rows.sparkSession, batch_id) if self.enriching else None,
        )
        source = F.concat_ws(
            "/",
            F.lit(self.contract.topics.raw),
            F.col("partition"),
            F.col("offset"),
            F.unix_millis("log_time"),
        )
        columns = rows.select(
            "fate",
            "partition",
            "key",
            "value",
            "headers",
            "event_time",
            "clock",
            source.cast("binary").alias("source"),
            F.to_json("reasons").cast("binary").alias("reasons"),
            *lookup_columns(self.enriching),
        )
        results = columns.mapInArrow(partial(run_task, plan), TALLY_TYPE).collect()
        return [_tally(row) for row in results]

    def _known_markers(self, rows: DataFrame) -> dict[int, Marker]:
        if self._markers is None:
            self._markers = self._read_markers(tasks_of(rows))
        return self._markers

    def _read_markers(self, tasks: int) -> dict[int, Marker]:
        markers = {}
        for task in range(tasks):
            group, partition = marker_place(self.name, self.contract.partitions, task)
            place = kafka.TopicPartition(self.contract.topics.validated, partition)
            found = committed(self.options, group, place)
            if found.offset >= 0:
                markers[task] = Marker(found.offset - 1, found.metadata or "")
        return markers


def lookup_columns(enriching: Enriching | None) -> list[Column]:
    """The fields that tables are asked with, as texts; and where an event is from, if it waits."""
    if enriching is None:
        return []
    asked = [F.col("fields")[n].cast("string").alias(lookup_column(n)) for n in enriching.fields]
    return [*asked, F.col("offset").alias(OFFSET), F.unix_micros("log_time").alias(LOG_TIME)]


def limit_arrow_rows(rows: DataFrame, longest: int) -> None:
    """Bound what travels to Python at once, by the largest value of the batch."""
    fitting = max(1, min(ARROW_ROWS, ARROW_BYTES // max(longest, 1)))
    rows.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(fitting))


def tasks_of(rows: DataFrame) -> int:
    """How many tasks the rows make: the checkpoint decides it, not the session."""
    return int(rows._jdf.queryExecution().toRdd().getNumPartitions())


def _tally(row: Any) -> Tally:
    reasons = json.loads(row.reasons)
    enriched = json.loads(row.enriched)
    waiting: dict[str, tuple[bytes, ...]] = {}
    for each in row.waiting or ():
        waiting[each.enrich] = (*waiting.get(each.enrich, ()), bytes(each.events))
    counts = (row.accepted, row.rejected, row.late)
    return Tally(row.partition, *counts, reasons, row.clock, enriched, waiting)
