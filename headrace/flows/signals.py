"""Declared signals against their contract: every name, type and expression checked; what they take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

from headrace.contracts.model import Contract
from headrace.contracts.spark_schema import spark_type
from headrace.dimensions import Dimension
from headrace.errors import AppError, known_names
from headrace.flows.features import NUMERIC, FeaturePlan, remembered
from headrace.flows.models import load_model
from headrace.flows.taken import Want
from headrace.gate.mask import plain_fields
from headrace.signals import Feature, Rule, Scorer, Signals
from headrace.views.expressions import fields_used, rendered
from headrace.views.resolve import NUMBERS, PG_TYPES

_TYPES = {
    "count": "bigint",
    "sum": "numeric",
    "mean": "double precision",
    "distinct": "bigint",
    "times_last": "double precision",
    "seconds_since_last": "double precision",
}
_DIMENSION_TYPES = {
    "string": "text",
    "integer": "bigint",
    "number": "numeric",
    "boolean": "boolean",
}
TEXTS = ("text", "boolean", "timestamptz", "date")


@dataclass(frozen=True)
class ResolvedSignals:
    signals: Signals
    types: dict[str, str]  # of the features, as Postgres names them
    fields: tuple[str, ...]  # of the contract, that they use
    doubles: frozenset[str]  # features over doubles, which are added up with ten decimals
    lateness_us: int

    @property
    def fold(self) -> str:
        return f"signals.{self.signals.name}"

    @property
    def plan(self) -> FeaturePlan:
        return FeaturePlan(remembered(self.signals.features.values()), self.signals.memory_us)

    @property
    def want(self) -> Want:
        signals = self.signals
        columns = {f"label {name}": f"`{name}`" for name in signals.labels}
        columns |= {f"table {table.name}": f"`{table.on}`" for table in signals.tables}
        for name, feature in signals.features.items():
            if feature.kind == "own":
                columns[f"own {name}"] = feature.expression
            elif feature.kind != "dimension" and (feature.expression or feature.where):
                columns[f"value {name}"] = _value(feature, name in self.doubles)
        has_key = f"`{signals.key}` IS NOT NULL"
        where = f"({signals.where}) AND {has_key}" if signals.where else has_key
        return Want(self.fold, where, columns, self.fields)

    def score_sql(self, rule: Rule) -> str:
        """The rule in the words of Postgres, in doubles; a division by zero is null."""
        columns = {
            name: f'"{name}"' if type_ in TEXTS else f'("{name}"::double precision)'
            for name, type_ in self.types.items()
        }
        what = f"signals '{self.signals.name}', score"
        return rendered(rule.expression, columns, what=what, where=self.signals.declared_at)


def resolve_signals(
    spark: SparkSession, declared: Iterable[Signals], contract: Contract
) -> list[ResolvedSignals]:
    """Raises AppError, with the line of the declaration, for the first thing that is wrong."""
    visible = plain_fields(contract)
    schema = spark_types.StructType(
        [
            spark_types.StructField(f.name, spark_types.StringType() if f.mask else spark_type(f.type))
            for f in visible
        ]
    )
    frame = spark.createDataFrame([], schema)
    return [_resolve(frame, signals, contract) for signals in declared]


def _resolve(frame: DataFrame, signals: Signals, contract: Contract) -> ResolvedSignals:
    known, where = frame.columns, signals.declared_at
    used: set[str] = set()
    for name in signals.labels:
        if name not in known:
            raise AppError(
                f"signals '{signals.name}': no field '{name}'", where=where, hint=known_names(name, known)
            )
        used.add(name)
    for table in signals.tables:
        check_table(table, contract, f"signals '{signals.name}'", where)
        used.add(table.on)
    used |= _condition(frame, signals.where, f"signals '{signals.name}', where", where)
    types: dict[str, str] = {}
    doubles = set()
    for name, feature in signals.features.items():
        what = f"signals '{signals.name}', {name}"
        used |= _condition(frame, feature.where, what, where)
        types[name] = _TYPES.get(feature.kind, "")
        if feature.kind == "dimension":
            types[name] = _DIMENSION_TYPES[_column_type(signals, feature)]
            continue
        if not feature.expression:
            continue
        used |= fields_used(feature.expression, known, what=what, where=where)
        type_ = _spark_type(frame, feature.expression, what, where)
        is_number = type_ in NUMBERS or type_.startswith("decimal")
        if feature.kind in NUMERIC and not is_number:
            raise AppError(
                f"{what}: {feature.kind} needs numbers, and '{feature.expression}' is {type_}", where=where
            )
        if type_ not in PG_TYPES and not is_number:
            raise AppError(f"{what}: a feature of {type_} is not possible", where=where)
        if type_ == "double" and feature.kind in NUMERIC:
            doubles.add(name)
        types[name] = types[name] or PG_TYPES.get(type_, "numeric")
    resolved = ResolvedSignals(
        signals,
        types,
        tuple(n for n in known if n in used),
        frozenset(doubles),
        int(contract.lateness.total_seconds() * 1_000_000),
    )
    for scorer in (signals.scorer, signals.shadow):
        _check_scorer(resolved, scorer)
    return resolved


def check_table(table: Dimension, contract: Contract, what: str, where: str) -> None:
    """Raises AppError where events cannot be looked up in a table."""
    fields = {field.name: field for field in plain_fields(contract)}
    if table.on not in fields:
        hint = known_names(table.on, fields)
        raise AppError(f"{what}: no field '{table.on}' for table '{table.name}'", where=where, hint=hint)
    if fields[table.on].mask is not None:
        raise AppError(
            f"{what}: '{table.on}' is masked, so that table '{table.name}' cannot know it",
            where=where,
            hint="look up by a field that is not masked",
        )
    if table.as_of != contract.event_time:
        raise AppError(
            f"{what}: table '{table.name}' is as of '{table.as_of}', and the events' time is"
            f" '{contract.event_time}'",
            where=where,
        )


def check_table_columns(signals: Signals, columns: Mapping[str, Sequence[str]]) -> None:
    """`columns` are those that each table has; raises AppError for a feature that is none of them."""
    for name, feature in signals.features.items():
        table, _, column = feature.expression.partition(".")
        if feature.kind == "dimension" and column not in columns[table]:
            raise AppError(
                f"signals '{signals.name}', {name}: table '{table}' has no column '{column}'",
                where=signals.declared_at,
                hint=known_names(column, columns[table]),
            )


def _column_type(signals: Signals, feature: Feature) -> str:
    name, _, column = feature.expression.partition(".")
    return next(table for table in signals.tables if table.name == name).type_of(column)


def _check_scorer(resolved: ResolvedSignals, scorer: Scorer | None) -> None:
    if isinstance(scorer, Rule):
        resolved.score_sql(scorer)
    elif scorer is not None:
        for name in load_model(scorer).features:
            what = f"signals '{resolved.signals.name}', model {scorer.file.name}"
            where = resolved.signals.declared_at
            if name not in resolved.types:
                hint = known_names(name, resolved.types)
                raise AppError(f"{what}: there is no feature '{name}'", where=where, hint=hint)
            if resolved.types[name] in TEXTS and resolved.types[name] != "boolean":
                raise AppError(f"{what}: the feature '{name}' is no number", where=where)


def _value(feature: Feature, is_double: bool) -> str:
    text = feature.expression or "1"
    if is_double:
        text = f"try_cast(({text}) AS decimal(38, 10))"
    return f"CASE WHEN ({feature.where}) THEN ({text}) END" if feature.where else text


def _condition(frame: DataFrame, text: str, what: str, where: str) -> set[str]:
    if not text:
        return set()
    used = fields_used(text, frame.columns, what=what, where=where)
    if _spark_type(frame, text, what, where) != "boolean":
        raise AppError(f"{what}: '{text}' is not a condition", where=where)
    return used


def _spark_type(frame: DataFrame, text: str, what: str, where: str) -> str:
    try:
        return frame.selectExpr(text).schema[0].dataType.simpleString()
    except PySparkException as error:
        problem = str(error).split("\n")[0].split("SQLSTATE")[0].strip()
        raise AppError(f"{what}: {problem}", where=where) from None
