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
class Outcome:
    """What became of the records of a batch, and of its events in each enrichment."""

    entries: tuple[Entry, ...]
    duplicates: int  # as Spark's operator counted them
    dropped: int  # rows that Spark's operator dropped because of its watermark: always zero
    enriched: Mapping[str, EnrichedPart] = field(default_factory=dict)

    @property
    def accepted(self) -> int:
        return sum(entry.accepted for entry in self.entries)


class Batch:
    """A batch while it is recorded. Its outcome is known when its records are published: asking waits.

    How many events it accepts is known before; `accepted` is counted from the entries where it is not given.
    """

    def __init__(
        self,
        query: str,
        batch_id: int,
        started_at: datetime,
        outcome: Outcome | Callable[[], Outcome],
        accepted: int | None = None,
    ) -> None:
        self.query, self.batch_id, self.started_at = query, batch_id, started_at
        self._outcome, self._accepted = outcome, accepted

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
        return self._accepted if self._accepted is not None else self.outcome.accepted

    def under(self, query: str) -> Batch:
        """The same under another name."""
        return Batch(query, self.batch_id, self.started_at, lambda: self.outcome, self._accepted)
