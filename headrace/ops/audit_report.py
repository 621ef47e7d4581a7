"""What an audit found, as plain frozen values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal[
    "gap",
    "overlap",
    "identity",
    "batch",
    "dropped",
    "lost",
    "wrong_fate",
    "kept_twice",
    "repeated",
    "foreign",
    "count",
    "metric",
    "flow",
    "outbox",
]
MEANING: dict[Kind, str] = {
    "gap": "records that no batch of the ledger covers",
    "overlap": "offsets that two batches of the ledger cover",
    "identity": "received is not accepted + rejected + late + duplicate",
    "batch": "the ledger of a batch differs from what Spark counted in it",
    "dropped": "rows that Spark dropped as too old",
    "lost": "records that are in no output and are nobody's duplicate",
    "wrong_fate": "records whose fate is not the one that the contract gives them",
    "kept_twice": "copies of an event that was kept already",
    "repeated": "records that were published more than once",
    "foreign": "published records that name no record of the audited log",
    "count": "the ledger and the recount differ",
    "metric": "accepted is not counted + filtered + late for this metric",
    "flow": "events that this flow took and that have no outcome, or rows of its tables that are not there",
    "outbox": "results that left the store without being published",
}
SHOWN_RANGES = 20
_REMEMBERED = 100_000


@dataclass(frozen=True)
class Fates:
    """Records by fate."""

    received: int = 0
    accepted: int = 0
    rejected: int = 0
    late: int = 0
    duplicate: int = 0

    @property
    def missing(self) -> int:
        return self.received - self.accepted - self.rejected - self.late - self.duplicate

    def __add__(self, other: Fates) -> Fates:
        return Fates(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))


@dataclass(frozen=True)
class Finding:
    """One kind of leak in one partition. `ranges` are inclusive, the first 20; `count` is complete."""

    kind: Kind
    topic: str
    partition: int
    count: int
    ranges: tuple[tuple[int, int], ...] = ()
    note: str = ""

    def __str__(self) -> str:
        spans = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in self.ranges)
        shown = sum(b - a + 1 for a, b in self.ranges)
        more = ", …" if spans and shown < self.count else ""
        place = f"{self.topic}/{self.partition}" if self.partition >= 0 else self.topic
        offsets = f" at {spans}{more}" if spans else ""
        return f"{self.kind}: {place}: {self.count}{offsets}: {self.note or MEANING[self.kind]}"


@dataclass(frozen=True)
class PartitionAudit:
    """One partition: the ledger's range and sums, what a gap hides, and what is not read yet."""

    partition: int
    first_offset: int
    end_offset: int
    fates: Fates
    gap: int = 0
    pending: int = 0

    @property
    def unaccounted(self) -> int:
        return abs(self.fates.missing) + self.gap


@dataclass(frozen=True)
class MetricAudit:
    """What became of the accepted events for one metric. `batches` are those that do not add up."""

    metric: str
    accepted: int
    counted: int
    filtered: int
    late: int
    unaccounted: int = 0
    batches: tuple[int, ...] = ()

    @property
    def named(self) -> str:
        """The batches that do not add up, as ranges."""
        shown = shown_ranges(self.batches)
        more = ", …" if sum(b - a + 1 for a, b in shown) < len(self.batches) else ""
        return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in shown) + more


@dataclass(frozen=True)
class FlowAudit:
    """What became of the accepted events for one flow, or one side of it: filtered + outcomes = accepted.

    `accepted` is None where it was not counted from the beginning; `notes` tell what does not add up.
    """

    flow: str
    kind: str
    side: str
    accepted: int | None
    taken: int
    outcomes: Mapping[str, int]
    unaccounted: int = 0
    notes: tuple[str, ...] = ()

    @property
    def filtered(self) -> int | None:
        return None if self.accepted is None else self.accepted - self.taken

    def to_json(self) -> dict[str, Any]:
        """The outcomes once more by their names, where these are free."""
        return {**self.outcomes, **asdict(self), "filtered": self.filtered}


@dataclass(frozen=True)
class OutboxAudit:
    """What became of the results for a topic; `in_topic` is known after a recount."""

    topic: str
    lane: str
    handed: int
    published: int
    waiting: int
    unaccounted: int = 0
    in_topic: int | None = None
    note: str = ""


@dataclass(frozen=True)
class LaneAudit:
    """Rows of signals against the topic that the real-time lane writes; known after a recount.

    rows = in_topic + pending + unjudged + those that are lost.
    """

    signals: str
    topic: str
    rows: int  # that must have a signal in the topic
    in_topic: int
    pending: int  # the lane has not noted that it has passed them
    unjudged: int  # the topic may have lost them, or the lane may have decided otherwise
    records: int  # in the topic, of events of the audited range
    repeated: int  # records whose id was there before
    unaccounted: int = 0


@dataclass(frozen=True)
class RecountReport:
    """What a second reading of the raw topic and a count of the output topics gave."""

    fates: dict[int, Fates]  # by partition
    published: dict[str, int]  # topic to records of the audited range
    in_flight: int = 0  # published by a batch that is not in the ledger yet
    unproven: int = 0  # duplicates of what has left the log already
    unjudged: int = 0  # records whose outputs have left the log already


@dataclass(frozen=True)
class AuditReport:
    source: str
    query: str
    batches: int
    partitions: tuple[PartitionAudit, ...]
    findings: tuple[Finding, ...]
    recount: RecountReport | None = None
    metrics: tuple[MetricAudit, ...] = ()
    flows: tuple[FlowAudit, ...] = ()
    outboxes: tuple[OutboxAudit, ...] = ()
    lanes: tuple[LaneAudit, ...] = ()

    @property
    def fates(self) -> Fates:
        return sum((p.fates for p in self.partitions), Fates())

    @property
    def pending(self) -> int:
        return sum(p.pending for p in self.partitions)

    @property
    def unaccounted(self) -> int:
        """Records without a fate: in a gap, beyond the identity, or lost on the way to the outputs."""
        lost = sum(f.count for f in self.findings if f.kind == "lost")
        return sum(p.unaccounted for p in self.partitions) + lost

    @property
    def clean(self) -> bool:
        return self.unaccounted == 0 and not self.findings

    def summary(self) -> str:
        """One line: what was received, what became of it, and what has no fate."""
        f = self.fates
        parts = [f"{self.source}: received {f.received}", f"accepted {f.accepted}", f"rejected {f.rejected}"]
        parts += [f"late {f.late}", f"duplicate {f.duplicate}", f"unaccounted {self.unaccounted}"]
        if self.pending:
            parts.append(f"pending {self.pending}")
        return " · ".join(parts)

    def to_json(self) -> dict[str, Any]:
        totals = {**asdict(self.fates), "pending": self.pending, "unaccounted": self.unaccounted}
        partitions = [{**asdict(p), "unaccounted": p.unaccounted} for p in self.partitions]
        flows = [flow.to_json() for flow in self.flows]
        plain = {**asdict(self), "clean": self.clean, "totals": totals}
        return {**plain, "partitions": partitions, "flows": flows}


class Offenders:
    """Collects coordinates by kind and partition; remembers enough of them to name, and counts all."""

    def __init__(self) -> None:
        self._offsets: defaultdict[tuple[Kind, str, int], list[int]] = defaultdict(list)
        self._counts: defaultdict[tuple[Kind, str, int], int] = defaultdict(int)

    def add(self, kind: Kind, topic: str, partition: int, offset: int) -> None:
        key = (kind, topic, partition)
        self._counts[key] += 1
        if self._counts[key] <= _REMEMBERED:
            self._offsets[key].append(offset)

    def findings(self) -> list[Finding]:
        return [
            Finding(*key, count, shown_ranges(self._offsets[key]))
            for key, count in sorted(self._counts.items())
        ]


def shown_ranges(offsets: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Offsets as inclusive ranges, the first 20."""
    ranges: list[tuple[int, int]] = []
    for offset in sorted(set(offsets)):
        if ranges and offset == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], offset)
        elif len(ranges) == SHOWN_RANGES:
            break
        else:
            ranges.append((offset, offset))
    return tuple(ranges)
