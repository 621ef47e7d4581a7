"""The partial results of a measure: aggregates of one input each, that Spark or Arrow can compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.measures import Measure

How = Literal["count", "sum", "min", "max", "first", "first_at", "last", "last_at", "distinct", "quantiles"]
PLACE = "struct(__event_time, __partition, __offset)"
ROUNDED, SQUARED = "decimal(14,4)", "decimal(29,8)"


@dataclass(frozen=True)
class Aggregate:
    """`input` is an expression of Spark SQL over an event. `first_at` is where the first was found."""

    how: How
    input: str

    @property
    def text(self) -> str:
        """The result as a text, in Spark SQL; what only Arrow computes has none."""
        match self.how:
            case "count" | "sum" | "min" | "max":
                return f"CAST({self.how}({self.input}) AS STRING)"
            case "first" | "last":
                end = "min" if self.how == "first" else "max"
                return f"CAST({end}_by({self.input}, {self._place}) AS STRING)"
            case "first_at" | "last_at":
                found = f"{'min' if self.how == 'first_at' else 'max'}({self._place})"
                parts = ", ".join(f"{found}.{name}" for name in ("__event_time", "__partition", "__offset"))
                return f"CASE WHEN {found} IS NOT NULL THEN concat('{{', concat_ws(',', {parts}), '}}') END"
        raise ValueError(self.how)

    @property
    def _place(self) -> str:
        return f"CASE WHEN {self.input} IS NOT NULL THEN {PLACE} END"


EVENTS = Aggregate("count", "1")


def aggregates(measure: Measure, type_: str) -> list[Aggregate]:
    """The partial results of a measure, in the order of its parts."""
    if measure.kind == "count":
        return [_count(measure.where)]
    value = f"({measure.expression})"
    if measure.where:
        value = f"CASE WHEN ({measure.where}) THEN {value} END"
    match measure.kind:
        case "sum":
            return [Aggregate("sum", _exact(value, type_))]
        case "mean":
            return [Aggregate("sum", _exact(value, type_)), _count(f"{value} IS NOT NULL")]
        case "variance" | "stddev":
            rounded = f"try_cast({value} AS {ROUNDED})"
            squared = f"CAST({rounded} * {rounded} AS {SQUARED})"
            return [Aggregate("sum", rounded), Aggregate("sum", squared), _count(f"{rounded} IS NOT NULL")]
        case "min" | "max":
            return [Aggregate(measure.kind, f"nanvl({value}, NULL)" if type_ == "double" else value)]
        case "first":
            return [Aggregate("first", value), Aggregate("first_at", value)]
        case "last":
            return [Aggregate("last", value), Aggregate("last_at", value)]
        case "distinct":
            return [Aggregate("distinct", f"CAST({value} AS STRING)")]
        case "quantiles":
            return [Aggregate("quantiles", f"CAST({value} AS DOUBLE)")]
        case _:
            return []


def _count(where: str) -> Aggregate:
    return Aggregate("count", f"CASE WHEN ({where}) THEN 1 END") if where else EVENTS


def _exact(value: str, type_: str) -> str:
    if type_ == "double":
        return f"try_cast({value} AS DECIMAL(28,10))"
    return value if type_.startswith("decimal") else f"CAST({value} AS DECIMAL(20,0))"
