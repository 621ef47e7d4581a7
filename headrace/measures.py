"""What a metric measures, as frozen values. Every measure is mergeable: partial result + partial result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from headrace.errors import UsageError

Kind = Literal[
    "count",
    "sum",
    "min",
    "max",
    "mean",
    "variance",
    "stddev",
    "distinct",
    "quantiles",
    "top",
    "first",
    "last",
]
# 2^12 registers: a relative error of 1.04 / sqrt(2^12) = 1.6 % (one standard deviation).
HLL_LG_K = 12
HLL_ERROR = 1.04 / math.sqrt(1 << HLL_LG_K)
KLL_K = 200  # a rank error of about 1.65 % at 99 % confidence; exact up to 200 values


@dataclass(frozen=True)
class Measure:
    """`expression` and `where` are Spark SQL over the fields of the contract."""

    kind: Kind
    expression: str = ""
    where: str = ""
    ranks: tuple[float, ...] = ()  # quantiles
    n: int = 0  # top: how many are shown
    limit: int = 0  # top: how many are counted


def count(where: str = "") -> Measure:
    """How many events: `count()`, `count("event_type = 'purchase'")`."""
    return Measure("count", where=where)


def sum_of(expression: str, where: str = "") -> Measure:
    """An exact sum; a double counts with ten decimals, so that no order of events changes the result."""
    return Measure("sum", expression, where)


def min_of(expression: str, where: str = "") -> Measure:
    return Measure("min", expression, where)


def max_of(expression: str, where: str = "") -> Measure:
    return Measure("max", expression, where)


def mean_of(expression: str, where: str = "") -> Measure:
    return Measure("mean", expression, where)


def variance_of(expression: str, where: str = "") -> Measure:
    """The population variance, from exact sums; values count with four decimals."""
    return Measure("variance", expression, where)


def stddev_of(expression: str, where: str = "") -> Measure:
    """The population standard deviation; values count with four decimals."""
    return Measure("stddev", expression, where)


def distinct(expression: str, where: str = "") -> Measure:
    """About how many different values: HyperLogLog, standard error 1.6 %."""
    return Measure("distinct", expression, where)


def quantiles(expression: str, ranks: tuple[float, ...] = (0.5, 0.95, 0.99), where: str = "") -> Measure:
    """About which value a share of the events stays below: KLL, rank error about 1.7 %."""
    if not isinstance(ranks, tuple | list) or not ranks or any(not 0 <= rank <= 1 for rank in ranks):
        raise UsageError("ranks of quantiles lie between 0 and 1", hint="like (0.5, 0.95, 0.99)")
    return Measure("quantiles", expression, where, ranks=tuple(ranks))


def top(expression: str, n: int = 10, *, limit: int = 1000, where: str = "") -> Measure:
    """The most frequent values with exact counts, as long as no more than `limit` different ones occur.

    Beyond it the rest is counted together, as `(other)`.
    """
    if not 1 <= n <= limit:
        raise UsageError(f"top {n} of at most {limit} values", hint="n is at least 1 and at most the limit")
    return Measure("top", expression, where, n=n, limit=limit)


def first_of(expression: str, where: str = "") -> Measure:
    """The value of the earliest event; ties go to the lower partition and offset."""
    return Measure("first", expression, where)


def last_of(expression: str, where: str = "") -> Measure:
    return Measure("last", expression, where)


def quantile_name(name: str, rank: float) -> str:
    """`latency` at 0.95 is the column `latency_p95`."""
    return f"{name}_p{rank * 100:g}".replace(".", "_")
