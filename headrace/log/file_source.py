"""Records of a file as a stream: one Parquet file is one micro-batch, read in order by one task."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.log.arrivals import Arrival

COLUMNS: list[tuple[str, pa.DataType]] = [
    ("line", pa.int64()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("log_time", pa.timestamp("us", "UTC")),
    ("now", pa.timestamp("us", "UTC")),
    ("key", pa.binary()),
    ("value", pa.binary()),
]
SCHEMA = pa.schema(COLUMNS)
SPARK_SCHEMA = (
    "line bigint, partition int, offset bigint, log_time timestamp, now timestamp, key binary, value binary"
)
# One file is one task: the order within it is the order of arrival.
ONE_TASK = {
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.maxPartitionBytes": str(1 << 40),
    "spark.sql.files.openCostInBytes": str(1 << 40),
}
LARGEST_BATCH = 64 * 1024 * 1024  # bytes; a batch of long lines ends here
# Without log times nothing is ever too long ago, so the time stands still; it only has to be after 1970.
STILL = 4_102_444_800_000_000  # 2100


@dataclass
class BatchFile:
    """One batch: its records are counted by partition, as offsets."""

    file: Path
    start: dict[int, int] = field(default_factory=dict)
    end: dict[int, int] = field(default_factory=dict)

    @property
    def received(self) -> dict[int, int]:
        return {partition: end - self.start[partition] for partition, end in self.end.items()}


def write_batches(records: Iterable[Arrival], folder: Path, batch_size: int) -> list[BatchFile]:
    """Cut the records into files of one batch each."""
    folder.mkdir(parents=True)
    batches: list[BatchFile] = []
    now: int | None = None
    rows: list[Arrival] = []
    held = 0
    for record in records:
        rows.append(record)
        held += len(record.value)
        if len(rows) == batch_size or held >= LARGEST_BATCH:
            now = _write(rows, now, folder, batches)
            rows, held = [], 0
    if rows:
        _write(rows, now, folder, batches)
    return batches


def read_batches(spark: SparkSession, folder: Path) -> DataFrame:
    """The files as a stream of raw records, with `line` and `now`, the latest log time so far."""
    reader = spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1)
    loaded = reader.option("maxFileAge", "36500d").parquet(str(folder))
    headers = F.lit(None).cast("array<struct<key:string,value:binary>>")
    return loaded.withColumn("headers", headers)


def _write(rows: list[Arrival], before: int | None, folder: Path, batches: list[BatchFile]) -> int | None:
    now = max((row.log_time for row in rows if row.log_time is not None), default=before)
    now = now if before is None or now is None else max(now, before)
    batch = BatchFile(folder / f"{len(batches):09d}.parquet")
    for row in rows:
        batch.start.setdefault(row.partition, row.offset)
        batch.end[row.partition] = row.offset + 1
    columns = list(zip(*rows, strict=True))
    times = [STILL if now is None else now] * len(rows)
    line, partition, offset, log_time, key, value = columns
    table = pa.table([line, partition, offset, log_time, times, key, value], schema=SCHEMA)
    pq.write_table(table, batch.file, compression="lz4")
    # Spark takes files by their time of change: one millisecond for each keeps them in order.
    at = (1_000_000_000_000 + len(batches)) * 1_000_000
    os.utime(batch.file, ns=(at, at))
    batches.append(batch)
    return now
