"""Answers about sources, health and the pipeline as it is now."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from headrace.serve.models import Count, Shape


class Source(Shape):
    name: str = Field(examples=["payments"])
    owner: str = Field(examples=["payments"])
    version: str = Field(examples=["1.0.0"])
    status: str = Field(examples=["active"])
    classification: str = Field(examples=["restricted"])
    classified: bool
    roles: list[str] = Field(description="Who may read it, if it is classified.")
    topics: dict[str, str]
    partitions: int
    lateness: str = Field(examples=["30 minutes"])
    idle_after: str = Field(examples=["1 minute"])


class Sources(Shape):
    items: list[Source]
    next: None = None


class Check(Shape):
    name: str = Field(examples=["store"])
    status: Literal["ok", "degraded", "down"]
    detail: str | None
    runbook: str | None


class Health(Shape):
    status: Literal["ok", "degraded", "down"]
    checks: list[Check]
    at: datetime


class SourceNow(Shape):
    source: str
    received: Count
    accepted: Count
    rejected: Count
    late: Count
    duplicate: Count
    unaccounted: int


class FlowNow(Shape):
    """A flow, or a side of a join: accepted = filtered + the outcomes of what was taken."""

    flow: str = Field(examples=["order_paid"])
    kind: Literal["join", "sessions", "pattern", "signals", "enrichment"]
    side: str = Field(examples=["left"], description="Empty where a flow has one side only.")
    source: str
    accepted: int | None = Field(description="Null where it was not counted from the beginning.")
    filtered: int | None
    taken: Count
    outcomes: dict[str, int] = Field(examples=[{"matched": 1200, "unmatched": 20, "pending": 10, "late": 4}])
    late: Count
    waiting: Count = Field(description="What is kept for later events.")
    bytes: int | None = Field(description="Size of the table that keeps it.")
    alerts: int | None = Field(description="Of a pattern: how many it has raised.")


class LaneNow(Shape):
    """The real-time lane of a source; it tells of a batch when the batch has ended."""

    source: str
    query: str = Field(examples=["turanmart.payments.realtime"])
    status: Literal["running", "restarting", "stopped", "unknown"]
    received: Count
    signals: Count = Field(description="Sent to topics, repetitions after a crash included.")
    latency_ms: dict[str, int] | None = Field(
        examples=[{"p50": 9, "p99": 60}], description="From the log to the sending, last batch."
    )
    at: datetime | None = Field(description="When the last batch that has ended began.")
    restarts: Count
    last_failure: str | None


class Pipeline(Shape):
    at: datetime
    sources: list[SourceNow]
    flows: list[FlowNow]
    lanes: list[LaneNow]
    signals: dict[str, dict[str, int]] = Field(examples=[{"fraud": {"allow": 812, "block": 3}}])
