"""An alert that fits its metric, with its condition in the words of Postgres."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.alerts import Alert
from headrace.errors import AppError
from headrace.metrics import Metric
from headrace.views.alert_check import check_alert, condition_columns, grouping_of
from headrace.views.formulas import with_texts_in_postgres
from headrace.views.resolve import PG_TYPES, ResolvedMetric

TYPED = ("min", "max", "first", "last")  # measures whose result has the type of their expression


@dataclass(frozen=True)
class AlertRule:
    alert: Alert
    metric: Metric
    condition: str  # SQL of Postgres

    @property
    def dimensions(self) -> tuple[str, ...]:
        return grouping_of(self.alert, self.metric)

    @property
    def grouping(self) -> str:
        return ",".join(self.dimensions) or "all"


def resolve_alerts(
    spark: SparkSession, alerts: Iterable[Alert], metrics: Iterable[ResolvedMetric]
) -> list[AlertRule]:
    """Raises AppError, with the line of the declaration, for the first thing that is wrong."""
    by_name = {resolved.metric.name: resolved for resolved in metrics}
    return [_rule(spark, alert, by_name) for alert in alerts]


def make_rule(alert: Alert, resolved: ResolvedMetric) -> AlertRule:
    """The rule, without asking Spark whether its condition is one."""
    metric = resolved.metric
    types = {name: _type(name, resolved) for name in condition_columns(alert, metric)}
    columns = {
        name: f'CAST("{name}" AS DOUBLE PRECISION)' if type_ == "double" else f'"{name}"'
        for name, type_ in types.items()
    }
    what = f"alert '{alert.name}', when"
    condition = with_texts_in_postgres(alert.when, columns, what=what, where=alert.declared_at)
    return AlertRule(alert, metric, condition)


def _rule(spark: SparkSession, alert: Alert, metrics: dict[str, ResolvedMetric]) -> AlertRule:
    check_alert(alert, {name: resolved.metric for name, resolved in metrics.items()})
    resolved = metrics[alert.metric]
    types = {name: _type(name, resolved) for name in condition_columns(alert, resolved.metric)}
    fields = ", ".join(f"`{name}` {type_}" for name, type_ in types.items())
    what = f"alert '{alert.name}', when"
    try:
        kind = spark.createDataFrame([], fields).selectExpr(alert.when).schema[0].dataType.simpleString()
    except PySparkException as error:
        problem = str(error).split("\n")[0].split("SQLSTATE")[0].strip()
        raise AppError(f"{what}: {problem}", where=alert.declared_at) from None
    if kind != "boolean":
        raise AppError(f"{what}: '{alert.when}' is not a condition", where=alert.declared_at)
    return make_rule(alert, resolved)


def _type(column: str, resolved: ResolvedMetric) -> str:
    """As Spark names it; all numbers are doubles, as in derived columns."""
    metric = resolved.metric
    if column in metric.dimensions:
        return "string"
    measure = metric.measures.get(column)
    type_ = resolved.types.get(column, "double") if measure and measure.kind in TYPED else "double"
    return type_ if type_ in PG_TYPES and type_ not in ("bigint", "int", "double") else "double"
