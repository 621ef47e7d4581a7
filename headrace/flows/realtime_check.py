"""What Spark's real-time mode would refuse, found and named before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.contracts.model import Contract, Field
from headrace.contracts.spark_schema import spark_type
from headrace.dimensions import Versions
from headrace.errors import AppError
from headrace.flows.realtime import signal_records, with_tables
from headrace.flows.signals import ResolvedSignals
from headrace.gate.mask import plain_fields
from headrace.signals import rule

ALLOWLIST = "org.apache.spark.sql.execution.streaming.runtime.RealTimeModeAllowlist"
SOURCE = "org.apache.spark.sql.execution.RangeExec"  # stands for the topic
_OWN = ("CAST(id AS INT) AS __partition", "id AS __offset", "id AS __log_time", "id AS __event_time")


def check_lane_plan(spark: SparkSession, contract: Contract, lane: Sequence[ResolvedSignals]) -> None:
    """Raises AppError with the first part that the mode refuses, or that Spark does not understand."""
    for resolved in lane:
        what, where = f"signals '{resolved.signals.name}'", resolved.signals.declared_at
        try:
            events = _events(spark, contract, resolved)
            refused = _refused(signal_records(events, [resolved]))
            part = _part(events, resolved) if refused else ""
        except PySparkException as error:
            problem = str(error).split("\n")[0].split("SQLSTATE")[0].strip()
            raise AppError(f"{what}: {problem}", where=where) from None
        if refused:
            raise AppError(
                f"{what}{part}: Spark's real-time mode refuses {', '.join(refused)}",
                where=where,
                hint="it runs native SQL over the event and tables of with_=: take the part out,"
                ' or leave lane="realtime" out',
            )


def _part(events: DataFrame, resolved: ResolvedSignals) -> str:
    """The first feature that is refused by itself; nothing, if it is none of them."""
    signals = replace(resolved.signals, scorer=rule("0"), shadow=None, publish="all")
    for name, feature in signals.features.items():
        alone = replace(signals, features={name: feature})
        if _refused(signal_records(events, [replace(resolved, signals=alone)])):
            return f", {name}"
    return ""


def _events(spark: SparkSession, contract: Contract, resolved: ResolvedSignals) -> DataFrame:
    """Events of the contract's types that Spark cannot compute beforehand, as from a topic."""
    fields = {field.name: field for field in plain_fields(contract)}
    typed = [f"try_cast(CAST(id AS STRING) AS {_type(fields[name])}) AS `{name}`" for name in resolved.fields]
    events = spark.range(1).selectExpr(*_OWN, "CAST(id AS STRING) AS __event_id", *typed)
    tables = {table: Versions(_columns(resolved, table.name), {}, {}, 0) for table in resolved.signals.tables}
    return with_tables(events, tables)


def _type(field: Field) -> str:
    return "string" if field.mask is not None else spark_type(field.type).simpleString()


def _columns(resolved: ResolvedSignals, table: str) -> tuple[str, ...]:
    asked = [f.expression.partition(".") for f in resolved.signals.features.values() if f.kind == "dimension"]
    return tuple(dict.fromkeys(column for name, _, column in asked if name == table))


def _refused(records: DataFrame) -> list[str]:
    """Operators on the way of the events that are not in Spark's own list."""
    jvm = records.sparkSession._jvm
    assert jvm is not None
    module = jvm.java.lang.Class.forName(f"{ALLOWLIST}$").getField("MODULE$").get(None)
    allowed = getattr(module, f"{ALLOWLIST.replace('.', '$')}$$allowedOperators")()
    plan = records._jdf.queryExecution().executedPlan()
    return sorted({name.rpartition(".")[2] for name in _on_the_way(plan) if not allowed.contains(name)})


def _on_the_way(node: Any) -> Iterator[str]:
    """The classes of the nodes above the source; nothing if it is not below this node."""
    name = node.getClass().getName()
    if name == SOURCE:
        yield name
        return
    children = node.children()
    below = [found for n in range(children.size()) for found in _on_the_way(children.apply(n))]
    if below:
        yield name
        yield from below
