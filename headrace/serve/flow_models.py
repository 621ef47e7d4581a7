"""Answers about flows: alerts, joins, signals, enrichment."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from headrace.serve.models import Count, Next, Shape


class Alert(Shape):
    id: str
    alert: str
    metric: str
    severity: str
    state: Literal["open", "resolved"]
    opened_at: datetime
    updated_at: datetime
    resolved_at: datetime | None
    resolution: Literal["recovered", "retracted", "withdrawn"] | None = Field(
        description="How it ended: the metric recovered, a correction took it back, or its rule is gone.",
        examples=["recovered"],
    )


class Alerts(Shape):
    items: list[Alert]
    next: Next


class JoinCounts(Shape):
    source: str = Field(examples=["orders"])
    taken: Count
    matched: Count
    unmatched: Count
    pending: Count
    late: Count


class Join(Shape):
    name: str = Field(examples=["order_paid"])
    kind: Literal["one_to_one", "one_to_many", "first_match"]
    within: str = Field(examples=["30 minutes"])
    topic: str | None
    dead_letters: str | None
    sides: dict[str, JoinCounts] = Field(description="`left` and `right`.")


class Joins(Shape):
    items: list[Join]
    next: None = None


class Match(Shape):
    id: str = Field(description="The same for the same two events.")
    key: str | None
    left_id: str | None
    right_id: str | None
    left_time: datetime | None
    right_time: datetime | None
    event_time: datetime
    values: dict[str, Any] = Field(description="Columns of the join; decimals are text.")


class Matches(Shape):
    items: list[Match]
    next: Next


class DeadPair(Match):
    reason: str = Field(examples=["no_payment"])
    side: Literal["left", "right", "pair"]


class Unmatched(Shape):
    items: list[DeadPair]
    next: Next


class SignalSet(Shape):
    name: str = Field(examples=["fraud"])
    source: str = Field(examples=["payments"])
    key: str = Field(examples=["card_hash"])
    features: dict[str, str] = Field(examples=[{"payments_5m": "count"}])
    decisions: dict[str, float] = Field(description="Thresholds.", examples=[{"block": 0.9}])
    version: str
    shadow_version: str | None
    topic: str
    lane: Literal["normal", "realtime"] = Field(description="Who writes the topic.")
    counts: dict[str, int] = Field(examples=[{"allow": 812, "block": 3}])


class SignalSets(Shape):
    items: list[SignalSet]
    next: None = None


class SignalRow(Shape):
    id: str = Field(examples=["fraud:01J8ZQ7A0C4D9TZV5E2H8N6RKP"])
    event_id: str
    partition: Count
    offset: Count
    event_time: datetime
    log_time: datetime | None
    labels: dict[str, str | None]
    features: dict[str, Any]
    complete: bool = Field(description="False: an event so old that some of its past was forgotten.")
    score: float | None
    decision: str = Field(examples=["block"])
    version: str
    shadow_score: float | None
    shadow_decision: str | None
    shadow_version: str | None
    scored_at: datetime


class SignalRows(Shape):
    items: list[SignalRow]
    next: Next


class ActivityRow(Shape):
    key: str
    suspicious: Count
    first_time: datetime
    last_time: datetime


class Activity(Shape):
    items: list[ActivityRow]
    next: Next
    by: str = Field(examples=["customer_id"])


class Compared(Shape):
    version: str
    shadow_version: str
    decision: str
    shadow_decision: str
    events: Count
    mean_difference: float | None
    largest_difference: float | None


class Comparison(Shape):
    items: list[Compared]
    events: Count
    agreement: float | None


class EnrichTable(Shape):
    name: str = Field(examples=["products"])
    place: str = Field(examples=["dimensions/products.csv"])
    rows: Count
    loaded_at: datetime = Field(description="When the versions in use were read.")
    checked_at: datetime = Field(description="When it was last looked whether they have changed.")
    problem: str = Field(description="Why a change cannot be read; empty if all is well.")
    stale_seconds: float = Field(description="For how long it cannot be read.")


class EnrichedStream(Shape):
    name: str = Field(examples=["clickstream_enriched"])
    source: str
    topic: str
    unknown: str
    columns: dict[str, str] = Field(examples=[{"category": "products.category"}])
    counts: dict[str, int]
    hit_rate: float | None = Field(description="Of the events with a key, the share that was found.")
    tables: list[EnrichTable]


class Enrichments(Shape):
    items: list[EnrichedStream]
    next: None = None
