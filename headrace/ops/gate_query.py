"""The streaming query of one source: from the raw topic through the gate."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from headrace.app import Source
from headrace.connections import Connections, query_name
from headrace.contracts.model import Contract
from headrace.declared import Declared
from headrace.gate.batch import GateBatches
from headrace.gate.plan import unique_records
from headrace.gate.restore import with_bytes
from headrace.log.groups import ReadPosition
from headrace.log.progress import BatchFacts, batch_facts
from headrace.log.publish import Publisher, tasks_of
from headrace.log.read import read_range, read_stream
from headrace.ops.derive import derive
from headrace.store.connection import Store
from headrace.store.dimensions import Dimensions
from headrace.store.ledger import Ledger
from headrace.store.source_accounts import SourceAccounts

MONTH = timedelta(days=30)


class GateQuery:
    """Starts the gate of one source, again after a failure; the name is its identity."""

    def __init__(
        self,
        spark: SparkSession,
        app: str,
        contract: Contract,
        source: Source,
        connections: Connections,
        *,
        checkpoints: str,
        slots: Path,
        salt: str,
        trigger_seconds: float = 0.5,
        max_batch: int = 500_000,
        publish_seconds: float = 30.0,
        declared: Declared = Declared(),
    ) -> None:
        self._app = app
        self._declared = declared
        self._derived: SourceAccounts | None = None
        # Silence must not make windows final while a batch decides what is late for them.
        self._busy = threading.Lock()
        self.name = query_name(app, contract.name)
        self.contract = contract
        self._spark, self._source, self._connections = spark, source, connections
        self._checkpoint = f"{checkpoints}/{self.name}"
        self._salt, self._trigger = salt, trigger_seconds
        self._max_batch = source.max_batch or max_batch
        self._publisher = Publisher(
            *(self.name, contract, connections.librdkafka, slots, publish_seconds),
            accepted=source.publish,
        )
        self.query: StreamingQuery | None = None

    @property
    def metric_names(self) -> list[str]:
        metrics = [metric.name for metric in self._declared.metrics]
        return metrics + [sessions.name for sessions in self._declared.sessions]

    def start(self, *, available_now: bool = False) -> StreamingQuery:
        """Recover what a crash left, then start. `available_now` processes what is there and ends."""
        contract, connections = self.contract, self._connections
        tasks = int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1)
        store = Store(connections.store_url)
        dimensions = Dimensions(Store(connections.store_url))
        derivation = derive(self._spark, self._app, self.name, contract, self._declared, dimensions)
        self._publisher.enriching = derivation.enrichment if derivation is not None else None
        if derivation is not None and derivation.enrichment is not None:
            derivation.enrichment.prepare(self._spark)
        self._publisher.recover(time.time_ns(), tasks)
        if derivation is not None:
            self._derived = SourceAccounts(store, self.name, contract, derivation.folds)
            self._derived.prepare()
        views = derivation.views if derivation is not None else None
        keep = max(contract.retention * 2, MONTH)
        ledger = Ledger(store, self.name, keep, self._derived)
        position = ReadPosition(f"headrace.{self.name}", contract.topics.raw, connections.librdkafka)
        handler = GateBatches(
            contract,
            self._publisher,
            ledger,
            self._facts,
            self._received,
            views=views,
            restore=self._restored,
        )

        def handle(batch, batch_id):  # type: ignore[no-untyped-def]
            with self._busy:
                facts = handler(batch, batch_id)
            position.commit(facts.end)

        raw = read_stream(self._spark, contract.topics.raw, connections.java, self._max_batch)
        carried = derivation.carried if derivation is not None else ()
        whole = self._publisher.takes_accepted
        rows = unique_records(raw, contract, self._salt, F.current_timestamp(), carried, whole=whole)
        writer = rows.writeStream.queryName(self.name).option("checkpointLocation", self._checkpoint)
        writer = writer.foreachBatch(handle)
        if available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(self._trigger * 1000)} milliseconds")
        self.handler = handler
        self.query = writer.start()
        return self.query

    @property
    def is_between_batches(self) -> bool:
        query = self.query
        return query is None or not (query.isActive and query.status["isTriggerActive"])

    @property
    def is_warm(self) -> bool:
        """Whether it has finished a batch, or will never do."""
        query = self.query
        return query is not None and (query.lastProgress is not None or not query.isActive)

    def stop(self, deadline_seconds: float = 30.0) -> None:
        """Stop between two batches: the running one finishes first."""
        until = time.monotonic() + deadline_seconds
        while not self.is_between_batches and time.monotonic() < until:
            time.sleep(0.01)
        if self.query is not None:
            self.query.stop()

    def tick(self) -> None:
        """Let a silent source's windows close; skipped while a batch runs."""
        if self._derived is not None and self._busy.acquire(blocking=False):
            try:
                self._derived.tick(datetime.now(UTC))
            finally:
                self._busy.release()

    def _facts(self) -> BatchFacts:
        # The first batch may begin before `start` has handed the query over.
        while self.query is None:
            time.sleep(0.005)
        return batch_facts(self.query)

    def _received(self, facts: BatchFacts) -> Mapping[int, int]:
        counts = {p: end - facts.start.get(p, 0) for p, end in facts.end.items()}
        if sum(counts.values()) == facts.scanned:
            return counts
        # Transactions leave offsets that are no records: count those that are.
        return {row[0]: row[1] for row in self._read_again(facts).groupBy("partition").count().collect()}

    def _restored(self, leaving: DataFrame, facts: BatchFacts) -> DataFrame:
        return with_bytes(leaving, self._read_again(facts), self.contract, self._salt, tasks_of(leaving))

    def _read_again(self, facts: BatchFacts) -> DataFrame:
        topic, options = self.contract.topics.raw, self._connections.java
        return read_range(self._spark, topic, options, facts.start, facts.end)
