"""The four fates of a record, and how many of each a partition had in a batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ACCEPTED, REJECTED, LATE = range(3)


@dataclass(frozen=True)
class Tally:
    """What became of one partition's records; `clock` is the largest accepted event time, in microseconds."""

    partition: int
    accepted: int = 0
    rejected: int = 0
    late: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    clock: int | None = None
    enriched: dict[str, int] = field(default_factory=dict)  # by "enrichment:outcome"
    waiting: dict[str, tuple[bytes, ...]] = field(default_factory=dict)  # packed events, by enrichment

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.partition,
            self.accepted + other.accepted,
            self.rejected + other.rejected,
            self.late + other.late,
            _sums(self.reasons, other.reasons),
            latest(self.clock, other.clock),
            _sums(self.enriched, other.enriched),
            {
                name: (*self.waiting.get(name, ()), *other.waiting.get(name, ()))
                for name in {**self.waiting, **other.waiting}
            },
        )

    def as_list(self) -> list[Any]:
        """The numbers only."""
        plain = [self.partition, self.accepted, self.rejected, self.late, self.reasons, self.clock]
        return [*plain, self.enriched] if self.enriched else plain


@dataclass
class EnrichedPart:
    """What a batch brought for one enrichment: how many had which outcome, and packed events that wait."""

    counts: dict[str, int] = field(default_factory=dict)
    waiting: list[bytes] = field(default_factory=list)


def _sums(some: dict[str, int], others: dict[str, int]) -> dict[str, int]:
    return {name: some.get(name, 0) + others.get(name, 0) for name in {**some, **others}}


def latest(*clocks: int | None) -> int | None:
    return max((clock for clock in clocks if clock is not None), default=None)


def by_partition(tallies: list[Tally]) -> dict[int, Tally]:
    sums: dict[int, Tally] = {}
    for tally in tallies:
        sums[tally.partition] = sums.get(tally.partition, Tally(tally.partition)) + tally
    return sums
