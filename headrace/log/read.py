"""Raw records as a stream or as a range, with the columns that the gate expects."""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

# The Java client's defaults fetch in small pieces: reading is twice as cheap with larger ones.
FETCH = {
    "kafka.max.poll.records": "20000",
    "kafka.fetch.max.bytes": "67108864",
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.receive.buffer.bytes": "1048576",
    # Spark reads what it knows to be there: a fetch that waits for more only holds up the next request.
    "kafka.fetch.max.wait.ms": "10",
}
Offsets = dict[int, int]


def read_stream(spark: SparkSession, topic: str, options: dict[str, str], max_batch: int) -> DataFrame:
    reader = spark.readStream.format("kafka").options(**_options(topic, options))
    loaded = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", max_batch).load()
    return _raw(loaded)


def read_live(spark: SparkSession, topic: str, options: dict[str, str]) -> DataFrame:
    """For tasks that stay: a fetch waits at the broker for the next record, and returns with it."""
    reader = spark.readStream.format("kafka").options(**_options(topic, options, fetch={}))
    return _raw(reader.option("startingOffsets", "earliest").load())


def read_range(
    spark: SparkSession, topic: str, options: dict[str, str], start: Offsets, end: Offsets
) -> DataFrame:
    reader = spark.read.format("kafka").options(**_options(topic, options))
    reader = reader.option("startingOffsets", json.dumps({topic: start}))
    return _raw(reader.option("endingOffsets", json.dumps({topic: end})).load())


def _options(topic: str, options: dict[str, str], fetch: dict[str, str] = FETCH) -> dict[str, str]:
    client = {f"kafka.{name}": value for name, value in options.items()}
    return {
        **fetch,
        **client,
        "subscribe": topic,
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
    }


def _raw(loaded: DataFrame) -> DataFrame:
    return loaded.select(
        "partition", "offset", F.col("timestamp").alias("log_time"), "key", "value", "headers"
    )
