"""Late records of a source whose accepted events are not published: their bytes are read from the log again.

Where accepted events are not published, hardly any record leaves the gate, and carrying the bytes of all of
them through the batch would cost more than reading those few twice.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.contracts.model import Contract
from headrace.fates import LATE
from headrace.gate.judge import judge

PLACE = ("partition", "offset")
BYTES = ("headers", "key", "value")
GONE = "a late record is no longer in the log: give the raw topic a longer retention"


def with_bytes(leaving: DataFrame, raw: DataFrame, contract: Contract, salt: str, tasks: int) -> DataFrame:
    """`raw` are the records of the batch. The rows go to as many tasks as they have come from, by their place
    in the log: a batch that runs again makes the same tasks of them."""
    is_bare = (F.col("fate") == LATE) & F.col("value").isNull()
    wanted = F.broadcast(leaving.where(is_bare).select(*PLACE))
    found = judge(raw.join(wanted, [*PLACE], "left_semi"), contract, salt)
    again = found.select(*PLACE, *[F.col(name).alias(f"again_{name}") for name in BYTES])
    joined = leaving.repartition(tasks, *PLACE).join(
        again.repartition(tasks, *PLACE).hint("merge"), [*PLACE], "left"
    )
    gone = F.when(is_bare, F.raise_error(F.lit(GONE)).cast("binary"))
    restored = {name: F.coalesce(name, f"again_{name}") for name in BYTES[:-1]}
    restored["value"] = F.coalesce("value", "again_value", gone)
    return joined.select(*[restored.get(name, F.col(name)).alias(name) for name in leaving.columns])
