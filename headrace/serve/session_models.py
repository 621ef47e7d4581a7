"""The shapes of the answers about sessions, for the OpenAPI document."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from headrace.serve.models import NONE, Count, Next, Shape, SourceName, State, Time


class Session(Shape):
    """Events of one key that follow one another without a long gap."""

    key: str = Field(examples=["c-104233"])
    session_start: datetime = Field(description="Of the first event.", examples=["2026-03-01T09:00:12Z"])
    session_end: datetime = Field(description="Last event and gap.", examples=["2026-03-01T09:41:40Z"])
    last_event: datetime = Field(examples=["2026-03-01T09:11:40Z"])
    duration_seconds: float = Field(examples=[688.0])
    state: State = Field(description="`final` never changes again.", examples=["final"])
    revision: int = Field(description="Rises with each change of a published row.", examples=[1])
    events: Count
    values: dict[str, Any] = Field(
        description="Measures and derived columns; decimals are text.",
        examples=[{"pages": 7, "entry_page": "/", "converted": True, "revenue": "435773.43"}],
    )
    watermark: Time | None
    updated_at: Time


class SessionRows(Shape):
    items: list[Session]
    next: Next


class DeclaredSessions(Shape):
    name: str = Field(examples=["visits"])
    source: str = Field(examples=["clickstream"])
    key: str = Field(examples=["customer_id"])
    gap: str = Field(examples=["30 minutes"])
    max_length: str = Field(examples=["4 hours"])
    columns: dict[str, str | None] = Field(
        description="Types by name; null until the engine has made the table.",
        examples=[{"pages": "integer", "entry_page": "string"}],
    )
    preliminary_after: str = Field(examples=["0 seconds"])
    final_after: str = Field(examples=["10 minutes"])
    retain: str = Field(examples=["2 days"])


class SomeSessions(Shape):
    """Sessions with an event in the last hour, by the watermark; the newest 50,000 of each state at most."""

    sessions: Count
    open_sessions: Count
    events: Count
    median_seconds: float | None = Field(description="From the first event to the last.", examples=[412.0])
    shares: dict[str, float | None] = Field(
        description="Of the sessions, for how many a column is true.", examples=[{"converted": 0.031}]
    )
    sums: dict[str, Any] = Field(description="Of counts and sums.", examples=[{"revenue": "81240.50"}])


class SessionGroup(SomeSessions):
    group: str | None = Field(examples=["tashkent"])


class SessionSummary(SomeSessions):
    name: str = Field(examples=["visits"])
    source: SourceName
    watermark: Time | None
    since: datetime | None = Field(examples=["2026-03-01T08:00:00Z"])
    open: int = Field(description="All that may still be running.", examples=[2144])
    final_total: int = Field(
        description="Sessions that have become final, since the beginning.", examples=[48210]
    )
    late_total: int = Field(
        description="Events that came too late for any, since the beginning.", examples=[3]
    )
    by: str | None = Field(description="A text whose values the contract lists.", examples=["region"])
    groups: list[SessionGroup]


class AllSessions(Shape):
    items: list[DeclaredSessions]
    next: None = NONE
