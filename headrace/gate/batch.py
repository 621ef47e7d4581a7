"""One micro-batch through the gate: fates, topics, ledger. A batch may run again at any point."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.contracts.model import Contract
from headrace.crash import crash_point
from headrace.errors import DataError, LeakError
from headrace.fates import ACCEPTED, EnrichedPart, Tally, by_partition, latest
from headrace.gate.clock import Clocks, Extent, measure_extent, with_fates
from headrace.gate.ledger import Batch, Entry, Judged, Outcome, Reach
from headrace.gate.look import Guess, Results, look
from headrace.log.progress import BatchFacts
from headrace.log.publish import limit_arrow_rows

FEW = 50_000  # records that are published while the batch is still looked at


class Topics(Protocol):
    @property
    def takes_accepted(self) -> bool: ...
    def has_begun(self, rows: DataFrame, batch_id: int) -> bool: ...
    def publish(self, rows: DataFrame, batch_id: int, clocks: dict[int, int | None]) -> list[Tally]: ...


class Accounts(Protocol):
    query: str

    def recorded_ends(self, batch_id: int) -> dict[int, int] | None: ...
    def clocks(self) -> dict[int, int | None]: ...
    def watermarks(self) -> dict[str, int | None]: ...
    def record(self, batch: Batch, parts: Mapping[str, Any]) -> None: ...


class Derived(Protocol):
    """What is computed from the accepted events of a batch, and merged with its ledger."""

    @property
    def closest(self) -> timedelta | None: ...
    @property
    def guess(self) -> Guess | None: ...
    def reduce(
        self,
        judged: DataFrame,
        watermarks: dict[str, int | None],
        extent: Extent,
        clocks: Clocks,
        rows: int,
        guessed: Results | None,
    ) -> Mapping[str, Any]:
        """`guessed` is what came of the guess; None if there was none, or if it was wrong."""


class GateBatches:
    """Handles the batches of one source, in order.

    `facts` tells what Spark counted in the running batch; `received` counts records by partition when the
    offsets do not tell (a log with transactions has offsets that are no records). `restore` gives late
    records their bytes back, where records come without.
    """

    def __init__(
        self,
        contract: Contract,
        topics: Topics,
        accounts: Accounts,
        facts: Callable[[], BatchFacts],
        received: Callable[[BatchFacts], Mapping[int, int]],
        *,
        views: Derived | None = None,
        restore: Callable[[DataFrame, BatchFacts], DataFrame] | None = None,
    ) -> None:
        self.contract = contract
        self._views, self._restore = views, restore
        self._topics, self._accounts = topics, accounts
        self._facts, self._received = facts, received
        self._clocks: dict[int, int | None] | None = None
        self._guesses = True
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="publish")
        self.timings: dict[str, float] = {}
        self.timed: tuple[int, dict[str, float]] | None = None  # the last batch that was finished
        self.spent: dict[str, float] = {}  # seconds in each step, of all batches

    def __call__(self, batch: DataFrame, batch_id: int) -> BatchFacts:
        began, started_at = time.perf_counter(), datetime.now(UTC)
        # Running the plan is what updates the state of the duplicates, so it comes before any question
        # whether this batch was done already. The copy is cheap rows in memory, not Spark's column cache.
        held = batch.localCheckpoint(eager=False)
        try:
            return self._handle(held, *self._look(held), batch_id, started_at, began)
        finally:
            # The rows are those of the plan's own RDD; what it makes of them is another one.
            held._jdf.queryExecution().logical().rdd().unpersist(False)

    def _look(self, held: DataFrame) -> tuple[Extent, Results | None]:
        guess = self._views.guess if self._views is not None and self._guesses else None
        return (measure_extent(held), None) if guess is None else look(held, guess)

    def _handle(
        self,
        held: DataFrame,
        extent: Extent,
        guessed: Results | None,
        batch_id: int,
        started_at: datetime,
        began: float,
    ) -> BatchFacts:
        facts = self._facts()
        if facts.dropped:
            raise LeakError(
                f"Spark dropped {facts.dropped} rows of {self.contract.name} in batch {batch_id} as too old",
                hint="nothing of this batch was published; this is a defect, please report it",
            )
        self.timings = {"decode": time.perf_counter() - began}
        if self._is_recorded(batch_id, facts):
            return facts
        clocks = self._clocks if self._clocks is not None else self._accounts.clocks()
        crash_point("before_publish")
        closest = self._views.closest if self._views is not None else None
        judged, tallies, old, bare = with_fates(held, extent, clocks, self.contract.lateness, closest)
        # Old records come in bursts: after some, the next batch is likely to have more.
        self._guesses = not old
        known = Judged(sum(tally.accepted for tally in tallies), _reached(tallies, extent, clocks))
        self._lap("judge", began)
        limit_arrow_rows(held, extent.longest)
        task = inheritable_thread_target(judged.sparkSession)(self._send)

        def send() -> Future[list[Tally]]:
            return self._aside.submit(task, judged, batch_id, clocks, tallies, facts if bare else None)

        # Few records are sent at once: that mostly waits for the broker. Many would keep all cores busy:
        # they are sent while the store, which works on one, merges what was derived from them.
        again = self._topics.has_begun(judged, batch_id)
        sent = send() if again or facts.scanned < FEW else None
        try:
            if again and sent:
                # Of an event's copies in two partitions, that attempt may have kept the other one: Spark
                # reads partitions in another order when a batch runs again. What is published counts.
                told = list(by_partition(sent.result()).values())
                known = replace(known, reached=_reached(told, extent, clocks))
            parts = self._derive(judged, extent, clocks, facts.scanned, None if old else guessed)
            self._lap("views", began)
            sent = sent or send()
            published = partial(self._published, batch_id, sent, facts, clocks, extent, known)
            batch = Batch(self._accounts.query, batch_id, started_at, published, known)
            self._accounts.record(batch, parts)
        finally:
            wait([sent] if sent else [])
        self._lap("record", began)
        self.timed = (batch_id, self.timings)
        for step, seconds in self.timings.items():
            self.spent[step] = self.spent.get(step, 0.0) + seconds
        crash_point("after_store_commit")
        moved = {entry.partition: entry.clock for entry in batch.entries}
        self._clocks = {**clocks, **moved}
        return facts

    def _is_recorded(self, batch_id: int, facts: BatchFacts) -> bool:
        """Whether an earlier attempt finished this batch, and not another one of the same number."""
        ends = self._accounts.recorded_ends(batch_id)
        if ends is None:
            return False
        if any(facts.end.get(partition, end) != end for partition, end in ends.items()):
            raise DataError(
                f"batch {batch_id} of {self._accounts.query} is in the ledger with other offsets:"
                " the checkpoint does not belong to this ledger",
                hint="put the checkpoint back; to start over, remove ledger, topics and checkpoint together",
            )
        return True

    def _lap(self, step: str, began: float) -> None:
        self.timings[step] = time.perf_counter() - began - sum(self.timings.values())

    def _send(
        self,
        judged: DataFrame,
        batch_id: int,
        clocks: dict[int, int | None],
        accepted: list[Tally],
        bare: BatchFacts | None,
    ) -> list[Tally]:
        """What is published is counted where Kafka acknowledges it; what is not, as it was judged.

        `bare` tells where the batch is in the log, if some of its late records have no bytes.
        """
        if self._topics.takes_accepted:
            return self._topics.publish(judged, batch_id, clocks)
        others = judged.where(F.col("fate") != ACCEPTED)
        if bare is not None and self._restore is not None:
            others = self._restore(others, bare)
        return self._topics.publish(others, batch_id, clocks) + accepted

    def _derive(
        self, judged: DataFrame, extent: Extent, clocks: Clocks, rows: int, guessed: Results | None
    ) -> Mapping[str, Any]:
        if self._views is None:
            return {}
        return self._views.reduce(judged, self._accounts.watermarks(), extent, clocks, rows, guessed)

    def _published(
        self,
        batch_id: int,
        sent: Future[list[Tally]],
        facts: BatchFacts,
        clocks: dict[int, int | None],
        extent: Extent,
        judged: Judged,
    ) -> Outcome:
        """Wait until everything is in its topic; then it is known what became of the batch."""
        began = time.perf_counter()
        tallies = sent.result()
        self.timings["publish"] = time.perf_counter() - began
        crash_point("after_publish")
        received, by_place = self._received(facts), by_partition(tallies)
        entries = []
        for partition in sorted({*received, *by_place}):
            tally = by_place.get(partition, Tally(partition))
            count = received.get(partition, 0)
            rest = count - tally.accepted - tally.rejected - tally.late
            if count == 0 and rest == 0:
                continue
            start, end = facts.start.get(partition, 0), facts.end.get(partition, 0)
            clock = latest(clocks.get(partition), tally.clock)
            entries.append(
                Entry(
                    *(partition, start, end, count, tally.accepted, tally.rejected, tally.late, rest),
                    *(tally.reasons, clock, extent.log_times.get(partition)),
                    extent.oldest_log_times.get(partition),
                )
            )
        outcome = Outcome(tuple(entries), facts.duplicates, facts.dropped, _enriched(tallies))
        _check(outcome, judged, f"batch {batch_id} of {self.contract.name}")
        return outcome


def _enriched(tallies: list[Tally]) -> dict[str, EnrichedPart]:
    """By enrichment, what became of the events: a part of the batch like any other."""
    parts: dict[str, EnrichedPart] = {}
    for tally in tallies:
        for label, count in tally.enriched.items():
            name, _, outcome = label.partition(":")
            counts = parts.setdefault(f"enrich.{name}", EnrichedPart()).counts
            counts[outcome] = counts.get(outcome, 0) + count
        for name, events in tally.waiting.items():
            parts.setdefault(f"enrich.{name}", EnrichedPart()).waiting += events
    return parts


def _reached(tallies: list[Tally], extent: Extent, clocks: Clocks) -> dict[int, Reach]:
    accepted = {tally.partition: tally.clock for tally in tallies}
    return {
        p: Reach(latest(clocks.get(p), accepted.get(p)), extent.log_times.get(p))
        for p in {*accepted, *extent.log_times}
    }


def _check(outcome: Outcome, judged: Judged, batch: str) -> None:
    """What was published must be what was to be; duplicates by subtraction what Spark's operator counted."""
    rest = sum(entry.duplicate for entry in outcome.entries)
    hint = "the batch is not recorded; headrace audit --recount names the offsets"
    if rest != outcome.duplicates or any(entry.duplicate < 0 for entry in outcome.entries):
        raise LeakError(
            f"{batch}: {rest} records are neither accepted, rejected nor late,"
            f" but Spark counted {outcome.duplicates} duplicates",
            hint=hint,
        )
    if outcome.accepted != judged.accepted:
        raise LeakError(
            f"{batch}: {judged.accepted} records are accepted, but {outcome.accepted} were published",
            hint=hint,
        )
    for partition, reach in outcome.reached.items():
        expected = judged.reached.get(partition, reach)
        if expected != reach:
            raise LeakError(
                f"{batch}: partition {partition} was to reach {expected}, but {reach} was published",
                hint=hint,
            )
