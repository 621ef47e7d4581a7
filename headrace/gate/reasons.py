"""Why a record was rejected: stable codes, one sentence each. Headers, ledger and docs all use these."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
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
WORD_BITS = 60


@dataclass(frozen=True)
class Rule:
    """One check: `broken` is true, never null, where a record breaks it."""

    code: str
    field: str
    broken: Column


def reason(code: str | Column, field: str) -> Column:
    name = F.lit(code) if isinstance(code, str) else code
    return F.struct(name.alias("code"), F.lit(field).alias("field"))


def broken_rules(rules: list[Rule]) -> list[Column]:
    """Which rules a record breaks, as numbers with one bit for each rule.

    Small enough to compute for every record, and what the reasons of the few broken ones are read from.
    """
    return [_bits(rules[start : start + WORD_BITS]) for start in range(0, len(rules), WORD_BITS)]


def broken_reasons(words: list[Column], rules: list[Rule]) -> Column:
    """The reasons of all broken rules, as an array without nulls."""
    known = literal_rows(
        f"word int, bit bigint, reason {REASON_TYPE}",
        [
            {"word": n // WORD_BITS, "bit": 1 << n % WORD_BITS, "reason": {"code": r.code, "field": r.field}}
            for n, r in enumerate(rules)
        ],
    )
    broken = F.array(*words)
    hit = F.filter(known, lambda r: F.get(broken, r["word"]).bitwiseAND(r["bit"]) != 0)
    return F.transform(hit, lambda r: r["reason"])


def literal_rows(fields: str, rows: list[dict[str, object]]) -> Column:
    """A constant table as one column: thousands of literals would make every batch's planning slow."""
    return F.from_json(F.lit(json.dumps(rows)), f"array<struct<{fields}>>")


def _bits(word: list[Rule]) -> Column:
    bits = [F.shiftleft(rule.broken.cast("bigint"), n) for n, rule in enumerate(word)]
    return balanced(bits, lambda a, b: a.bitwiseOR(b))


def any_of(conditions: Sequence[Column]) -> Column:
    return balanced(conditions, lambda a, b: a | b)


def balanced(parts: Sequence[Column], join: Callable[[Column, Column], Column]) -> Column:
    """All parts as one, in a tree that is as flat as it can be.

    Spark writes the code of an expression out once for each level above it, in every batch.
    """
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return join(balanced(parts[:middle], join), balanced(parts[middle:], join))


def no_reasons() -> Column:
    return F.array().cast(f"array<{REASON_TYPE}>")


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """`body` of a value that is computed once.

    It is also how rare work is kept out of the hot path. Spark generates code for all branches of a
    conditional, and a method that grows too large is never compiled; array functions are interpreted instead.
    """
    return F.get(F.transform(F.array(value), body), F.lit(0))
