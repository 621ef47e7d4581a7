"""Answers about what went wrong and what became of everything: dead letters, the ledger, the audit."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from headrace.serve.models import Count, Next, Shape


class Reason(Shape):
    code: str = Field(examples=["missing"])
    field: str = Field(examples=["price"])


class Origin(Shape):
    topic: str
    partition: Count
    offset: Count
    log_time: datetime | None


class DeadLetter(Shape):
    """A rejected record. `masked` if something is hidden from the caller."""

    source: str
    topic: str = Field(examples=["clickstream.invalid.v1"])
    partition: Count
    offset: Count
    at: datetime | None
    reasons: list[Reason]
    contract_version: str | None = Field(examples=["1.4.0"])
    producer: str | None = Field(examples=["storefront"])
    origin: Origin | None
    key: str | None
    headers: dict[str, str | None]
    value: Any
    encoding: Literal["json", "text", "bytes"] | None
    size: Count
    truncated: bool = Field(description="The value is too long for a list: ask for this record alone.")
    masked: bool


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
    partial: bool = Field(description="Not all records were looked at.")


class LedgerEntry(Shape):
    source: str
    query: str
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
    clock: datetime | None
    started_at: datetime
    finished_at: datetime


class Ledger(Shape):
    items: list[LedgerEntry]
    next: Next


class AuditedFlow(Shape):
    """accepted = filtered + the outcomes; each outcome is a member of its own, too."""

    flow: str = Field(examples=["order_paid"])
    kind: str = Field(examples=["join"])
    side: str = Field(examples=["left"])
    accepted: int | None
    filtered: int | None
    taken: Count
    outcomes: dict[str, int] = Field(examples=[{"matched": 52, "unmatched": 3, "pending": 5, "late": 0}])
    unaccounted: int
    notes: list[str] = Field(description="What does not add up.")


class AuditedOutbox(Shape):
    topic: str = Field(examples=["order_paid.v1"])
    handed: Count = Field(description="Results that were put into the outbox.")
    published: Count
    waiting: Count
    unaccounted: int


class SourceAudit(Shape):
    source: str
    clean: bool | None = Field(description="null: nothing has been read yet.")
    flows: list[AuditedFlow] = Field([])
    outboxes: list[AuditedOutbox] = Field([])


class Audit(Shape):
    clean: bool
    sources: list[SourceAudit]
    at: datetime
