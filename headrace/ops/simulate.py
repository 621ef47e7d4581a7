"""The gate of an app over files instead of topics: the same code, no broker, no database."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from headrace.contracts.model import Contract
from headrace.declared import Declared
from headrace.errors import ServiceError, UsageError
from headrace.gate.batch import GateBatches
from headrace.gate.ledger import Batch
from headrace.gate.plan import unique_records
from headrace.log.arrivals import arrivals
from headrace.log.file_source import ONE_TASK, BatchFile, read_batches, write_batches
from headrace.log.file_topics import FileTopics, written
from headrace.log.progress import BatchFacts, batch_facts
from headrace.ops.audit_flows import flow_audits
from headrace.ops.derive import Derivation, derive
from headrace.store.alert_export import export_alerts
from headrace.store.connection import Connection, Store
from headrace.store.dimensions import Dimensions
from headrace.store.ledger import close_batch, open_batch
from headrace.store.outbox import export_topics
from headrace.store.source_accounts import SourceAccounts

BATCH_SIZE = 50_000
COUNTS = ("received", "accepted", "rejected", "late", "duplicate", "unaccounted")
Progress = Callable[[str, int, int], None]  # source, records done, records in all


@dataclass(frozen=True)
class Input:
    """One source and the file that stands for its raw topic."""

    contract: Contract
    file: Path
    partitions: int
    arrival: str | None = None
    declared: Declared = field(default_factory=Declared)


@dataclass
class MemoryAccounts:
    """The ledger of one run, kept only as long as the run."""

    query: str
    stored: str = ""  # the name of the query in the store
    store: Store | None = None
    derived: SourceAccounts | None = None
    batches: list[Batch] = field(default_factory=list)

    def recorded_ends(self, batch_id: int) -> dict[int, int] | None:
        return {} if batch_id < len(self.batches) else None

    def clocks(self) -> dict[int, int | None]:
        return {entry.partition: entry.clock for batch in self.batches for entry in batch.entries}

    def watermarks(self) -> dict[str, int | None]:
        return self.derived.watermarks() if self.derived else {}

    def record(self, batch: Batch, parts: Mapping[str, Any]) -> None:
        if self.derived is not None and self.store is not None:
            derived = self.derived

            def write(connection: Connection) -> None:
                # The accounts of flows are held against the gate's, here as everywhere.
                kept = batch.under(self.stored)
                open_batch(connection, kept)
                derived.record(connection, batch, parts)
                close_batch(connection, kept)

            self.store.transact(write)
        self.batches.append(batch)


def simulate(
    spark: SparkSession,
    inputs: list[Input],
    output: Path,
    *,
    salt: str,
    store_url: str = "",
    app: str = "simulation",
    batch_size: int = BATCH_SIZE,
    overwrite: bool = False,
    progress: Progress = lambda _source, _done, _all: None,
) -> dict[str, Any]:
    """Judge every line of every input and write what became of it; returns the audit.

    Metrics need a database, an empty one: their tables are made in it and written out at the end.
    """
    session = spark.newSession()
    for name, value in ONE_TASK.items():
        session.conf.set(name, value)
    with _whole_or_nothing(output, overwrite) as (folder, work):
        sources: dict[str, dict[str, Any]] = {}
        derivations: dict[str, _Derived] = {}
        for given in inputs:
            name, derived = given.contract.name, _derive(session, given, store_url, app)
            run = _SourceRun(session, given, folder, work / name, salt, progress, derived)
            sources[name] = run.finish(batch_size)
            if derived is not None:
                derivations[name] = derived
        # Flows join sources: their tables are complete when the last source is.
        for name, derived in derivations.items():
            sources[name] |= derived.write(folder) | derived.audit()
        if derivations:
            Store(store_url).transact(lambda connection: export_topics(connection, folder))
        if any(given.declared.alerts or given.declared.patterns for given in inputs):
            Store(store_url).transact(lambda connection: export_alerts(connection, app, folder))
        audit = {"sources": sources}
        (folder / "audit.json").write_text(json.dumps(audit, indent=1, ensure_ascii=False) + "\n")
    return audit


def refuse_output(output: Path, overwrite: bool) -> None:
    """Raise UsageError where the folder may not be written."""
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file", hint="name a folder for the output")
    if output.is_dir() and any(output.iterdir()) and not overwrite:
        raise UsageError(f"{output} is not empty", hint="name another folder, or add --overwrite")


@dataclass(frozen=True)
class _Derived:
    """What is derived from a source, and where it is kept."""

    query: str
    found: Derivation
    store: Store
    accounts: SourceAccounts

    def write(self, folder: Path) -> dict[str, Any]:
        """The tables as files; by kind and name, what became of the accepted events."""
        return self.store.transact(
            lambda connection: {
                name: fold.export(connection, folder) for name, fold in self.accounts.folds.items()
            }
        )

    def audit(self) -> dict[str, Any]:
        """Whether the flows account for all that the gate accepted; empty without flows."""
        flows = self.store.transact(lambda connection: flow_audits(connection, self.query))
        return {"flows": [flow.to_json() for flow in flows]} if flows else {}


def _derive(spark: SparkSession, given: Input, store_url: str, app: str) -> _Derived | None:
    query = f"{app}.{given.contract.name}"
    store = Store(store_url) if given.declared else None
    # Publishing reads tables while the accounts are asked: each has a connection of its own.
    dimensions = Dimensions(Store(store_url) if given.declared else None)
    found = derive(spark, app, query, given.contract, given.declared, dimensions)
    if found is None or store is None:
        return None
    store.prepare()
    accounts = SourceAccounts(store, query, given.contract, found.folds)
    accounts.prepare()
    return _Derived(query, found, store, accounts)


class _SourceRun:
    """One source from its file through the gate."""

    def __init__(
        self,
        spark: SparkSession,
        given: Input,
        folder: Path,
        work: Path,
        salt: str,
        progress: Progress,
        derived: _Derived | None,
    ) -> None:
        self._derived = derived
        self._spark, self._given, self._contract = spark, given, given.contract
        self._folder, self._work, self._salt, self._progress = folder, work, salt, progress
        self._query: StreamingQuery | None = None
        self._started, self._done = threading.Event(), threading.Event()
        self._stopping = False
        self._error: BaseException | None = None
        self._batches: list[BatchFile] = []

    def finish(self, batch_size: int) -> dict[str, Any]:
        given = self._given
        records = arrivals(given.file, self._contract.key, given.partitions, given.arrival)
        self._batches = write_batches(records, self._work / "batches", batch_size)
        enriching = self._derived.found.enrichment if self._derived is not None else None
        topics = FileTopics(self._contract, self._folder, self._batches, enriching)
        accounts = MemoryAccounts(self._contract.name)
        if self._derived is not None:
            accounts.store, accounts.derived = self._derived.store, self._derived.accounts
            accounts.stored = self._derived.query
        try:
            if self._batches:
                self._run(topics, accounts)
            topics.finish()
        finally:
            topics.close()
        return _audit(self._batches, accounts, topics)

    def _run(self, topics: FileTopics, accounts: MemoryAccounts) -> None:
        found = self._derived.found if self._derived is not None else None
        views = found.views if found is not None else None
        handler = GateBatches(
            self._contract, topics, accounts, lambda: self._facts(accounts), self._received, views=views
        )
        records = read_batches(self._spark, self._work / "batches")
        carried = found.carried if found is not None else ()
        unique = unique_records(records, self._contract, self._salt, F.col("now"), carried)
        writer = unique.writeStream.foreachBatch(self._handled(handler)).trigger(availableNow=True)
        self._query = writer.option("checkpointLocation", str(self._work / "checkpoint")).start()
        self._started.set()
        try:
            # Waiting in Python, not in the JVM, so that Ctrl-C meets no half-read answer.
            while not self._done.wait(1.0):
                if not self._query.isActive:
                    break
            self._end()
        finally:
            self._stopping = True
            self._query.stop()
        if len(accounts.batches) != len(self._batches):
            raise ServiceError(f"{self._contract.name}: Spark ended before the last batch")

    def _end(self) -> None:
        assert self._query is not None
        try:
            self._query.awaitTermination()
        except Exception:
            # Spark wraps what happened in a batch into pages of its own plans.
            if self._error is not None:
                raise self._error from None
            raise

    def _handled(self, handler: GateBatches):  # type: ignore[no-untyped-def]
        total = sum(sum(batch.received.values()) for batch in self._batches)
        done = 0

        def handle(batch, batch_id):  # type: ignore[no-untyped-def]
            nonlocal done
            if self._stopping:
                return
            try:
                handler(batch, batch_id)
            except BaseException as error:
                self._error = error
                self._done.set()
                raise
            done += sum(self._batches[batch_id].received.values())
            self._progress(self._contract.name, done, total)
            if batch_id == len(self._batches) - 1:
                self._done.set()

        return handle

    def _facts(self, accounts: MemoryAccounts) -> BatchFacts:
        self._started.wait()
        assert self._query is not None
        batch = self._batches[len(accounts.batches)]
        facts = batch_facts(self._query)
        return replace(facts, start=batch.start, end=batch.end, scanned=sum(batch.received.values()))

    def _received(self, facts: BatchFacts) -> dict[int, int]:
        return {partition: end - facts.start[partition] for partition, end in facts.end.items()}


def _audit(batches: list[BatchFile], accounts: MemoryAccounts, topics: FileTopics) -> dict[str, Any]:
    """Totals of the source and of each partition; what was received is counted from the input."""
    partitions: dict[int, dict[str, Any]] = {}
    for file in batches:
        for partition, count in file.received.items():
            totals = partitions.setdefault(
                partition, {**dict.fromkeys(COUNTS, 0), "reasons": {}, "clock": ""}
            )
            totals["received"] += count
            totals["unaccounted"] += count
    for batch in accounts.batches:
        for entry in batch.entries:
            totals = partitions[entry.partition]
            for fate in ("accepted", "rejected", "late", "duplicate"):
                totals[fate] += getattr(entry, fate)
                totals["unaccounted"] -= getattr(entry, fate)
            for code, count in entry.reasons.items():
                totals["reasons"][code] = totals["reasons"].get(code, 0) + count
            totals["clock"] = written(entry.clock)
    for totals in partitions.values():
        totals["reasons"] = dict(sorted(totals["reasons"].items()))
    sums = {name: sum(totals[name] for totals in partitions.values()) for name in COUNTS}
    ranked = sorted(topics.reasons.items(), key=lambda item: (-item[1], item[0]))
    of_partition = {str(partition): partitions[partition] for partition in sorted(partitions)}
    return {**sums, "reasons": dict(ranked), "partitions": of_partition}


@contextmanager
def _whole_or_nothing(output: Path, overwrite: bool) -> Iterator[tuple[Path, Path]]:
    """A folder that becomes the output at the end, and one for work that never does."""
    refuse_output(output, overwrite)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{output.name}.part-", dir=output.parent))
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from error
    try:
        folder, work = scratch / "output", scratch / "work"
        folder.mkdir()
        work.mkdir()
        yield folder, work
        if output.exists():
            output.rename(scratch / "replaced")
        folder.rename(output)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
