"""What the ledger says about a batch: for each partition, what was received and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


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
class Batch:
    query: str
    batch_id: int
    started_at: datetime
    entries: tuple[Entry, ...]
    duplicates: int  # as Spark's operator counted them
    dropped: int  # rows that Spark's operator dropped because of its watermark: always zero

    @property
    def received(self) -> int:
        return sum(entry.received for entry in self.entries)
