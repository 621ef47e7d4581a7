"""A hundred thousand hostile records: the gate must answer what the oracle answers, reason by reason.

Where they may differ, and only there:
- a name that occurs twice in the record: the gate may reject for either of the two values, the oracle takes
  the last one. Never may the gate accept what the oracle rejects;
- a field inside which a JSON type is wrong: the gate need not list the field's other reasons;
- an object, array or map that holds an unpaired surrogate: `not_json` for that field, whatever is in it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Set
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.gate.judge import judge
from headrace.gate.patterns import java_pattern
from headrace.testing.fuzz import NOW, fuzz_records
from tests.gate.frames import raw_frame, turanmart
from tests.oracle.gate_oracle import Reason, ecma, examine
from tests.oracle.validity import violations

SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
FORMAT = ("wrong_type", "not_json")


def has_repeated_name(value: bytes | None) -> bool:
    found = False

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        found = found or len({name for name, _ in members}) < len(members)
        return dict(members)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 5000)
    try:
        json.loads(value or b"", object_pairs_hook=pairs, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    finally:
        sys.setrecursionlimit(limit)
    return found


def top_level(path: str) -> str:
    return path.replace("[", ".").replace("{", ".").partition(".")[0]


def without_shadowed(reasons: Set[Reason], by: Set[Reason]) -> Set[Reason]:
    """Without what is said about a field inside which a JSON type is wrong."""
    names = {top_level(path) for code, path in by if code in FORMAT and top_level(path) != path}
    return frozenset(r for r in reasons if r[0] in FORMAT or top_level(r[1]) not in names)


def disagreement(got: Set[Reason], want: Set[Reason], value: bytes | None) -> bool:
    if got == want:
        return False
    if has_repeated_name(value):
        return bool(want) and not got
    if SURROGATE.search(value or b""):
        unreadable = {path for code, path in got if code == "not_json" and path}
        got, want = ({r for r in reasons if top_level(r[1]) not in unreadable} for reasons in (got, want))
    return without_shadowed(got, want) != without_shadowed(want, want)


@pytest.mark.parametrize(
    ("stream", "count"),
    [("clickstream", 78_000), ("payments", 8_000), ("logins", 7_000), ("orders", 8_000)],
)
def test_the_gate_agrees_with_the_oracle(
    spark: SparkSession, tmp_path: Path, stream: str, count: int
) -> None:
    contract = turanmart(stream)
    values = list(fuzz_records(contract, count, seed=20))
    frame = raw_frame(spark, tmp_path, values, NOW)
    judged = judge(frame, contract, "salt").select("offset", "reasons", "event_id", "event_time").toArrow()
    rows = sorted(judged.to_pylist(), key=lambda row: row["offset"])
    assert [row["offset"] for row in rows] == list(range(count))

    wrong = []
    accepted = 0
    for row, value in zip(rows, values, strict=True):
        got = frozenset((r["code"], r["field"]) for r in row["reasons"] or ())
        want = examine(contract, value, NOW)[1]
        if disagreement(got, want, value):
            wrong.append((sorted(got), sorted(want), (value or b"")[:300]))
        if row["reasons"] is None:
            accepted += 1
            assert row["event_id"] is not None and row["event_time"] is not None
            if not has_repeated_name(value):
                assert value is not None and violations(contract, value) == []
        else:
            assert got and row["event_id"] is None and row["event_time"] is None
    assert wrong == []
    assert 0.25 < accepted / count < 0.75


def test_a_disagreement_is_seen() -> None:
    missing, small = frozenset({("missing", "a")}), frozenset({("too_small", "a")})
    assert disagreement(frozenset(), missing, b"{}")
    assert disagreement(small, missing, b"{}")
    assert not disagreement(missing, frozenset(), b'{"a":1,"a":null}')
    assert disagreement(frozenset(), missing, b'{"a":1,"a":null}')
    inner = frozenset({("wrong_type", "a[].b"), ("too_long", "a")})
    assert not disagreement(frozenset({("wrong_type", "a[].b")}), inner, b"{}")
    assert disagreement(frozenset({("too_long", "a")}), inner, b"{}")
    unreadable = frozenset({("not_json", "a")})
    assert disagreement(unreadable, frozenset(), b'{"a":{}}')
    assert not disagreement(unreadable, inner, b'{"a":{"b":"\\ud800"}}')


PATTERNS = ("^a$", "a.c", r"^\d+$", r"^[.$]\.\$$", r"^(a|b$)", "^[^$]$", r"\\$", r"^\w{2}$", "x*$")
TEXTS = (
    "a",
    "a\n",
    "a\r\n",
    "a\u2028c",
    "a\u0085c",
    "a😀c",
    "٢",
    "12",
    "12\n",
    "$.$",
    "b\n",
    "$",
    "\\",
    "\\\n",
    "",
)


def test_patterns_mean_in_java_what_they_mean_in_json_schema(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    frame = spark.createDataFrame([(text,) for text in TEXTS], "text string")
    found = frame.select(
        *[F.col("text").rlike(java_pattern(p)).alias(f"p{n}") for n, p in enumerate(PATTERNS)]
    )
    expected = [[bool(ecma(pattern).search(text)) for pattern in PATTERNS] for text in TEXTS]
    assert [list(row) for row in found.collect()] == expected
