"""A declared metric against its contract: every name, type and formula checked, before anything starts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

from headrace.contracts.model import Contract
from headrace.contracts.spark_schema import spark_type
from headrace.errors import AppError, known_names
from headrace.gate.mask import plain_fields
from headrace.measures import Measure, quantile_name
from headrace.metrics import Metric
from headrace.views.expressions import fields_used
from headrace.views.formulas import in_postgres

How = Literal["add", "least", "greatest", "first", "last"]
PG_TYPES = {
    "string": "text",
    "bigint": "bigint",
    "int": "bigint",
    "double": "double precision",
    "boolean": "boolean",
    "timestamp": "timestamptz",
    "date": "date",
}
NUMBERS = ("bigint", "int", "double")
PACKED = ("distinct", "quantiles", "top")


@dataclass(frozen=True)
class Part:
    """A column of the table that holds a partial result, and how two of them become one."""

    column: str
    type: str
    how: How
    measure: str


@dataclass(frozen=True)
class ResolvedMetric:
    metric: Metric
    types: dict[str, str]  # of the measures' expressions, as Spark names them
    fields: tuple[str, ...]  # of the contract, that it uses

    @property
    def parts(self) -> list[Part]:
        return [
            part
            for name, measure in self.metric.measures.items()
            if measure.kind not in PACKED
            for part in _parts(name, measure, self.types.get(name, ""))
        ]

    @property
    def packed(self) -> dict[str, Measure]:
        """Measures that only Python can merge: sketches and counts by item."""
        return {name: m for name, m in self.metric.measures.items() if m.kind in PACKED}

    @property
    def computed(self) -> dict[str, str]:
        """Measures that Postgres computes from their parts, by name."""
        found = {name: _computed(name, m) for name, m in self.metric.measures.items()}
        return {name: text for name, text in found.items() if text}

    @property
    def formulas(self) -> dict[str, str]:
        """Columns that Postgres computes from others, by name."""
        known = {name: name for name in self.metric.visible if self._is_number(name)} | self.computed
        others = set(self.metric.visible) - set(known) - set(self.metric.derived)
        where = self.metric.declared_at
        derived = {
            name: in_postgres(text, known, no_numbers=others, what=_what(self.metric, name), where=where)
            for name, text in self.metric.derived.items()
        }
        return self.computed | derived

    def _is_number(self, column: str) -> bool:
        """Whether a formula can be made of it: quantiles have columns that are no measures' names."""
        measure = self.metric.measures.get(column)
        if measure is None:
            return column not in self.metric.derived
        type_ = self.types.get(column, "bigint")
        shows_value = measure.kind in ("min", "max", "first", "last")
        return measure.kind != "top" and (not shows_value or _is_numeric(type_))


def resolve(spark: SparkSession, metrics: Iterable[Metric], contract: Contract) -> list[ResolvedMetric]:
    """Raises AppError, with the line of the declaration, for the first thing that is wrong."""
    visible = plain_fields(contract)
    schema = spark_types.StructType(
        [
            spark_types.StructField(f.name, spark_types.StringType() if f.mask else spark_type(f.type))
            for f in visible
        ]
    )
    frame = spark.createDataFrame([], schema)
    return [_resolve(frame, metric, [f.name for f in visible]) for metric in metrics]


def _resolve(frame: DataFrame, metric: Metric, known: list[str]) -> ResolvedMetric:
    where = metric.declared_at
    used: set[str] = set()
    for name in metric.dimensions:
        if name not in known:
            raise AppError(
                f"{_what(metric, 'by')}: no field '{name}'", where=where, hint=known_names(name, known)
            )
        used.add(name)
    used |= _condition(frame, metric.where, known, _what(metric, "where"), where)
    types = {}
    for name, measure in metric.measures.items():
        what = _what(metric, name)
        used |= _condition(frame, measure.where, known, what, where)
        if measure.kind != "count":
            used |= fields_used(measure.expression, known, what=what, where=where)
            types[name] = _type(frame, measure, what, where)
    resolved = ResolvedMetric(metric, types, tuple(n for n in known if n in used))
    if metric.noun == "metric":  # sessions may derive more than numbers
        _ = resolved.formulas
    return resolved


def _condition(frame: DataFrame, text: str, known: list[str], what: str, where: str) -> set[str]:
    if not text:
        return set()
    used = fields_used(text, known, what=what, where=where)
    if _spark_type(frame, text, what, where) != "boolean":
        raise AppError(f"{what}: '{text}' is not a condition", where=where)
    return used


def _type(frame: DataFrame, measure: Measure, what: str, where: str) -> str:
    type_ = _spark_type(frame, measure.expression, what, where)
    is_number = _is_numeric(type_)
    if measure.kind in ("sum", "mean", "variance", "stddev", "quantiles") and not is_number:
        raise AppError(
            f"{what}: {measure.kind} needs numbers, and '{measure.expression}' is {type_}", where=where
        )
    if type_ not in PG_TYPES and not is_number:
        raise AppError(f"{what}: a measure of {type_} is not possible", where=where)
    return type_


def _is_numeric(type_: str) -> bool:
    return type_ in NUMBERS or type_.startswith("decimal")


def _spark_type(frame: DataFrame, text: str, what: str, where: str) -> str:
    try:
        made = frame.selectExpr(
            f"({text})"
        )  # as it will stand in the query: alone it could be a list, or named
        type_ = made.schema[0].dataType.simpleString()
    except PySparkException as error:
        problem = str(error).strip().split("\n")[0].split("SQLSTATE")[0].strip()
        raise AppError(f"{what}: {problem}", where=where) from None
    if not _is_of_one_event(made):
        raise AppError(f"{what}: '{text}' is not one value for each event", where=where)
    return type_


def _is_of_one_event(frame: DataFrame) -> bool:
    """Whether Spark computes it from a row alone: no aggregate, generator or window, and always the same."""
    plan = frame._jdf.queryExecution().analyzed()
    return bool(
        plan.nodeName() == "Project" and plan.children().head().children().isEmpty() and plan.deterministic()
    )


def _parts(name: str, measure: Measure, type_: str) -> list[Part]:
    value = PG_TYPES.get(type_, "numeric")
    match measure.kind:
        case "count":
            return [Part(name, "bigint", "add", name)]
        case "sum":
            return [Part(name, "numeric", "add", name)]
        case "mean":
            return [Part(f"{name}__sum", "numeric", "add", name), Part(f"{name}__n", "bigint", "add", name)]
        case "variance" | "stddev":
            sums = [Part(f"{name}__{what}", "numeric", "add", name) for what in ("sum", "squares")]
            return [*sums, Part(f"{name}__n", "bigint", "add", name)]
        case "min":
            return [Part(name, value, "least", name)]
        case "max":
            return [Part(name, value, "greatest", name)]
        case "first" | "last":
            return [
                Part(name, value, measure.kind, name),
                Part(f"{name}__at", "bigint[]", "least" if measure.kind == "first" else "greatest", name),
            ]
        case _:
            return []


def _computed(name: str, measure: Measure) -> str:
    total, squares, n = f"{name}__sum", f"{name}__squares", f"nullif({name}__n, 0)"
    # The difference of exact numbers: never below zero, whatever the division rounds.
    variance = f"({n} * {squares} - {total} * {total}) / ({n} * {n})"
    match measure.kind:
        case "mean":
            return f"{total} / {n}"
        case "variance":
            return variance
        case "stddev":
            return f"sqrt({variance})"
        case _:
            return ""


def packed_columns(name: str, measure: Measure) -> dict[str, str]:
    """The columns of a packed measure: what is merged, and what is shown."""
    match measure.kind:
        case "distinct":
            return {f"{name}__sketch": "bytea", name: "bigint"}
        case "quantiles":
            shown = {quantile_name(name, rank): "double precision" for rank in measure.ranks}
            return {f"{name}__sketch": "bytea", **shown}
        case _:
            return {f"{name}__counts": "jsonb", name: "jsonb"}


def _what(metric: Metric, part: str) -> str:
    return f"{metric.noun} '{metric.name}', {part}"
