"""How far the gates are, right now: fates so far, lag and clock of each partition."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from headrace.connections import Connections, query_name
from headrace.errors import ServiceError
from headrace.ops.load import LoadedApp
from headrace.store.connection import Connection, Store

FATES = ("received", "accepted", "rejected", "late", "duplicate")


@dataclass(frozen=True)
class PartitionNow:
    partition: int
    lag: int
    clock: datetime | None


@dataclass(frozen=True)
class SourceNow:
    source: str
    received: int
    accepted: int
    rejected: int
    late: int
    duplicate: int
    batch_seconds: float | None  # of the last batch
    partitions: tuple[PartitionNow, ...]

    @property
    def lag(self) -> int:
        return sum(partition.lag for partition in self.partitions)

    @property
    def unaccounted(self) -> int:
        return self.received - self.accepted - self.rejected - self.late - self.duplicate

    def to_json(self) -> dict[str, Any]:
        partitions = [
            {"partition": p.partition, "lag": p.lag, "clock": p.clock.isoformat() if p.clock else None}
            for p in self.partitions
        ]
        counts = {fate: getattr(self, fate) for fate in FATES}
        return {"source": self.source, **counts, "unaccounted": self.unaccounted, "lag": self.lag} | {
            "batch_seconds": self.batch_seconds,
            "partitions": partitions,
        }


class Snapshots:
    """Reads the ledger and the broker; keep one while watching."""

    def __init__(self, loaded: LoadedApp, connections: Connections, wait_seconds: float = 10.0) -> None:
        self._loaded, self._wait = loaded, wait_seconds
        self._store = Store(connections.store_url, wait_seconds)
        self._store.prepare()
        self._consumer = Consumer({**connections.librdkafka, "group.id": "headrace.snapshot"})

    def take(self) -> list[SourceNow]:
        return [self._source(source) for source in sorted(self._loaded.contracts)]

    def close(self) -> None:
        self._consumer.close()
        self._store.close()

    def _source(self, source: str) -> SourceNow:
        contract, query = self._loaded.contract(source), query_name(self._loaded.name, source)

        def read(connection: Connection) -> tuple[Any, Any, Any]:
            sums = ", ".join(f"coalesce(sum({fate}), 0)::bigint" for fate in FATES)
            totals = connection.execute(f"SELECT {sums} FROM headrace.ledger WHERE query = %s", (query,))
            places = connection.execute(
                "SELECT partition, clock, next_offset FROM headrace.clocks WHERE query = %s", (query,)
            )
            last = connection.execute(
                "SELECT extract(epoch FROM finished_at - started_at)::float8 FROM headrace.batches"
                " WHERE query = %s ORDER BY batch_id DESC LIMIT 1",
                (query,),
            )
            return totals.fetchone(), places.fetchall(), last.fetchone()

        totals, places, last = self._store.transact(read)
        known = {partition: (clock, next_offset) for partition, clock, next_offset in places}
        partitions = tuple(
            self._partition(contract.topics.raw, p, *known.get(p, (None, None)))
            for p in range(contract.partitions)
        )
        return SourceNow(
            source,
            **dict(zip(FATES, totals, strict=True)),
            batch_seconds=last[0] if last else None,
            partitions=partitions,
        )

    def _partition(
        self, topic: str, partition: int, clock: datetime | None, next_offset: int | None
    ) -> PartitionNow:
        try:
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=self._wait
            )
        except KafkaException as error:
            raise ServiceError(
                f"the broker does not answer for {topic}: {error.args[0].str()}",
                hint="headrace status tells what is running",
            ) from error
        return PartitionNow(partition, max(0, high - (low if next_offset is None else next_offset)), clock)
