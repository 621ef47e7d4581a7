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
    time: Literal["event", "ingestion"]
    groupings: list[list[str]] = Field(examples=[[[], ["region"]]])
    dimensions: list[str] = Field(examples=[["region"]])
    measures: dict[str, Measure]
    derived: list[str] = Field(examples=[["basket"]])
    preliminary_after: str = Field(examples=["0 seconds"])
    final_after: str = Field(examples=["5 minutes"])
    retain: str = Field(examples=["7 days"])
    watermark: datetime | None
    updated_at: datetime | None
    slo_seconds: float | None = Field(description="How fresh it should be.", examples=[30])
    rows: Count = Field(description="An estimate above 10,000.")
    late_events: Count = Field(description="Of the last 24 hours, counted up to 10,000.")


class Metrics(Shape):
    items: list[Metric]
    next: None = None


class LateEvent(Shape):
    source: str
    metric: str
    event_id: str = Field(examples=["01J8ZQ6T5N8Q6R3W2K7F4M1XAB"])
    partition: Count
    offset: Count
    event_time: datetime
    window_start: datetime
    window_end: datetime
    clock: datetime = Field(description="Of its partition, just before it.")
    late_by_seconds: float = Field(examples=[12.5])
    reason: Literal["late", "idle_wake"]
    seen_at: datetime


class LateEvents(Shape):
    items: list[LateEvent]
    next: Next


class Delay(Shape):
    from_seconds: float | None
    to_seconds: float | None
    count: Count


class Delays(Shape):
    items: list[Delay]


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
    flows: list[AuditedFlow] = []
    outboxes: list[AuditedOutbox] = []


class Audit(Shape):
    clean: bool
    sources: list[SourceAudit]
    at: datetime


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


class Alert(Shape):
    id: str
    alert: str
    metric: str
    severity: str
    state: Literal["open", "resolved"]
    opened_at: datetime
    updated_at: datetime
    resolved_at: datetime | None


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
