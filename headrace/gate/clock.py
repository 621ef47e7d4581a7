"""Which records are late: the clock of a partition is the largest event time accepted so far in it.

The rule needs the records in order of their offsets. Only their coordinates and times are brought together
for it, as columns: two numbers and a time for each record of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.fates import ACCEPTED, LATE, REJECTED, Tally
from headrace.windows import MICROSECOND

Clocks = Mapping[int, int | None]  # partition → microseconds
Numbers = npt.NDArray[np.int64]
NEVER = np.iinfo(np.int64).min // 2
LOOKUPS = 20_000_000  # comparisons that cost less than a join
PARTITION_BITS = 48  # of a place, above the offset


@dataclass(frozen=True)
class Extent:
    """Where and when the records of a batch are, in order of partition and offset.

    `times` are event times in microseconds, NEVER of a rejected record; log times are by partition. `bare`
    records came without their bytes.
    """

    partitions: Numbers
    offsets: Numbers
    times: Numbers
    bare: npt.NDArray[np.bool_]
    longest: int  # value in bytes
    log_times: dict[int, int]
    oldest_log_times: dict[int, int]

    def spans(self) -> list[tuple[int, slice]]:
        """The partitions, each with its records."""
        numbers, firsts = np.unique(self.partitions, return_index=True)
        ends = [*firsts, len(self.partitions)][1:]
        return [(int(n), slice(a, b)) for n, a, b in zip(numbers, firsts, ends, strict=True)]


def measure_extent(held: DataFrame) -> Extent:
    found = held.select(
        *("partition", "offset"),
        F.when(F.col("reasons").isNull(), F.col("event_time")),
        F.unix_micros("log_time"),
        F.octet_length("value"),
    ).toArrow()
    return extent_of(found.columns)


def extent_of(columns: Sequence[Any]) -> Extent:
    """From partition, offset, event time if the record is sound, log time and length, column by column."""
    partitions, offsets, times, log_times, lengths = (_numbers(column) for column in columns)
    order = np.lexsort((offsets, partitions))
    extent = Extent(
        *(partitions[order], offsets[order], times[order], lengths[order] == NEVER),
        *(int(lengths.max(initial=0)), {}, {}),
    )
    logged = log_times[order]
    for partition, mine in extent.spans():
        known = logged[mine][logged[mine] != NEVER]
        if len(known):
            extent.log_times[partition] = int(known.max())
            extent.oldest_log_times[partition] = int(known.min())
    return extent


class Fates(NamedTuple):
    """The records of a batch with their fates, what each partition accepts, how many of them are old, and how
    many are late and have to be read again, since they came without their bytes."""

    rows: DataFrame
    accepted: list[Tally]
    old: int
    bare: int


def with_fates(
    held: DataFrame, extent: Extent, clocks: Clocks, lateness: timedelta, closest: timedelta | None = None
) -> Fates:
    """Adds `fate`, and `clock` for records so old that somebody asks for it: the lateness, or `closest`.

    The clock is that of the partition just before the record.
    """
    allowed = (lateness if closest is None else min(lateness, closest)) // MICROSECOND
    before, sound = _clocks_before(extent, clocks), extent.times != NEVER
    in_time = extent.times >= before - lateness // MICROSECOND
    accepted = _tallies(extent, sound & in_time)
    [old] = np.nonzero(sound & (extent.times < before - allowed))
    rejected = F.col("reasons").isNotNull()
    if not len(old):
        fate = F.when(rejected, REJECTED).otherwise(ACCEPTED)
        no_clock = F.lit(None).cast("bigint").alias("clock")
        return Fates(held.select("*", fate.alias("fate"), no_clock), accepted, 0, 0)
    places, marked = (extent.partitions[old] << PARTITION_BITS) + extent.offsets[old], before[old]
    timed = _with_clocks(held, places, marked, len(extent.times))
    is_late = F.col("event_time") < F.col("clock") - lateness // MICROSECOND
    fate = F.when(rejected, REJECTED).when(is_late, LATE).otherwise(ACCEPTED)
    bare = int(np.count_nonzero(sound & ~in_time & extent.bare))
    return Fates(timed.select("*", fate.alias("fate")), accepted, len(old), bare)


def _tallies(extent: Extent, is_accepted: npt.NDArray[np.bool_]) -> list[Tally]:
    found = []
    for partition, mine in extent.spans():
        times = extent.times[mine][is_accepted[mine]]
        if len(times):
            found.append(Tally(partition, accepted=len(times), clock=int(times.max())))
    return found


def _clocks_before(extent: Extent, clocks: Clocks) -> Numbers:
    """The clock just before each record. A late record is below the clock, so it never moves it."""
    before = np.empty_like(extent.times)
    for partition, mine in extent.spans():
        known = clocks.get(partition)
        first = NEVER if known is None else known
        before[mine] = np.maximum.accumulate(np.concatenate(([first], extent.times[mine][:-1])))
    return before


def _with_clocks(held: DataFrame, places: Numbers, clocks: Numbers, rows: int) -> DataFrame:
    """Few old records are found in an array, which Spark hands to the same code in every batch."""
    place = F.shiftleft(F.col("partition").cast("bigint"), PARTITION_BITS) + F.col("offset")
    if len(places) * rows <= LOOKUPS:
        found = F.array_position(_array(places), place)
        return held.select("*", F.get(_array(clocks), (found - 1).cast("int")).alias("clock"))
    table = pa.table({"place": places, "clock": clocks})
    old = held.sparkSession.createDataFrame(table)
    return held.withColumn("place", place).join(F.broadcast(old), "place", "left").drop("place")


def _array(numbers: Numbers) -> Column:
    """As one constant: an array of constants would be sent to the JVM one by one."""
    return F.split(F.lit(",".join(map(str, numbers.tolist()))), ",").cast("array<bigint>")


def _numbers(column: Any) -> Numbers:
    return np.asarray(pc.fill_null(column.cast(pa.int64()), NEVER).to_numpy(), dtype=np.int64)
