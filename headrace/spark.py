"""The one place where a Spark session is made."""

from __future__ import annotations

import os
import re
import sys
from importlib.resources import files
from typing import TypedDict

from pyspark.sql import SparkSession

from headrace.local.class_archive import archive_options
from headrace.local.jars import cache_dir, files_jar, spark_jars
from headrace.local.java import find_java, home_for_spark

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
JVM_OPTIONS = (
    "-Xss8m",  # deep expression trees recurse
    "-XX:+UseParallelGC",
    "-XX:-DontCompileHugeMethods",  # Spark generates one long method for each stage; it must be compiled
)
CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing"
ONE_MACHINE = {
    # Shuffle files stay in the page cache: compressing or summing them only costs.
    "spark.shuffle.compress": "false",
    "spark.shuffle.checksum.enabled": "false",
    "spark.shuffle.file.buffer": "1m",
    # Hadoop starts a process to set the mode of every file: here Java itself does it. A rename is atomic.
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.NakedLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": f"{CHECKPOINTS}.FileSystemBasedCheckpointFileManager",
}
STATE_STORE = "spark.sql.streaming.stateStore"


def build_session(
    app_name: str,
    *,
    master: str = "local[*]",
    memory: str = "1g",
    partitions: int | None = None,
    extra: dict[str, str] | None = None,
) -> SparkSession:
    """A session for streaming: RocksDB state, UTC, one shuffle partition for each core, quiet logs."""
    os.environ["JAVA_HOME"] = str(home_for_spark(find_java(), cache_dir() / "java"))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    log_config = files("headrace") / "log4j2.properties"
    options = {
        "spark.jars": ",".join(str(jar) for jar in spark_jars()),
        "spark.driver.extraClassPath": str(files_jar()),
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join(
            (*JVM_OPTIONS, *archive_options(), f"-Dlog4j2.configurationFile={log_config}")
        ),
        "spark.sql.session.timeZone": "UTC",
        # A formula that fails on one event is null there; it must not stop the stream for all others.
        "spark.sql.ansi.enabled": "false",
        "spark.sql.shuffle.partitions": str(partitions or os.cpu_count() or 2),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(ONE_MACHINE if master.startswith("local") else {}),
        f"{STATE_STORE}.providerClass": ROCKSDB,
        f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
        f"{STATE_STORE}.rocksdb.trackTotalNumberOfRows": "false",
        # Every batch looks through all remembered ids for those to forget: from memory, in large pieces.
        f"{STATE_STORE}.rocksdb.blockCacheSizeMB": "64",
        f"{STATE_STORE}.rocksdb.blockSizeKB": "32",
        # State is evicted with the next data: a batch of its own for that would only cost time.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.adaptive.enabled": "false",
        # The classes of all queries of an app must fit, or every batch compiles some of them again.
        "spark.sql.codegen.cache.maxEntries": "5000",
        # A metric with a sketch may have many groups; sorting them is slower than keeping them.
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "50000",
        # Measuring every row on its way to Python costs as much as decoding it; the publisher limits the
        # rows of a batch by their largest size instead.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        # Spark writes the plan of every job as text for its user interface, which is off.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.maxPlanStringLength": "2000",
        "spark.sql.debug.maxToStringFields": "5",
        **(extra or {}),
    }
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


class Placed(TypedDict):
    master: str
    extra: dict[str, str]


def with_slots(master: str, more: int, options: dict[str, str]) -> Placed:
    """Where a session runs that has tasks which never end, and what it must be told.

    On one machine they get slots of their own beside one for each core. A cluster has the slots that it has.
    """
    if more == 0:
        return {"master": master, "extra": options}
    fair = {"spark.scheduler.mode": "FAIR"}
    found = re.fullmatch(r"local(?:\[(\*|\d+)(,\d+)?\])?", master)
    if found is None:
        return {"master": master, "extra": fair | options}
    given = found[1] or "1"
    cores = (os.cpu_count() or 2) if given == "*" else int(given)
    fair["spark.default.parallelism"] = str(cores)
    return {"master": f"local[{cores + more}{found[2] or ''}]", "extra": fair | options}
