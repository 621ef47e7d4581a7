"""Raw records as Spark frames, for tests of the gate."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from headrace.contracts import Contract, load_contract
from headrace.ops.check import RAW

CONTRACTS = Path(__file__).parents[2] / "apps" / "turanmart" / "contracts"


def turanmart(stream: str) -> Contract:
    return load_contract(CONTRACTS / f"{stream}.yaml")


def raw_frame(
    spark: SparkSession, folder: Path, values: Sequence[bytes | None], log_time: datetime | None = None
) -> DataFrame:
    """One record for each value, all in partition 0, at the same log time."""
    count = len(values)
    columns = {
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "log_time": pa.array([log_time] * count, pa.timestamp("us", "UTC")),
        "key": pa.array([None] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
    }
    file = folder / f"raw-{count}.parquet"
    pq.write_table(pa.table(columns), file, row_group_size=max(1, count // 4))
    return spark.read.schema(RAW).parquet(str(file))
