"""Answers about sources, health and the pipeline as it is now."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, RootModel

from headrace.serve.models import NONE, Count, Shape, SourceName, Time

Ratio = Annotated[float | None, Field(examples=[0.018])]
Status = Literal["running", "restarting", "stopped", "unknown"]


class Objectives(Shape):
    """What the contract promises; null where it promises nothing."""

    freshness_seconds: float | None = Field(examples=[30])
    latency_seconds: float | None = Field(examples=[10])
    error_rate: float | None = Field(examples=[0.05])


class Source(Shape):
    name: str = Field(examples=["payments"])
    description: str = Field(examples=["Attempts to pay, and what became of them."])
    owner: str = Field(examples=["payments"])
    version: str = Field(examples=["1.0.0"])
    status: str = Field(examples=["active"])
    classification: str = Field(examples=["restricted"])
    classified: bool = Field(examples=[True])
    roles: list[str] = Field(
        description="Who may read it, if it is classified.", examples=[["finance-analyst"]]
    )
    topics: dict[str, str] = Field(examples=[{"raw": "payments.raw.v1", "validated": "payments.v1"}])
    partitions: int = Field(examples=[4])
    publishes: bool = Field(description="Whether there is a validated topic.", examples=[True])
    event_id: str = Field(description="The field.", examples=["event_id"])
    event_time: str = Field(description="The field.", examples=["event_time"])
    key: str = Field(description="The field.", examples=["customer_id"])
    lateness: str = Field(examples=["30 minutes"])
    idle_after: str = Field(examples=["1 minute"])
    retention: str = Field(examples=["7 days"])
    slo: Objectives
    metrics: list[str] = Field(examples=[["payment_errors_15m"]])


class Sources(Shape):
    items: list[Source]
    next: None = NONE


class ContractDocument(RootModel[dict[str, Any]]):
    """The contract as the Open Data Contract Standard has it."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "kind": "DataContract",
                "apiVersion": "v3.2.0",
                "id": "payments",
                "version": "1.0.0",
                "schema": [{"name": "payments", "properties": [{"name": "amount", "logicalType": "number"}]}],
            }
        }
    )


class EventSchema(RootModel[dict[str, Any]]):
    """A JSON Schema, draft 2020-12."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "object",
                "required": ["event_id", "event_time"],
                "properties": {"amount": {"type": "number"}},
            }
        }
    )


class Check(Shape):
    name: str = Field(examples=["store"])
    status: Literal["ok", "degraded", "down"] = Field(examples=["degraded"])
    detail: str | None = Field(examples=["payments: 41 s behind, promised 30 s"])
    runbook: str | None = Field(examples=["growing-lag"])


class Health(Shape):
    status: Literal["ok", "degraded", "down"] = Field(examples=["degraded"])
    checks: list[Check]
    at: Time


class Lag(Shape):
    """Null where the broker does not answer."""

    records: int | None = Field(examples=[120])
    seconds: float | None = Field(description="Age of the next unread record.", examples=[1.25])


class LastBatch(Shape):
    batch_id: Count
    seconds: float = Field(examples=[0.84])
    at: Time


class StateSize(Shape):
    rows: Count
    bytes: Count
    rows_a_day_ago: int | None = Field(description="null: not known yet.", examples=[480_000])


class PartitionNow(Shape):
    partition: Count
    lag_records: int | None = Field(examples=[30])
    lag_seconds: float | None = Field(examples=[1.25])
    clock: Time | None
    watermark: Time | None
    next_offset: int | None = Field(examples=[48211])
    end_offset: int | None = Field(examples=[48241])
    idle: bool = Field(examples=[False])
    hot: bool = Field(examples=[False])
    share: float | None = Field(description="Of the records of the last minute.", examples=[0.26])


class LastMinute(Shape):
    received: Count
    rejected: Count
    late: Count
    duplicate: Count
    late_for: dict[str, int] = Field(
        description="Events that missed a window, by metric.", examples=[{"revenue_10m": 2}]
    )


class SourceNow(Shape):
    source: SourceName
    query: str = Field(examples=["turanmart.clickstream"])
    received: Count
    accepted: Count
    rejected: Count
    late: Count
    duplicate: Count
    unaccounted: int = Field(examples=[0])
    rate_per_second: float = Field(examples=[1994.3])
    latency_seconds: dict[str, float] | None = Field(
        description="From the log to the commit.", examples=[{"p50": 1.1, "p99": 2.4}]
    )
    batch: LastBatch | None
    lag: Lag
    freshness_seconds: float | None = Field(
        description="Age of the oldest record that the tables do not show yet.", examples=[1.25]
    )
    partitions: list[PartitionNow]
    watermark: Time | None
    state: StateSize | None
    durations_ms: dict[str, float] | None = Field(
        description="Of the last batch, by step.", examples=[{"judge": 310, "publish": 120}]
    )
    backpressure: float | None = Field(description="Above 1 it falls behind.", examples=[0.7])
    hot_ratio: float | None = Field(
        description="The fullest partition against its fair share.", examples=[1.1]
    )
    duplicate_ratio: Ratio
    rejected_ratio: Ratio
    last_minute: LastMinute
    restarts: Count
    failures: Count
    last_failure: str | None = Field(examples=["SparkException: Python worker exited"])
    last_failure_at: Time | None
    status: Status = Field(examples=["running"])
    reported_at: Time | None
    slo: Objectives
    limits: dict[str, float] = Field(
        description="Beyond these something is wrong: those of the alert rules.",
        examples=[{"freshness_seconds": 120, "late_ratio": 0.05, "state_growth": 1.5}],
    )


class FlowNow(Shape):
    """A flow, or a side of a join: accepted = filtered + the outcomes of what was taken."""

    flow: str = Field(examples=["order_paid"])
    kind: Literal["join", "sessions", "pattern", "signals", "enrichment"] = Field(examples=["join"])
    side: str = Field(examples=["left"], description="Empty where a flow has one side only.")
    source: str = Field(examples=["orders"])
    accepted: int | None = Field(
        description="Null where it was not counted from the beginning.", examples=[1234]
    )
    filtered: int | None = Field(examples=[0])
    taken: Count
    outcomes: dict[str, int] = Field(examples=[{"matched": 1200, "unmatched": 20, "pending": 10, "late": 4}])
    late: Count
    waiting: Count = Field(description="What is kept for later events.")
    bytes: int | None = Field(description="Size of the table that keeps it.", examples=[65536])
    alerts: int | None = Field(description="Of a pattern: how many it has raised.", examples=[None])


class LaneNow(Shape):
    """The real-time lane of a source; it tells of a batch when the batch has ended."""

    source: str = Field(examples=["payments"])
    query: str = Field(examples=["turanmart.payments.realtime"])
    status: Status = Field(examples=["running"])
    received: Count
    signals: Count = Field(description="Sent to topics, repetitions after a crash included.")
    latency_ms: dict[str, int] | None = Field(
        examples=[{"p50": 9, "p99": 60}], description="From the log to the sending, last batch."
    )
    at: Time | None = Field(description="When the last batch that has ended began.")
    restarts: Count
    last_failure: str | None = Field(examples=[None])


class EngineNow(Shape):
    reported_at: datetime = Field(examples=["2026-03-01T09:00:04.100Z"])
    started_at: Time


class Pipeline(Shape):
    at: Time
    app: str = Field(examples=["turanmart"])
    sources: list[SourceNow]
    flows: list[FlowNow]
    lanes: list[LaneNow]
    signals: dict[str, dict[str, int]] = Field(examples=[{"fraud": {"allow": 812, "block": 3}}])
    engine: EngineNow | None = Field(description="null: none has ever run.")
    problems: list[str] = Field(
        description="What could not be asked.", examples=[["the broker does not answer"]]
    )


class PanelWindow(Shape):
    kind: str = Field(examples=["tumbling"])
    size_seconds: float = Field(examples=[60])
    hop_seconds: float = Field(examples=[60])
    trigger_seconds: float | None = Field(
        description="How often a running window shows a change; null: with every batch.", examples=[10]
    )


class Panel(Shape):
    title: str = Field(examples=["Conversion"])
    metric: str = Field(examples=["conversion_1m"])
    source: SourceName
    shape: Literal["number", "groups", "values", "top", "ranking"] = Field(examples=["groups"])
    values: list[str] = Field(examples=[["conversion_rate"]])
    grouping: list[str] = Field(examples=[["region"]])
    groups: list[str] | None = Field(
        description="All that the contract allows, if these are few.", examples=[["almaty", "tashkent"]]
    )
    unit: str = Field(examples=["%"])
    note: str = Field(examples=["purchases / impressions"])
    shared_scale: bool = Field(examples=[True])
    window: PanelWindow
    preliminary_after_seconds: float = Field(examples=[20])
    final_after_seconds: float = Field(examples=[120])


class Panels(Shape):
    app: str = Field(examples=["turanmart"])
    items: list[Panel]
