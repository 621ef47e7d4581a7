"""What a measure is in Spark SQL: its partial results as aggregates of one input each."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.measures import HLL_LG_K, Measure

# An aggregate over these is a number in a fixed place of a row, which Spark updates where it is.
FIXED = ("int", "bigint", "double", "boolean", "timestamp", "date")
PLACE = "struct(__event_time, __partition, __offset)"
ROUNDED, SQUARED = "decimal(14,4)", "decimal(29,8)"


@dataclass(frozen=True)
class Aggregate:
    """`how` is the text of the aggregate with `{}` for its input; `type` is the input's, if it is fixed."""

    how: str
    input: str
    type: str = ""

    @property
    def text(self) -> str:
        return self.how.format(self.input)


EVENTS = Aggregate("CAST(count({}) AS STRING)", "1", "int")


def aggregates(measure: Measure, type_: str) -> list[Aggregate]:
    """The partial results of a measure, each as a text, in the order of its parts."""
    if measure.kind == "count":
        return [_count("1", measure.where)]
    value = _if(measure, f"({measure.expression})")
    match measure.kind:
        case "sum":
            return [_sum(*_exact(value, type_))]
        case "mean":
            return [_sum(*_exact(value, type_)), _count("1", f"{value} IS NOT NULL")]
        case "variance" | "stddev":
            rounded = f"try_cast({value} AS {ROUNDED})"
            squared = f"{rounded} * {rounded}"
            return [_sum(rounded, ROUNDED), _sum(squared, SQUARED), _count("1", f"{rounded} IS NOT NULL")]
        case "min" | "max":
            fixed = type_ if type_ in FIXED or type_.startswith("decimal") else ""
            return [Aggregate(f"CAST({measure.kind}({{}}) AS STRING)", value, fixed)]
        case "first" | "last":
            return _at_the_end(value, "min" if measure.kind == "first" else "max")
        case "distinct":
            return [Aggregate(f"hex(hll_sketch_agg({{}}, {HLL_LG_K}))", f"CAST({value} AS STRING)")]
        case "quantiles":
            return [Aggregate("hex(kll_sketch_agg_double({}))", f"CAST({value} AS DOUBLE)")]
        case _:
            return []


def _count(value: str, where: str) -> Aggregate:
    return Aggregate(EVENTS.how, f"CASE WHEN ({where}) THEN {value} END" if where else value, "int")


def _sum(value: str, type_: str) -> Aggregate:
    return Aggregate("CAST(sum({}) AS STRING)", value, type_)


def _at_the_end(value: str, end: str) -> list[Aggregate]:
    place = f"CASE WHEN {value} IS NOT NULL THEN {PLACE} END"
    found = f"{end}({place})"
    parts = ", ".join(f"{found}.{name}" for name in ("__event_time", "__partition", "__offset"))
    shown = f"CASE WHEN {found} IS NOT NULL THEN concat('{{', concat_ws(',', {parts}), '}}') END"
    return [
        Aggregate("{}", f"CAST({end}_by({value}, {place}) AS STRING)"),
        Aggregate("{}", shown),
    ]


def _if(measure: Measure, value: str) -> str:
    return f"CASE WHEN ({measure.where}) THEN {value} END" if measure.where else value


def _exact(value: str, type_: str) -> tuple[str, str]:
    if type_ == "double":
        return f"try_cast({value} AS DECIMAL(28,10))", "decimal(28,10)"
    return (
        (value, type_)
        if type_.startswith("decimal")
        else (f"CAST({value} AS DECIMAL(20,0))", "decimal(20,0)")
    )
