"""What the ledger says about a batch: for each partition, what was received and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from headrace.fates import EnrichedPart


@dataclass(frozen=True)
class Entry:
    """One partition in one batch; `received = accepted + rejected + late + duplicate`."""

    partition: int
    first_offset: int
    end_offset: int
    received: int
    accepted: int
    rejected: int
    late: int
    duplicate: int
    reasons: dict[str, int]
    clock: int | None  # microseconds
    log_time: int | None = None  # microseconds, of the newest record
    oldest_log_time: int | None = None  # of the oldest record of this batch


@dataclass(frozen=True)
class Reach:
    """Where a partition stands after a batch: its clock, and the log time of its newest record."""

    clock: int | None
    log_time: int | None


@dataclass(frozen=True)
class Outcome:
    """What became of the records of a batch, and of its events in each enrichment."""

    entries: tuple[Entry, ...]
    duplicates: int  # as Spark's operator counted them
    dropped: int  # rows that Spark's operator dropped because of its watermark: always zero
    enriched: Mapping[str, EnrichedPart] = field(default_factory=dict)

    @property
    def accepted(self) -> int:
        return sum(entry.accepted for entry in self.entries)

    @property
    def reached(self) -> dict[int, Reach]:
        return {entry.partition: Reach(entry.clock, entry.log_time) for entry in self.entries}


@dataclass(frozen=True)
class Judged:
    """What is known of a batch before its records are published: how many it accepts, how far it reaches."""

    accepted: int
    reached: Mapping[int, Reach]  # by partition


class Batch:
    """A batch while it is recorded. Its outcome is known when its records are published: asking waits.

    What was `judged` before that is taken from the entries where it is not given.
    """

    def __init__(
        self,
        query: str,
        batch_id: int,
        started_at: datetime,
        outcome: Outcome | Callable[[], Outcome],
        judged: Judged | None = None,
    ) -> None:
        self.query, self.batch_id, self.started_at = query, batch_id, started_at
        self._outcome, self._judged = outcome, judged

    @cached_property
    def outcome(self) -> Outcome:
        return self._outcome if isinstance(self._outcome, Outcome) else self._outcome()

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self.outcome.entries

    @property
    def received(self) -> int:
        return sum(entry.received for entry in self.entries)

    @property
    def accepted(self) -> int:
        return self._judged.accepted if self._judged is not None else self.outcome.accepted

    @property
    def reached(self) -> Mapping[int, Reach]:
        return self._judged.reached if self._judged is not None else self.outcome.reached

    def under(self, query: str) -> Batch:
        """The same under another name."""
        return Batch(query, self.batch_id, self.started_at, lambda: self.outcome, self._judged)
