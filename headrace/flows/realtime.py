"""Signals in the real-time lane: from raw records to records of their topics, one event at a time.

A function from DataFrame to DataFrame that uses nothing but projections, filters and broadcast lookups, since
that is what Spark's real-time mode runs. A record says what the one of the normal lane says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from headrace.contracts.model import Contract
from headrace.dimensions import Dimension, Versions
from headrace.flows.models import model_sql
from headrace.flows.signals import ResolvedSignals
from headrace.gate.judge import judge
from headrace.signals import ALLOW, Feature, Rule, Scorer

RECORD = "struct<topic:string,key:string,value:string>"
DELAY = "__delay_ms"
_FOREVER = 2**62
_TABLE_TYPES = {"string": "string", "integer": "bigint", "number": "string", "boolean": "boolean"}
_TEXTS = (t.StringType, t.BooleanType, t.TimestampType, t.DateType)
_WITH_NULLS = {"ignoreNullFields": "false"}


def sound_events(raw: DataFrame, contract: Contract, salt: str, fields: tuple[str, ...]) -> DataFrame:
    """The events that the gate would not reject. Whether they are late or duplicates is not asked."""
    judged = judge(raw, contract, salt, fields).where("reasons IS NULL")
    return judged.selectExpr(
        "partition AS __partition",
        "offset AS __offset",
        "unix_micros(log_time) AS __log_time",
        "event_id AS __event_id",
        "event_time AS __event_time",
        "fields.*",
    )


def with_tables(events: DataFrame, tables: Mapping[Dimension, Versions]) -> DataFrame:
    """Adds for each table a struct `__table_NAME` with the version that was valid at the event's time."""
    for table, versions in tables.items():
        key, start, end = (f"__{part}_{table.name}" for part in ("key", "from", "to"))
        rows = _rows(events.sparkSession, table, versions).toDF(key, start, end, f"__table_{table.name}")
        valid = (F.col(start) <= F.col("__event_time")) & (F.col("__event_time") < F.col(end))
        found = (F.col(key) == F.col(f"`{table.on}`").cast("string")) & valid
        events = events.join(F.broadcast(rows), found, "left").drop(key, start, end)
    return events


def signal_records(events: DataFrame, lane: Sequence[ResolvedSignals]) -> DataFrame:
    """A row `topic, key, value` for each event that one of the signals has something to say about.

    `__delay_ms` is the time from the log to here.
    """
    told = events.select(
        F.struct("*").alias("__event"), F.array().cast(f"array<{RECORD}>").alias("__records")
    )
    for resolved in lane:
        told = _with_record(told, resolved)
    listed = F.filter("__records", lambda record: record.isNotNull())
    single = told.select(F.col("__event.__log_time").alias("__logged"), F.explode(listed).alias("__record"))
    # The only function of Spark that asks the clock for every row: current_timestamp() is that of the batch.
    now = "CAST(reflect('java.lang.System', 'currentTimeMillis') AS BIGINT)"
    return single.selectExpr("__record.*", f"{now} - __logged DIV 1000 AS {DELAY}")


def _with_record(told: DataFrame, resolved: ResolvedSignals) -> DataFrame:
    """One more element in `__records`: what these signals say of the event, or null."""
    signals, kept = resolved.signals, ("__event", "__records")
    event = told.select(*kept, "__event.*")
    features = {name: _expression(feature) for name, feature in signals.features.items()}
    types = {name: event.select(column).schema[0].dataType for name, column in features.items()}
    numbers = {name: _is_number(signals.features[name], resolved, types[name]) for name in features}
    computed = event.select(
        *kept,
        F.coalesce(F.expr(resolved.want.where), F.lit(False)).alias("__chosen"),
        F.struct(*[F.col(f"`{name}`").cast("string").alias(name) for name in signals.labels]).alias("__who"),
        F.struct(*[_shown(column, types[name]).alias(name) for name, column in features.items()]).alias(
            "__shown"
        ),
        *[
            (column.cast("double") if numbers[name] else column).alias(name)
            for name, column in features.items()
        ],
    )
    scored = computed.select(
        *(*kept, "__chosen", "__who", "__shown"),
        _score(signals.scorer).alias("__score"),
        *([_score(signals.shadow).alias("__shadow")] if signals.shadow is not None else []),
    )
    decision = _decision(resolved, F.col("__score"))
    value = F.to_json(F.struct(*_about(resolved, decision)), _WITH_NULLS)
    key = F.col("__who")[signals.key]
    record = F.struct(F.lit(signals.topic).alias("topic"), key.alias("key"), value.alias("value"))
    worth = F.col("__chosen")
    if signals.publish != "all":
        worth = worth & (decision != ALLOW)
    return scored.select("__event", F.concat("__records", F.array(F.when(worth, record))).alias("__records"))


def _about(resolved: ResolvedSignals, decision: Column) -> list[Column]:
    signals, event = resolved.signals, F.col("__event")
    source = F.struct(
        F.lit(signals.of).alias("stream"),
        event["__partition"].alias("partition"),
        event["__offset"].alias("offset"),
    )
    shadow: list[Column] = []
    if signals.shadow is not None:
        shadow = [
            F.col("__shadow").alias("shadow_score"),
            _decision(resolved, F.col("__shadow")).alias("shadow_decision"),
            F.lit(signals.shadow.version).alias("shadow_version"),
        ]
    return [
        F.concat(F.lit(f"{signals.name}:"), event["__event_id"]).alias("id"),
        F.lit(signals.name).alias("signals"),
        event["__event_id"].alias("event_id"),
        source.alias("source"),
        _instant(F.timestamp_micros(event["__event_time"])).alias("event_time"),
        *[F.col("__who")[name].alias(name) for name in signals.labels],
        F.col("__shown").alias("features"),
        F.lit(True).alias("complete"),
        F.col("__score").alias("score"),
        decision.alias("decision"),
        F.lit(signals.scorer.version).alias("version"),
        *shadow,
    ]


def _expression(feature: Feature) -> Column:
    if feature.kind == "dimension":
        table, _, column = feature.expression.partition(".")
        return F.col(f"__table_{table}")[column]
    return F.expr(feature.expression)


def _is_number(feature: Feature, resolved: ResolvedSignals, type_: t.DataType) -> bool:
    """A number of a table is kept as it was written, and is a number in a score all the same."""
    if feature.kind == "dimension":
        table, _, column = feature.expression.partition(".")
        declared = next(one for one in resolved.signals.tables if one.name == table)
        return declared.type_of(column) in ("integer", "number")
    return not isinstance(type_, _TEXTS)


def _shown(value: Column, type_: t.DataType) -> Column:
    """As the normal lane writes it: a decimal with all its digits as a text, a time in UTC."""
    match type_:
        case t.DecimalType():
            return F.replace(F.format_number(value, type_.scale), F.lit(","), F.lit(""))
        case t.TimestampType():
            return _instant(value)
        case t.DateType():
            return value.cast("string")
        case t.DoubleType() | t.FloatType():
            return _finite(value)
        case _:
            return value


def _instant(moment: Column) -> Column:
    part = F.unix_micros(moment) % 1_000_000
    digits = F.concat(F.lit("."), F.lpad(part.cast("string"), 6, "0"))
    whole = F.date_format(moment, "yyyy-MM-dd'T'HH:mm:ss")
    return F.concat(whole, F.when(part == 0, F.lit("")).otherwise(digits), F.lit("Z"))


def _score(scorer: Scorer) -> Column:
    """What is no number is no score, as in the normal lane; nothing is decided by it."""
    text = scorer.expression if isinstance(scorer, Rule) else model_sql(scorer)
    return _finite(F.expr(text).cast("double"))


def _finite(value: Column) -> Column:
    return F.when(F.abs(value) < F.lit(float("inf")), value)


def _decision(resolved: ResolvedSignals, score: Column) -> Column:
    found = F.lit(ALLOW)
    for decision, threshold in reversed(resolved.signals.decisions):
        found = F.when(score >= F.lit(threshold), F.lit(decision)).otherwise(found)
    return found


def _rows(spark: SparkSession, table: Dimension, versions: Versions) -> DataFrame:
    columns = ", ".join(f"`{name}`: {_TABLE_TYPES[table.type_of(name)]}" for name in versions.columns)
    rows: list[tuple[Any, ...]] = []
    for key, starts in versions.starts.items():
        ends = [*starts[1:], _FOREVER]
        for start, end, values in zip(starts, ends, versions.values[key], strict=True):
            if values is not None:
                rows.append((key, start, end, tuple(_cell(value) for value in values)))
    return spark.createDataFrame(rows, f"key string, `from` bigint, `to` bigint, found struct<{columns}>")


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | str) else format(value, "f")
