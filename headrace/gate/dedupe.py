"""One event id, one event: duplicates are dropped by Spark's own operator, over a horizon of log time."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.contracts.model import Contract

DEDUPE_TIME = "dedupe_at"


def with_dedupe_time(records: DataFrame, contract: Contract, now: Column) -> DataFrame:
    """Adds the time by which the operator forgets an id.

    It would silently drop a row from before its watermark. So its time is the log time held within
    [now − horizon, now]: `now` never goes back, hence no row is ever too old for it, a wrong timestamp
    cannot expire anybody's state, and an id is remembered for the horizon at least.
    """
    horizon = contract.dedupe_horizon // timedelta(microseconds=1)
    # `now` is a constant of the batch, and Spark writes a number into the code it generates, which it would
    # compile anew for every batch. An array is handed over beside the code; its only place is the first one,
    # asked for in a way that Spark does not know before it has a row.
    latest = F.get(F.array(F.unix_micros(now)), F.col("partition") * 0)
    micros = F.coalesce(F.unix_micros("log_time"), latest)
    held = F.greatest(F.least(micros, latest), latest - horizon)
    return records.withColumn(DEDUPE_TIME, F.timestamp_micros(held))


def drop_duplicates(judged: DataFrame, contract: Contract) -> DataFrame:
    """Keeps the first record of each event id; rejected records pass through."""
    # A rejected record has no event id to be a duplicate of; its coordinate is unique.
    identity = F.coalesce(
        F.concat(F.lit("e"), "event_id"), F.concat_ws(":", F.lit("r"), F.col("partition"), F.col("offset"))
    )
    named = judged.withColumn("dedupe_id", identity).drop("event_id")
    delay = f"{int(contract.dedupe_horizon.total_seconds() * 1000)} milliseconds"
    unique = named.withWatermark(DEDUPE_TIME, delay).dropDuplicatesWithinWatermark(["dedupe_id"])
    return unique.drop(DEDUPE_TIME)
