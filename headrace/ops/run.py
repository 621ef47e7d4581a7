"""Running an app: one Spark session, one query for each source, each started again when it fails."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from headrace.connections import Connections
from headrace.errors import ServiceError
from headrace.log.topics import ensure_outputs, ensure_topics
from headrace.ops.delivery import Delivery
from headrace.ops.gate_query import GateQuery
from headrace.ops.lane_reports import LaneReporter
from headrace.ops.load import LoadedApp
from headrace.ops.realtime_query import RealtimeQuery, tell_of_slots
from headrace.ops.reports import STORE_SECONDS, QueryReporter
from headrace.ops.restarts import Restarts
from headrace.settings import Settings
from headrace.spark import build_session, with_slots
from headrace.store.connection import Store
from headrace.store.reports import QueryStatus

logger = logging.getLogger(__name__)

WARM_SECONDS = 60.0
TICK_SECONDS = 1.0
STOP_SECONDS = 30.0
SPARK_GONE = (Py4JError, PySparkException, OSError)


@dataclass
class Supervised:
    """A query, what is told about it, and its recent luck."""

    gate: GateQuery | RealtimeQuery
    reporter: QueryReporter
    restarts: Restarts = field(default_factory=Restarts)

    @property
    def status(self) -> QueryStatus:
        return "running" if self.restarts.start_at is None else "restarting"


class Engine:
    """Everything of an app that runs in Spark."""

    def __init__(
        self,
        loaded: LoadedApp,
        settings: Settings,
        connections: Connections,
        sources: list[str] | None = None,
    ) -> None:
        self.loaded, self.settings, self.connections = loaded, settings, connections
        self.sources = sources or sorted(loaded.contracts)
        self._supervised: list[Supervised] = []
        self._delivery = Delivery(loaded, settings, connections, self.sources)
        self._spark: SparkSession | None = None

    @property
    def _lane_slots(self) -> int:
        """Tasks of real-time lanes, which never end: the gates need others."""
        return sum(self.loaded.contract(s).partitions for s in self.sources if self.loaded.lane_of(s))

    def start(self) -> None:
        settings = self.settings
        Store(self.connections.store_url).prepare()
        contracts = [self.loaded.contract(source) for source in self.sources]
        for contract in contracts:
            ensure_topics(contract, self.connections.librdkafka)
            enriched = [t for e in self.loaded.enrich_of(contract.name) for t in e.topics]
            ensure_outputs(contract, enriched, self.connections.librdkafka)
        self._delivery.start()
        spark = build_session(
            f"headrace {self.loaded.name}",
            memory=settings.spark_driver_memory,
            partitions=settings.shuffle_partitions or None,
            **with_slots(settings.spark_master, self._lane_slots, settings.spark_options()),
        )
        self._spark = spark
        tell_of_slots(spark, self._lane_slots)
        reports = Store(self.connections.store_url, STORE_SECONDS)
        for contract in contracts:
            gate = GateQuery(
                spark,
                self.loaded.name,
                contract,
                self.loaded.source(contract.name),
                self.connections,
                checkpoints=checkpoint_root(settings),
                slots=settings.state_dir / "slots",
                salt=settings.salt(),
                trigger_seconds=settings.trigger_seconds,
                max_batch=settings.max_batch,
                publish_seconds=settings.publish_seconds,
                declared=self.loaded.declared(
                    contract.name, timedelta(days=settings.alert_keep_days)
                ).beside_lanes(),
            )
            self._supervised.append(Supervised(gate, QueryReporter(reports, self.loaded.name, gate)))
        for contract in contracts:
            if signals := self.loaded.lane_of(contract.name):
                lane = RealtimeQuery(
                    *(spark, self.loaded.name, contract, signals, self.connections),
                    checkpoints=checkpoint_root(settings),
                    salt=settings.salt(),
                    batch_seconds=settings.realtime_seconds,
                )
                self._supervised.append(Supervised(lane, LaneReporter(reports, self.loaded.name, lane)))
        # Planning a query keeps one core busy for seconds: the queries start side by side. What calls back
        # into Python is shared by them, and would be made by each if it were not there.
        ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
        with ThreadPoolExecutor(len(self._supervised)) as pool:
            list(pool.map(self._start, self._supervised))

    def wait_warm(self, stopping: Callable[[], bool], seconds: float = WARM_SECONDS) -> None:
        """Wait for the first batch of every query: until then Spark compiles more than it computes."""
        until = time.monotonic() + seconds
        while not stopping() and time.monotonic() < until:
            if all(supervised.gate.is_warm for supervised in self._supervised):
                return
            for supervised in self._supervised:
                supervised.reporter.turn(supervised.status)
            time.sleep(0.1)

    def supervise(self, stopping: Callable[[], bool]) -> None:
        """Watch until told to stop; a query that keeps failing without progress ends the run."""
        next_tick = 0.0
        while not stopping():
            for supervised in self._supervised:
                self._look_after(supervised)
                supervised.reporter.turn(supervised.status)
            if time.monotonic() >= next_tick:
                for supervised in self._supervised:
                    supervised.gate.tick()
                next_tick = time.monotonic() + TICK_SECONDS
            time.sleep(0.1)

    def stop(self) -> None:
        """Let every running batch finish, then leave. What does not finish in time runs again later."""
        until = time.monotonic() + STOP_SECONDS
        running = list(self._supervised)
        while running:
            for supervised in list(running):
                if _stopped(supervised.gate, overdue=time.monotonic() > until):
                    supervised.reporter.stopped()
                    running.remove(supervised)
            time.sleep(0.01)
        self._delivery.stop()
        if self._spark is not None:
            with suppress(*SPARK_GONE):
                self._spark.stop()

    def _look_after(self, supervised: Supervised) -> None:
        query = supervised.gate.query
        if query is not None and query.isActive:
            return
        if supervised.restarts.start_at is None:
            self._note_failure(supervised, cause_of(query.exception() if query else None))
        elif supervised.restarts.is_due(time.monotonic()) and self._start(supervised):
            supervised.reporter.restarted()

    def _start(self, supervised: Supervised) -> bool:
        try:
            supervised.gate.start()
            supervised.restarts.start()
        except ServiceError as error:
            self._note_failure(supervised, str(error))
            return False
        return True

    def _note_failure(self, supervised: Supervised, cause: str) -> None:
        restarts, name = supervised.restarts, supervised.gate.name
        pause = restarts.fail(time.monotonic(), supervised.reporter.finished())
        supervised.reporter.failed(cause)
        if pause is None:
            raise ServiceError(
                f"query {name} failed {restarts.failures} times without progress; the last time: {cause}",
                hint="nothing is lost: after mending the cause, start again and it goes on where it was",
            )
        logger.warning("query %s failed (%s); starting it again in %.0f s", name, cause, pause)


def checkpoint_root(settings: Settings) -> str:
    """A URL as it is, a relative folder below the working folder."""
    given = settings.checkpoint_dir
    return given if "://" in given else str(settings.folder / Path(given))


def _stopped(gate: GateQuery | RealtimeQuery, *, overdue: bool) -> bool:
    """Stop a query between two batches. A signal to the whole process group has ended Spark itself."""
    try:
        if not gate.is_between_batches and not overdue:
            return False
        gate.stop(deadline_seconds=0)
    except SPARK_GONE:
        logger.warning("Spark was ended from outside; the running batch of %s will run again", gate.name)
    return True


ABOUT_DATA = re.compile(
    r"^[\w.]*(?:Representation|OutOfRange|Overflow|Format|Repertoire|Character|Truncation|Violation"
    r"|ValueError|KeyError|Unicode|ArrowInvalid)"
)
QUOTED = re.compile(r"(['\"]).*\1")


def cause_of(error: object) -> str:
    """The one line of Spark's report that says what happened."""
    text = str(error)
    ours = re.findall(r"headrace\.errors\.\w+: ([^\n]+)", text)
    if ours:
        return str(ours[-1])
    names = r"psycopg\.errors\.\w+|[\w.]*(?:Error|Exception)"
    causes = re.findall(rf"^(?:Caused by: |\[)?((?:{names})[^\n]*)", text, re.MULTILINE)
    told = [cause for cause in causes if ": " in cause] or causes  # an innermost cause may be a bare name
    cause = str(told[-1] if told else text.split("\n")[0])
    # What is wrong with a value is told with the value, and this is read by people who may not see it.
    return (QUOTED.sub(r"\1…\1", cause) if ABOUT_DATA.search(cause) else cause)[:500]
