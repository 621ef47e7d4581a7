"""Building the gate without running it: what Spark would refuse is found here, and named."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headrace.contracts.model import Contract, Field
from headrace.errors import ContractError
from headrace.flows.join_resolve import resolve_join
from headrace.flows.pattern_rule import resolve_patterns
from headrace.flows.realtime_check import check_lane_plan
from headrace.flows.signals import resolve_signals
from headrace.gate.judge import judge
from headrace.gate.patterns import java_pattern
from headrace.ops.enrichment import Enrichment
from headrace.ops.load import LoadedApp
from headrace.store.dimensions import Dimensions
from headrace.views.alert_rule import resolve_alerts
from headrace.views.resolve import resolve
from headrace.views.session_pieces import resolve_sessions

RAW = (
    "partition int, offset bigint, log_time timestamp, key binary, value binary,"
    " headers array<struct<key:string,value:binary>>"
)


def check_plans(spark: SparkSession, loaded: LoadedApp) -> None:
    """Raise ContractError for the first contract whose gate cannot be built."""
    for contract in loaded.contracts.values():
        for path, field in _with_patterns(contract.fields, ""):
            _check_pattern(spark, contract, path, field)
        _check_gate(spark, contract)
        metrics = resolve(spark, loaded.metrics_of(contract.name), contract)
        resolve_alerts(spark, loaded.alerts_of(contract.name), metrics)
        for side in loaded.join_sides_of(contract.name):
            if side.side == "left":
                resolve_join(spark, side)
        resolve_patterns(spark, loaded.patterns_of(contract.name), contract)
        resolve_sessions(spark, loaded.sessions_of(contract.name), contract)
        signals = resolve_signals(spark, loaded.signals_of(contract.name), contract)
        check_lane_plan(spark, contract, [s for s in signals if s.signals.lane == "realtime"])
        here = [e for e in loaded.enrich_of(contract.name) if not any(t.is_remote for t in e.tables)]
        Enrichment(contract, here, Dimensions())


def _check_pattern(spark: SparkSession, contract: Contract, path: str, field: Field) -> None:
    pattern = java_pattern(field.rules.pattern or "")
    try:
        spark.range(1).select(F.col("id").cast("string").rlike(pattern)).collect()
    except Exception as error:
        raise ContractError(
            f"field '{path}': Java cannot read the pattern {field.rules.pattern!r}",
            where=f"{contract.file}:{field.line}",
            hint=_first_line(error),
        ) from error


def _check_gate(spark: SparkSession, contract: Contract) -> None:
    try:
        judge(spark.createDataFrame([], RAW), contract, "").collect()
    except Exception as error:
        raise ContractError(
            f"the gate of '{contract.name}' cannot be built: {_first_line(error)}", where=str(contract.file)
        ) from error


def _with_patterns(fields: tuple[Field, ...], inside: str) -> Iterator[tuple[str, Field]]:
    for field in fields:
        path = f"{inside}{field.name}"
        if field.rules.pattern is not None:
            yield path, field
        yield from _with_patterns(field.type.fields, f"{path}.")
        if field.type.element is not None:
            mark = "[]" if field.type.kind == "array" else "{}"
            yield from _with_patterns((field.type.element,), f"{path}{mark}")


def _first_line(error: Exception) -> str:
    """What Java says about the mistake, without its stack."""
    text = str(error.getMessage() if isinstance(error, PySparkException) else error) or type(error).__name__
    lines = text.strip().splitlines()
    return next((line for line in lines if "near index" in line or "Exception: " in line), lines[0])
