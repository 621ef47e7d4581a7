"""One event id, one event: duplicates are dropped by Spark's own operator, over a horizon of log time."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.contracts.model import Contract
from headrace.gate.reasons import let


def drop_duplicates(judged: DataFrame, contract: Contract, now: Column) -> DataFrame:
    """Keeps the first record of each event id; rejected records pass through.

    The operator forgets an id once the watermark passes, and would silently drop a row from before the
    watermark. So its time is the log time held within [now − horizon, now]: `now` never goes back, hence no
    row is ever too old for it, a wrong timestamp cannot expire anybody's state, and an id is remembered for
    the horizon at least.
    """
    horizon = F.lit(contract.dedupe_horizon)

    def held(log_time: Column) -> Column:
        return F.greatest(F.least(F.coalesce(log_time, now), now), now - horizon)

    # A rejected record has no event id to be a duplicate of; its coordinate is unique.
    identity = F.coalesce(
        F.concat(F.lit("e"), "event_id"), F.concat_ws(":", F.lit("r"), F.col("partition"), F.col("offset"))
    )
    named = judged.withColumn("dedupe_id", identity).drop("event_id")
    # `now` is a constant of the batch, and Spark writes constants into the code it generates: interpreted,
    # it does not make Spark compile the whole gate anew for every batch.
    timed = named.withColumn("dedupe_at", let(F.col("log_time"), held))
    delay = f"{int(contract.dedupe_horizon.total_seconds() * 1000)} milliseconds"
    unique = timed.withWatermark("dedupe_at", delay).dropDuplicatesWithinWatermark(["dedupe_id"])
    return unique.drop("dedupe_at")
