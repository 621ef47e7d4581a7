"""Which records are late: the clock of a partition is the largest event time accepted so far in it.

The exact rule needs the records in order of their offsets. Almost none of them need it: in a block of
neighbours, a record no older than the newest so far, its own block included, minus the lateness cannot be
late, whatever the order inside the block is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headrace.fates import ACCEPTED, LATE, REJECTED, latest
from headrace.windows import MICROSECOND

BLOCK = 4096  # offsets
Clocks = Mapping[int, int | None]  # partition → microseconds


@dataclass(frozen=True)
class Block:
    """The event times of neighbours in one partition; None where all of them were rejected."""

    partition: int
    number: int
    oldest: int | None
    newest: int | None


@dataclass(frozen=True)
class Extent:
    """The blocks of a batch, its largest value in bytes, and its log times by partition."""

    blocks: list[Block]
    longest: int
    log_times: dict[int, int]
    oldest_log_times: dict[int, int]


def measure_extent(held: DataFrame) -> Extent:
    blocks = held.groupBy("partition", _block().alias("block")).agg(
        F.min("event_time"),
        F.max("event_time"),
        F.max(F.octet_length("value")),
        F.max(F.unix_micros("log_time")),
        F.min(F.unix_micros("log_time")),
    )
    rows = sorted(blocks.collect(), key=lambda row: (row[0], row[1]))
    newest: dict[int, int] = {}
    oldest: dict[int, int] = {}
    for row in rows:
        if row[5] is not None:
            newest[row[0]] = max(row[5], newest.get(row[0], row[5]))
            oldest[row[0]] = min(row[6], oldest.get(row[0], row[6]))
    longest = max((row[4] or 0 for row in rows), default=0)
    return Extent([Block(*row[:4]) for row in rows], longest, newest, oldest)


def with_fates(
    held: DataFrame, extent: Extent, clocks: Clocks, lateness: timedelta, closest: timedelta | None = None
) -> DataFrame:
    """Adds `fate`, and `clock` for records so old that somebody asks for it: the lateness, or `closest`.

    The clock is that of the partition just before the record.
    """
    allowed = (lateness if closest is None else min(lateness, closest)) // MICROSECOND
    rejected = F.col("reasons").isNotNull()
    unsettled = _unsettled(extent, clocks, allowed)
    if not unsettled:
        fate = F.when(rejected, REJECTED).otherwise(ACCEPTED)
        return held.select("*", fate.alias("fate"), F.lit(None).cast("bigint").alias("clock"))
    old = _old_records(held, unsettled, allowed)
    marked = held.join(F.broadcast(old), ["partition", "offset"], "left")
    is_late = F.col("event_time") < F.col("clock") - lateness // MICROSECOND
    fate = F.when(rejected, REJECTED).when(is_late, LATE).otherwise(ACCEPTED)
    return marked.select("*", fate.alias("fate"))


def _block() -> Column:
    return F.floor(F.col("offset") / BLOCK)


def _unsettled(extent: Extent, clocks: Clocks, allowed: int) -> list[tuple[int, int, int | None]]:
    """Blocks in which the order matters, each with the clock before it."""
    found = []
    now = dict(clocks)
    for block in extent.blocks:
        before = now.get(block.partition)
        through = latest(before, block.newest)
        if block.oldest is not None and through is not None and block.oldest < through - allowed:
            found.append((block.partition, block.number, before))
        now[block.partition] = through
    return found


def _old_records(held: DataFrame, unsettled: list[tuple[int, int, int | None]], allowed: int) -> DataFrame:
    """Coordinates and clocks of old records. A late record is below the clock, so it never moves it."""
    blocks = held.sparkSession.createDataFrame(unsettled, "partition int, block bigint, before bigint")
    sound = held.where(F.col("reasons").isNull()).select("partition", "offset", "event_time")
    inside = sound.withColumn("block", _block()).join(F.broadcast(blocks), ["partition", "block"])
    earlier = Window.partitionBy("partition", "block").orderBy("offset")
    newest = F.max("event_time").over(earlier.rowsBetween(Window.unboundedPreceding, -1))
    timed = inside.withColumn("clock", F.greatest("before", newest))
    return timed.where(F.col("event_time") < F.col("clock") - allowed).select("partition", "offset", "clock")
