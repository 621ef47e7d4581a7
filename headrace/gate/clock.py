"""Which records are late: the clock of a partition is the largest event time accepted so far in it.

The exact rule needs the records in order of their offsets. Almost no batch needs it: a record no older than
the newest of its partition minus the lateness cannot be late, whatever the order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from headrace.fates import ACCEPTED, LATE, REJECTED, latest


@dataclass(frozen=True)
class Extent:
    """The event times of a batch, over all partitions, and its largest value in bytes."""

    oldest: int | None
    newest: int | None
    longest: int


Clocks = Mapping[int, int | None]  # partition → microseconds


def with_fates(held: DataFrame, extent: Extent, clocks: Clocks, lateness: timedelta) -> DataFrame:
    """Adds `fate`, and `clock` where a record is late: the clock of its partition just before it."""
    allowed = lateness // timedelta(microseconds=1)
    rejected = F.col("reasons").isNotNull()
    newest = latest(extent.newest, *clocks.values())
    surely_none = extent.oldest is None or newest is None or extent.oldest >= newest - allowed
    unordered = [] if surely_none else _partitions_with_old_records(held, clocks, allowed)
    if not unordered:
        fate = F.when(rejected, REJECTED).otherwise(ACCEPTED)
        return held.select("*", fate.alias("fate"), F.lit(None).cast("bigint").alias("clock"))
    late = _late_records(held.where(F.col("partition").isin(unordered)), clocks, allowed)
    marked = held.join(F.broadcast(late), ["partition", "offset"], "left")
    fate = F.when(rejected, REJECTED).when(F.col("clock").isNotNull(), LATE).otherwise(ACCEPTED)
    return marked.select("*", fate.alias("fate"))


def _partitions_with_old_records(held: DataFrame, clocks: Clocks, allowed: int) -> list[int]:
    ranges = held.groupBy("partition").agg(F.min("event_time"), F.max("event_time")).collect()
    old = []
    for partition, oldest, newest in ranges:
        clock = latest(clocks.get(partition), newest)
        if oldest is not None and clock is not None and oldest < clock - allowed:
            old.append(partition)
    return old


def _late_records(held: DataFrame, clocks: Clocks, allowed: int) -> DataFrame:
    """Coordinates and clocks of the late records. A late record is below the clock, so it never moves it."""
    known = {partition: clock for partition, clock in clocks.items() if clock is not None}
    pairs = [F.lit(x) for item in known.items() for x in item]
    start = F.try_element_at(F.create_map(*pairs), F.col("partition")) if pairs else F.lit(None)
    before = Window.partitionBy("partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    clock = F.greatest(start.cast("bigint"), F.max("event_time").over(before))
    sound = held.where(F.col("reasons").isNull()).select("partition", "offset", "event_time")
    timed = sound.withColumn("clock", clock)
    return timed.where(F.col("event_time") < F.col("clock") - allowed).select("partition", "offset", "clock")
