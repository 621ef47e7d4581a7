"""The streaming part of the gate: from raw records to judged ones without duplicates."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame

from headrace.contracts.model import Contract
from headrace.gate.dedupe import drop_duplicates, with_dedupe_time
from headrace.gate.judge import judge


def unique_records(
    records: DataFrame,
    contract: Contract,
    salt: str,
    now: Column,
    carried: tuple[str, ...] = (),
    *,
    whole: bool = True,
) -> DataFrame:
    """`now` is the latest log time that the batch may know of; it never goes back."""
    timed = with_dedupe_time(records, contract, now)
    return drop_duplicates(judge(timed, contract, salt, carried, whole=whole), contract)
