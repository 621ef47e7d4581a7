"""The real-time lane of one source: Spark's real-time mode, from the raw topic to those of the signals."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from headrace.connections import Connections, lane_query_name
from headrace.contracts.model import Contract
from headrace.dimensions import Dimension
from headrace.errors import UsageError
from headrace.flows.realtime import DELAY, signal_records, sound_events, with_tables
from headrace.flows.realtime_check import check_lane_plan
from headrace.flows.signals import check_table_columns, resolve_signals
from headrace.log.read import read_live
from headrace.signals import Signals
from headrace.store.connection import Store
from headrace.store.dimensions import Dimensions

logger = logging.getLogger(__name__)

SHORTEST_BATCH = 5.0  # seconds; Spark's own limit
POOL = "realtime"
OBSERVED = "lane"
RANKS = (0.5, 0.99)
LANE = {
    # It would read every event twice to find out whether there is something to say about it.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.InferFiltersFromGenerate",
}
PRODUCER = {"kafka.linger.ms": "0"}


class RealtimeQuery:
    """Starts the lane, again after a failure; at least once, with ids that are the same every time."""

    def __init__(
        self,
        spark: SparkSession,
        app: str,
        contract: Contract,
        signals: Sequence[Signals],
        connections: Connections,
        *,
        checkpoints: str,
        salt: str,
        batch_seconds: float = 300.0,
    ) -> None:
        if batch_seconds < SHORTEST_BATCH:
            raise UsageError(
                f"realtime_seconds must be at least {SHORTEST_BATCH:.0f}, not {batch_seconds:g}",
                hint="it is no delay: events go out as they come, and an offset is noted as often as this",
            )
        self.name = lane_query_name(app, contract.name)
        self.contract, self.signals = contract, signals
        self._spark, self._connections, self._salt = spark, connections, salt
        self._checkpoint = f"{checkpoints}/{self.name}"
        self._batch = f"{int(batch_seconds * 1000)} milliseconds"
        self._dimensions = Dimensions(Store(connections.store_url))
        self._tables: dict[str, int] = {}  # the generation that is in use
        self.table_changes: list[float] = []  # when it took up others, in seconds; for the next report
        self.query: StreamingQuery | None = None

    @property
    def metric_names(self) -> list[str]:
        return []

    @property
    def is_between_batches(self) -> bool:
        """It may be stopped at any time: what was sent since the last offset is sent again, with its id."""
        return True

    @property
    def is_warm(self) -> bool:
        return self.query is not None

    def start(self) -> StreamingQuery:
        """Raises AppError for a declaration that the mode cannot run."""
        records = self._records(lane_session(self._spark))
        options = PRODUCER | {f"kafka.{name}": value for name, value in self._connections.java.items()}
        writer = records.writeStream.queryName(self.name).format("kafka").options(**options)
        writer = writer.option("checkpointLocation", self._checkpoint).outputMode("update")
        context = self._spark.sparkContext
        # A pool of its own: when a batch ends, its next tasks do not queue behind those of the gates.
        context.setLocalProperty("spark.scheduler.pool", POOL)
        try:
            self.query = writer.trigger(realTime=self._batch).start()  # type: ignore[call-overload]
        finally:
            context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
        return self.query

    def stop(self, deadline_seconds: float = 30.0) -> None:
        if self.query is not None:
            self.query.stop()

    def tick(self) -> None:
        """A table that has changed needs a plan with the new one in it."""
        if self.query is not None and self.query.isActive and self._generations() != self._tables:
            logger.warning("a table of %s has changed: starting it again", self.name)
            self.table_changes.append(time.time())
            self.stop()
            self.start()

    def _records(self, session: SparkSession) -> DataFrame:
        self._tables = self._generations()
        raw = read_live(session, self.contract.topics.raw, self._connections.java)
        records = lane_records(raw, self.contract, self.signals, self._dimensions, self._salt)
        query = F.struct(F.lit("headrace-query").alias("key"), F.lit(self.name).cast("binary").alias("value"))
        delays = F.percentile_approx(DELAY, list(RANKS), 1000).alias("delays")
        observed = records.observe(OBSERVED, F.count("*").alias("signals"), delays).drop(DELAY)
        return observed.withColumn("headers", F.array(query))

    def _generations(self) -> dict[str, int]:
        """Looks whether tables have changed."""
        live = {table.name: self._dimensions.live(table) for table in _tables_of(self.signals)}
        for table in live.values():
            table.current()
        return {name: table.generation for name, table in live.items()}


def lane_records(
    raw: DataFrame, contract: Contract, signals: Sequence[Signals], dimensions: Dimensions, salt: str
) -> DataFrame:
    """From raw records, of a topic or of a test, to those of the signals' topics.

    Raises AppError for what does not fit the contract, the tables or the mode.
    """
    session = raw.sparkSession
    resolved = resolve_signals(session, signals, contract)
    check_lane_plan(session, contract, resolved)
    versions = {table: dimensions.live(table).current() for table in _tables_of(signals)}
    for one in signals:
        check_table_columns(one, {table.name: found.columns for table, found in versions.items()})
    fields = tuple(dict.fromkeys(name for one in resolved for name in one.fields))
    return signal_records(with_tables(sound_events(raw, contract, salt, fields), versions), resolved)


def tell_of_slots(spark: SparkSession, needed: int) -> None:
    """A cluster without enough slots does not fail: some partitions wait for a whole batch."""
    context = spark.sparkContext
    is_local = str(context.master).startswith("local")
    if needed and not is_local and context.defaultParallelism <= needed:
        logger.warning(
            "the real-time lanes hold %d task slots for good, and Spark has %d in all: give it more cores,"
            " or leave lanes out",
            *(needed, context.defaultParallelism),
        )


def lane_session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    for name, value in LANE.items():
        session.conf.set(name, value)
    return session


def _tables_of(signals: Sequence[Signals]) -> list[Dimension]:
    return list({table.name: table for one in signals for table in one.tables}.values())
