"""What a contract says, as plain frozen values: no YAML, no Spark, no Kafka."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Literal

Kind = Literal[
    "string", "integer", "number", "decimal", "boolean", "timestamp", "date", "object", "array", "map"
]
Status = Literal["proposed", "draft", "active", "deprecated", "retired"]
Scalar = str | int | float | Decimal | bool


@dataclass(frozen=True)
class Type:
    """`integer` is 64 bits wide; `number` is a double; `decimal` is exact, with precision and scale."""

    kind: Kind
    precision: int = 0
    scale: int = 0
    fields: tuple[Field, ...] = ()  # of an object
    element: Field | None = None  # of an array, or the value of a map


@dataclass(frozen=True)
class Rules:
    """What a value must satisfy beyond its type. None means: no such rule."""

    enum: tuple[str, ...] | None = None  # strings only
    pattern: str | None = None  # a regular expression that must match somewhere, as in JSON Schema
    minimum: Scalar | None = None
    maximum: Scalar | None = None
    exclusive_minimum: Scalar | None = None
    exclusive_maximum: Scalar | None = None
    min_length: int | None = None  # characters of a string, items of an array, entries of a map
    max_length: int | None = None


@dataclass(frozen=True)
class Mask:
    """How a classified value is hidden in every output but the raw topic."""

    how: Literal["drop", "hash", "truncate"]
    keep: int = 0  # truncate: how many leading characters stay


@dataclass(frozen=True)
class Field:
    name: str
    type: Type
    required: bool = False
    rules: Rules = Rules()
    mask: Mask | None = None
    classification: str = ""
    description: str = ""
    examples: tuple[object, ...] = ()
    line: int = 0  # in the contract's file


@dataclass(frozen=True)
class Role:
    name: str
    access: str = "read"


@dataclass(frozen=True)
class Topics:
    raw: str
    validated: str
    invalid: str
    late: str

    @property
    def outputs(self) -> tuple[str, str, str]:
        return (self.validated, self.invalid, self.late)


@dataclass(frozen=True)
class Contract:
    """One event stream: its shape, its identity, its times, its owner."""

    name: str  # the stream: clickstream
    version: str  # 1.4.0; its major number is in the topic names
    fields: tuple[Field, ...]
    event_id: str  # a required top-level string
    event_time: str  # a required top-level timestamp
    key: str  # the top-level field whose value is the Kafka key
    lateness: timedelta
    max_future_skew: timedelta
    dedupe_horizon: timedelta
    idle_after: timedelta
    partitions: int
    retention: timedelta
    compacted: bool = False
    status: Status = "active"
    description: str = ""
    owner: str = ""
    roles: tuple[Role, ...] = ()
    freshness: timedelta | None = None  # how old a record may be that is not in the tables yet
    latency: timedelta | None = None  # how long 99 of 100 records may take from the log to the tables
    error_rate: float | None = None  # which share of the records may be rejected
    file: Path = field(default=Path(), compare=False)

    @property
    def major(self) -> int:
        return int(self.version.lstrip("v").split(".")[0])

    @property
    def topics(self) -> Topics:
        def topic(kind: str) -> str:
            return f"{self.name}.{kind}.v{self.major}"

        return Topics(topic("raw"), topic("validated"), topic("invalid"), topic("late"))

    def field(self, name: str) -> Field:
        return next(f for f in self.fields if f.name == name)
