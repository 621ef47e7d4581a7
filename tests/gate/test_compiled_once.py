"""What differs from batch to batch must not be in the code that Spark compiles."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headrace.contracts import load_contract
from headrace.gate.dedupe import DEDUPE_TIME, with_dedupe_time
from tests.serve.seed import TURANMART

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_the_time_of_a_batch_is_no_part_of_the_code(spark: SparkSession) -> None:
    contract = load_contract(TURANMART / "contracts" / "clickstream.yaml")
    horizon = contract.dedupe_horizon
    jvm = spark._jvm
    assert jvm is not None
    compiled = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount
    times = [NOW - timedelta(days=9), NOW - timedelta(seconds=1), None, NOW + timedelta(days=9)]
    rows = [(partition, time) for partition, time in enumerate(times)]
    records = spark.createDataFrame(rows, "partition int, log_time timestamp")

    def held(now: datetime) -> list[datetime]:
        timed = with_dedupe_time(records, contract, F.lit(now)).orderBy("partition")
        return [row[0].astimezone(UTC) for row in timed.select(DEDUPE_TIME).collect()]

    assert held(NOW) == [NOW - horizon, NOW - timedelta(seconds=1), NOW, NOW]
    before = compiled()
    later = NOW + timedelta(minutes=1)
    assert held(later) == [later - horizon, NOW - timedelta(seconds=1), later, later]
    assert compiled() == before
