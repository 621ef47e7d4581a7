"""The shapes of the answers, for the OpenAPI document. Nothing is converted with them at run time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from headrace.serve.problems import MEDIA_TYPE

State = Literal["open", "preliminary", "corrected", "final"]
Next = Annotated[
    str | None, Field(description="The cursor of the next page; null at the end.", examples=[None])
]
Count = Annotated[int, Field(ge=0, examples=[12])]
Time = Annotated[datetime, Field(examples=["2026-03-01T09:00:00Z"])]
Seconds = Annotated[float, Field(examples=[12.5])]
SourceName = Annotated[str, Field(examples=["clickstream"])]
NONE = Field(None, examples=[None])  # the `next` of lists that have one page


class Shape(BaseModel):
    model_config = ConfigDict(extra="allow")


class Problem(Shape):
    """RFC 9457. `parameter` names the wrong one, `hint` says what to do."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=["A parameter is wrong"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["no parameter 'regoin' here"])
    parameter: str = Field("", examples=["regoin"])
    hint: str = Field("", examples=["did you mean 'region'?"])


class Row(Shape):
    """One number, or several, of one window and group."""

    window_start: datetime = Field(examples=["2026-03-01T09:00:00Z"])
    window_end: datetime = Field(examples=["2026-03-01T09:01:00Z"])
    grouping: str = Field(description="`all`, or names of dimensions.", examples=["region"])
    dimensions: dict[str, str] = Field(examples=[{"region": "almaty"}])
    state: State = Field(description="`final` never changes again.", examples=["final"])
    revision: int = Field(description="Rises with each change of a published row.", examples=[2])
    events: Count
    late_events: Count
    values: dict[str, Any] = Field(
        description="Measures and derived columns; decimals are text.",
        examples=[{"revenue": "435773.43", "purchases": 27, "basket": 16139.756}],
    )
    watermark: datetime | None = Field(examples=["2026-03-01T09:03:01Z"])


class CurrentRow(Row):
    updated_at: datetime = Field(examples=["2026-03-01T09:03:02.120Z"])


class Revision(Row):
    at: datetime = Field(description="When it was published.", examples=["2026-03-01T09:01:22Z"])


class Rows(Shape):
    items: list[CurrentRow]
    next: Next


class Latest(Rows):
    window_start: datetime | None = Field(examples=["2026-03-01T09:00:00Z"])
    window_end: datetime | None = Field(examples=["2026-03-01T09:01:00Z"])


class Revisions(Shape):
    items: list[Revision]
    next: Next


class Measure(Shape):
    kind: str = Field(examples=["sum"])
    type: str | None = Field(description="null until the engine has made the table.", examples=["decimal"])


class Metric(Shape):
    name: str = Field(examples=["revenue_10m"])
    source: str = Field(examples=["clickstream"])
    window: str = Field(examples=["tumbling 10 minutes"])
    trigger: str | None = Field(
        description="How often a running window shows a change; null: with every batch.",
        examples=["10 seconds"],
    )
    time: Literal["event", "ingestion"] = Field(examples=["event"])
    groupings: list[list[str]] = Field(examples=[[[], ["region"]]])
    dimensions: list[str] = Field(examples=[["region"]])
    measures: dict[str, Measure]
    derived: list[str] = Field(examples=[["basket"]])
    preliminary_after: str = Field(examples=["0 seconds"])
    final_after: str = Field(examples=["5 minutes"])
    retain: str = Field(examples=["7 days"])
    watermark: Time | None
    updated_at: Time | None
    slo_seconds: float | None = Field(description="How fresh it should be.", examples=[30])
    rows: Count = Field(description="An estimate above 10,000.")
    late_events: Count = Field(description="Of the last 24 hours, counted up to 10,000.")


class Metrics(Shape):
    items: list[Metric]
    next: None = NONE


class LateEvent(Shape):
    source: SourceName
    metric: str = Field(examples=["conversion_1m"])
    event_id: str | None = Field(
        description="null if it is classified and the caller has no role for it.",
        examples=["01J8ZQ6T5N8Q6R3W2K7F4M1XAB"],
    )
    partition: Count
    offset: Count
    event_time: datetime = Field(examples=["2026-03-01T09:00:41.250Z"])
    window_start: Time
    window_end: datetime = Field(examples=["2026-03-01T09:01:00Z"])
    clock: datetime = Field(
        description="Of its partition, just before it.", examples=["2026-03-01T09:03:12.500Z"]
    )
    late_by_seconds: Seconds
    reason: Literal["late", "idle_wake"] = Field(examples=["late"])
    seen_at: datetime = Field(examples=["2026-03-01T09:03:13.020Z"])


class LateEvents(Shape):
    items: list[LateEvent]
    next: Next


class Delay(Shape):
    from_seconds: float | None = Field(examples=[5])
    to_seconds: float | None = Field(examples=[15])
    count: Count


class Span(Shape):
    """The time that was looked at; what is left out of the question is chosen."""

    begin: Time = Field(alias="from")
    end: datetime = Field(alias="to", examples=["2026-03-02T09:00:00Z"])


class Delays(Span):
    items: list[Delay]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Which problems a route may answer with; every one may be asked wrongly or find the store away."""
    known = {
        304: "The client has this answer already.",
        401: "A token is needed, or it is not known.",
        403: "The token's roles may not see this stream.",
        404: "There is no such thing.",
        422: "A parameter is wrong; nothing is guessed.",
        503: "The store or the broker does not answer; try again.",
    }
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {"description": known[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        if status != 304
        else {"description": known[304]}
        for status in (304, *statuses, 401, 422, 503)
    }
