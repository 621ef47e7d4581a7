"""Why a record was rejected: stable codes, one sentence each. Headers, ledger and docs all use these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

REASONS: dict[str, str] = {
    "empty": "the record has no value",
    "not_utf8": "the value is not valid UTF-8",
    "not_json": "the value is not exactly one JSON text",
    "not_object": "the value is JSON, but not an object",
    "missing": "a required field is absent or null",
    "wrong_type": "the field's JSON type, range or precision is not the contract's",
    "bad_format": "the text is not a valid RFC 3339 timestamp, date or event id",
    "not_allowed": "the value is not in the contract's list",
    "no_match": "the text does not match the contract's pattern",
    "too_small": "the value is below the minimum",
    "too_large": "the value is above the maximum",
    "too_short": "the text, array or map is shorter than allowed",
    "too_long": "the text, array or map is longer than allowed",
    "future": "the event time is further ahead of the log time than the contract allows",
}

REASON_TYPE = "struct<code:string,field:string>"


@dataclass(frozen=True)
class Rule:
    """One check: `broken` is true, never null, where a record breaks it."""

    code: str
    field: str
    broken: Column

    @property
    def reason(self) -> Column:
        return reason(self.code, self.field)


def reason(code: str | Column, field: str) -> Column:
    name = F.lit(code) if isinstance(code, str) else code
    return F.struct(name.alias("code"), F.lit(field).alias("field"))


def broken_reasons(rules: list[Rule]) -> Column:
    """The reasons of all broken rules, as an array without nulls."""
    found = F.array(*[F.when(rule.broken, rule.reason) for rule in rules])
    return F.array_compact(found) if rules else no_reasons()


def no_reasons() -> Column:
    return F.array().cast(f"array<{REASON_TYPE}>")


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """`body` of a value that is computed once.

    It is also how rare work is kept out of the hot path. Spark generates code for all branches of a
    conditional, and a method that grows too large is never compiled; array functions are interpreted instead.
    """
    return F.get(F.transform(F.array(value), body), F.lit(0))
