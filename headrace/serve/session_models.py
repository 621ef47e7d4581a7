"""The shapes of the answers about sessions, for the OpenAPI document."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from headrace.serve.models import Count, Next, Shape, State


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
    watermark: datetime | None
    updated_at: datetime


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


class AllSessions(Shape):
    items: list[DeclaredSessions]
    next: None = None
