"""Answers about flows: alerts, joins, signals, enrichment."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from headrace.serve.models import NONE, Count, Next, Shape, Time

EventId = Annotated[str, Field(examples=["01J8ZQ7A0C4D9TZV5E2H8N6RKP"])]
AlertState = Literal["open", "resolved"]
Version = Annotated[str, Field(examples=["1"])]
Decision = Annotated[str, Field(examples=["block"])]


class Alert(Shape):
    """What a threshold or a pattern has found; of a pattern, `metric` is its own name."""

    id: str = Field(
        description="The same for the same incident.", examples=["5f2c9a0e5d0b4c6f9e3a7b1d2c4f6a80"]
    )
    alert: str = Field(examples=["low_conversion"])
    metric: str = Field(examples=["conversion_1m"])
    severity: str = Field(examples=["critical"])
    state: AlertState = Field(examples=["open"])
    grouping: str = Field(examples=["region"])
    dimensions: dict[str, str] = Field(examples=[{"region": "tashkent"}])
    window_start: Time
    window_end: datetime = Field(examples=["2026-03-01T09:04:00Z"])
    values: dict[str, Any] = Field(
        description="Of the last window, decimals as text; of a pattern, the events that matched.",
        examples=[{"events": 812, "revenue": "435773.43", "conversion_rate": 0.0078125}],
    )
    message: str = Field(examples=["conversion in tashkent is 0.78%"])
    runbook: str | None = Field(examples=["/runbooks/incident-alerts"])
    opened_at: datetime = Field(examples=["2026-03-01T09:03:21.318Z"])
    updated_at: datetime = Field(examples=["2026-03-01T09:04:21.318Z"])
    resolved_at: datetime | None = Field(examples=[None])
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
    kind: Literal["one_to_one", "one_to_many", "first_match"] = Field(examples=["one_to_one"])
    on: list[list[str]] = Field(
        description="A field of the left, a field of the right.", examples=[[["order_id", "order_id"]]]
    )
    within: str = Field(examples=["30 minutes"])
    checks: list[str] = Field(description="Reasons why a pair fails.", examples=[["amount_differs"]])
    columns: list[str] = Field(examples=[["region", "amount"]])
    topic: str | None = Field(examples=["order_paid.v1"])
    dead_letters: str | None = Field(examples=["order_paid.unmatched.v1"])
    retain: str = Field(examples=["7 days"])
    sides: dict[str, JoinCounts] = Field(description="`left` and `right`.")


class Joins(Shape):
    items: list[Join]
    next: None = NONE


class Pair(Shape):
    """A key or an event id that is classified is null for those without the role."""

    id: str = Field(
        description="The same for the same two events.", examples=["0f4b9f2c3f3d4bb6a4f1a7b4b8f0a9e1"]
    )
    key: str | None = Field(examples=["o-883201"])
    left_id: EventId | None
    right_id: EventId | None
    left_time: Time | None
    right_time: datetime | None = Field(examples=["2026-03-01T09:00:12Z"])
    event_time: datetime = Field(description="The later of the two.", examples=["2026-03-01T09:00:12Z"])
    values: dict[str, Any] = Field(
        description="Columns of the join; decimals are text.",
        examples=[{"region": "almaty", "amount": "16139.75"}],
    )


class Match(Pair):
    matched_at: datetime = Field(examples=["2026-03-01T09:00:13.200Z"])


class Matches(Shape):
    items: list[Match]
    next: Next


class DeadPair(Pair):
    reason: str = Field(examples=["no_payment"])
    side: Literal["left", "right", "pair"] = Field(examples=["left"])
    at: datetime = Field(description="When it was given up.", examples=["2026-03-01T09:31:02Z"])


class Unmatched(Shape):
    items: list[DeadPair]
    next: Next


class SignalSet(Shape):
    name: str = Field(examples=["fraud"])
    source: str = Field(examples=["payments"])
    key: str = Field(examples=["card_hash"])
    where: str = Field(description="Which events are scored.", examples=["event_type = 'payment_authorized'"])
    features: dict[str, str] = Field(examples=[{"payments_5m": "count"}])
    decisions: dict[str, float] = Field(description="Thresholds.", examples=[{"block": 0.9}])
    version: Version
    shadow_version: str | None = Field(examples=["velocity-1"])
    topic: str = Field(examples=["fraud_signals.v1"])
    lane: Literal["normal", "realtime"] = Field(description="Who writes the topic.", examples=["normal"])
    counts: dict[str, int] = Field(examples=[{"allow": 812, "block": 3}])


class SignalSets(Shape):
    items: list[SignalSet]
    next: None = NONE


class SignalRow(Shape):
    id: str = Field(examples=["fraud:01J8ZQ7A0C4D9TZV5E2H8N6RKP"])
    event_id: EventId
    partition: Count
    offset: Count
    event_time: Time
    log_time: datetime | None = Field(examples=["2026-03-01T09:00:00.120Z"])
    labels: dict[str, str | None] = Field(examples=[{"card_hash": "9c1e", "customer_id": "c-104233"}])
    features: dict[str, Any] = Field(examples=[{"payments_5m": 4, "dollars_5m": "612.40"}])
    complete: bool = Field(
        description="False: an event so old that some of its past was forgotten.", examples=[True]
    )
    score: float | None = Field(examples=[0.93])
    decision: Decision
    version: Version
    shadow_score: float | None = Field(examples=[0.6])
    shadow_decision: str | None = Field(examples=["review"])
    shadow_version: str | None = Field(examples=["velocity-1"])
    scored_at: datetime = Field(examples=["2026-03-01T09:00:00.900Z"])


class SignalRows(Shape):
    items: list[SignalRow]
    next: Next


class ActivityRow(Shape):
    key: str = Field(examples=["c-104233"])
    suspicious: Count
    first_time: Time
    last_time: datetime = Field(examples=["2026-03-01T09:04:31Z"])


class Activity(Shape):
    items: list[ActivityRow]
    next: Next
    by: str = Field(examples=["customer_id"])


class Compared(Shape):
    version: Version
    shadow_version: str = Field(examples=["velocity-1"])
    decision: Decision
    shadow_decision: str = Field(examples=["review"])
    events: Count
    mean_difference: float | None = Field(
        description="Of the scores, the shadow's less the live one's.", examples=[-0.12]
    )
    largest_difference: float | None = Field(examples=[0.41])


class Comparison(Shape):
    items: list[Compared]
    events: Count
    agreement: float | None = Field(
        description="The share of equal decisions; null without events.", examples=[0.97]
    )
    begin: Time = Field(alias="from")


class EnrichTable(Shape):
    name: str = Field(examples=["products"])
    place: str = Field(examples=["dimensions/products.csv"])
    rows: Count
    loaded_at: Time = Field(description="When the versions in use were read.")
    checked_at: Time = Field(description="When it was last looked whether they have changed.")
    problem: str = Field(
        description="Why a change cannot be read; empty if all is well.", examples=["line 7: no product_id"]
    )
    stale_seconds: float = Field(description="For how long it cannot be read.", examples=[0])


class EnrichedStream(Shape):
    name: str = Field(examples=["clickstream_enriched"])
    source: str = Field(examples=["clickstream"])
    topic: str = Field(examples=["clickstream.enriched.v1"])
    unknown: str = Field(description="What becomes of events with an unknown key.", examples=["keep"])
    columns: dict[str, str] = Field(examples=[{"category": "products.category"}])
    counts: dict[str, int] = Field(examples=[{"found": 1180, "unknown": 20}])
    hit_rate: float | None = Field(
        description="Of the events with a key, the share that was found.", examples=[0.983]
    )
    tables: list[EnrichTable]


class Enrichments(Shape):
    items: list[EnrichedStream]
    next: None = NONE
