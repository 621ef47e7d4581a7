"""Answers about what went wrong and what became of everything: dead letters, the ledger, the audit."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from headrace.serve.models import Count, Next, Shape, SourceName, Time


class Reason(Shape):
    code: str = Field(examples=["missing"])
    field: str = Field(examples=["price"])


class Origin(Shape):
    """Where the record came from, in the raw topic."""

    topic: str = Field(examples=["clickstream.raw.v1"])
    partition: Count
    offset: Count
    log_time: Time | None


class DeadLetter(Shape):
    """A rejected record. `masked` if something is hidden from the caller."""

    source: SourceName
    topic: str = Field(examples=["clickstream.invalid.v1"])
    partition: Count
    offset: Count
    at: datetime | None = Field(examples=["2026-03-01T09:00:00.400Z"])
    reasons: list[Reason]
    contract_version: str | None = Field(examples=["1.4.0"])
    producer: str | None = Field(examples=["storefront"])
    origin: Origin | None
    key: str | None = Field(examples=["(hidden)"])
    headers: dict[str, str | None] = Field(examples=[{"headrace-contract": "clickstream:1.4.0"}])
    value: Any = Field(examples=[{"event_type": "purchase", "customer_id": "(hidden)", "price": None}])
    encoding: Literal["json", "text", "bytes"] | None = Field(
        description="How to read the value; null if there is none to be seen.", examples=["json"]
    )
    size: Count
    truncated: bool = Field(
        description="The value is too long for a list: ask for this record alone.", examples=[False]
    )
    masked: bool = Field(examples=[True])


class DeadLetters(Shape):
    items: list[DeadLetter]
    next: Next
    scanned: Count = Field(description="How many records were looked at.")


class Counted(Shape):
    key: str | None = Field(examples=["missing"])
    count: Count


class Histogram(Shape):
    items: list[Counted]
    records: Count
    partial: bool = Field(description="Not all records were looked at.", examples=[False])
    begin: Time | None = Field(None, alias="from", description="Of the span of time, by reason only.")
    end: Time | None = Field(None, alias="to")


class LedgerEntry(Shape):
    source: SourceName
    query: str = Field(examples=["turanmart.clickstream"])
    batch_id: Count
    partition: Count
    first_offset: Count
    end_offset: Count
    received: Count
    accepted: Count
    rejected: Count
    late: Count
    duplicate: Count
    reasons: dict[str, int] = Field(examples=[{"missing": 1}])
    clock: Time | None
    started_at: Time
    finished_at: datetime = Field(examples=["2026-03-01T09:00:01.750Z"])


class Ledger(Shape):
    items: list[LedgerEntry]
    next: Next


class AuditedFlow(Shape):
    """accepted = filtered + the outcomes; each outcome is a member of its own, too."""

    flow: str = Field(examples=["order_paid"])
    kind: str = Field(examples=["join"])
    side: str = Field(examples=["left"])
    accepted: int | None = Field(examples=[60])
    filtered: int | None = Field(examples=[0])
    taken: Count
    outcomes: dict[str, int] = Field(examples=[{"matched": 52, "unmatched": 3, "pending": 5, "late": 0}])
    unaccounted: int = Field(examples=[0])
    notes: list[str] = Field(description="What does not add up.", examples=[[]])


class AuditedOutbox(Shape):
    topic: str = Field(examples=["order_paid.v1"])
    handed: Count = Field(description="Results that were put into the outbox.")
    published: Count
    waiting: Count
    unaccounted: int = Field(examples=[0])
    lane: str = Field(description="Who writes it.", examples=["turanmart.order_paid"])
    in_topic: int | None = Field(description="Known after a recount only.", examples=[None])
    note: str = Field(examples=[""])


class Totals(Shape):
    received: Count
    accepted: Count
    rejected: Count
    late: Count
    duplicate: Count


class SourceTotals(Totals):
    pending: Count
    unaccounted: int = Field(examples=[0])


class AuditedPartition(Shape):
    """The ledger's range of offsets, and what became of it."""

    partition: Count
    first_offset: Count
    end_offset: Count
    fates: Totals
    gap: Count = Field(description="Offsets that no batch has.")
    pending: Count
    unaccounted: int = Field(examples=[0])


class AuditFinding(Shape):
    """A leak: its kind, where, how many, and the first ranges of offsets."""

    kind: str = Field(examples=["gap"])
    topic: str = Field(examples=["clickstream.raw.v1"])
    partition: int = Field(examples=[0])
    count: Count
    ranges: list[list[int]] = Field(examples=[[[120, 131]]])
    note: str = Field(examples=[""])


class AuditedMetric(Shape):
    """accepted = counted + filtered + late."""

    metric: str = Field(examples=["conversion_1m"])
    accepted: Count
    counted: Count
    filtered: Count
    late: Count
    unaccounted: int = Field(examples=[0])
    batches: list[int] = Field(description="Those that do not add up.", examples=[[]])


class SourceAudit(Shape):
    """A source that nobody has read yet has `clean` null and a `note`, and nothing else."""

    source: SourceName
    clean: bool | None = Field(description="null: nothing has been read yet.", examples=[True])
    note: str = Field("", examples=[""])
    query: str = Field("", examples=["turanmart.clickstream"])
    batches: Count = 0
    totals: SourceTotals | None = None
    partitions: list[AuditedPartition] = Field([])
    metrics: list[AuditedMetric] = Field([])
    flows: list[AuditedFlow] = Field([])
    outboxes: list[AuditedOutbox] = Field([])
    findings: list[AuditFinding] = Field([])
    findings_total: Count = 0
    lanes: list[Any] = Field([], description="Known after a recount, which the command does.", examples=[[]])
    recount: None = Field(None, description="`headrace audit --recount` does it.", examples=[None])


class Audit(Shape):
    clean: bool = Field(examples=[True])
    sources: list[SourceAudit]
    at: Time
