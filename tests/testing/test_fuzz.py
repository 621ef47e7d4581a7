"""The fuzz source: seeded, fast, a third valid, and it reaches every reason."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from random import Random

import pytest

from headrace.contracts import Contract, Field, Rules, Type
from headrace.testing.fuzz import NOW, fuzz_records
from headrace.testing.samples import matching
from tests.oracle.gate_oracle import Raw, examine, judge
from tests.oracle.validity import violations

ITEM = Type(
    "object",
    fields=(
        Field("product_id", Type("string"), required=True, rules=Rules(pattern="^p-[0-9]{1,9}$")),
        Field("price", Type("decimal", precision=12, scale=2), required=True, rules=Rules(minimum=0)),
        Field("note", Type("string")),
    ),
)
CONTRACT = Contract(
    name="everything",
    version="1.0.0",
    fields=(
        Field("id", Type("string"), required=True, rules=Rules(min_length=1, max_length=40)),
        Field("at", Type("timestamp"), required=True),
        Field("region", Type("string"), required=True, rules=Rules(enum=("tashkent", "almaty"))),
        Field("quantity", Type("integer"), rules=Rules(minimum=1, maximum=99)),
        Field("score", Type("number"), rules=Rules(exclusive_minimum=0, maximum=Decimal("1.5"))),
        Field("paid", Type("boolean")),
        Field("day", Type("date")),
        Field("item", ITEM),
        Field(
            "items",
            Type("array", element=Field("", ITEM, required=True)),
            rules=Rules(min_length=1, max_length=9),
        ),
        Field("notes", Type("map", element=Field("", Type("string"), rules=Rules(max_length=9)))),
    ),
    event_id="id",
    event_time="at",
    key="id",
    lateness=timedelta(minutes=10),
    max_future_skew=timedelta(minutes=5),
    dedupe_horizon=timedelta(hours=1),
    idle_after=timedelta(minutes=1),
    partitions=4,
    retention=timedelta(days=7),
)
COUNT = 20_000


@pytest.fixture(scope="module")
def records() -> list[bytes | None]:
    return list(fuzz_records(CONTRACT, COUNT, seed=1))


def test_the_same_seed_makes_the_same_records(records: list[bytes | None]) -> None:
    assert list(fuzz_records(CONTRACT, COUNT, seed=1)) == records
    assert list(fuzz_records(CONTRACT, 100, seed=2)) != records[:100]


def test_about_a_third_is_valid(records: list[bytes | None]) -> None:
    valid = [value for value in records if not examine(CONTRACT, value)[1]]
    assert 0.25 < len(valid) / COUNT < 0.45


def test_what_the_oracle_accepts_has_no_violations(records: list[bytes | None]) -> None:
    for value in records:
        if not examine(CONTRACT, value)[1]:
            assert value is not None
            assert violations(CONTRACT, value) == []


def test_every_reason_and_every_depth_is_reached(records: list[bytes | None]) -> None:
    reasons = Counter(reason for value in records for reason in examine(CONTRACT, value, NOW)[1])
    codes = {code for code, _ in reasons}
    assert codes == {
        *(
            "empty",
            "not_utf8",
            "not_json",
            "not_object",
            "missing",
            "wrong_type",
            "bad_format",
            "not_allowed",
        ),
        *("no_match", "too_small", "too_large", "too_short", "too_long", "future"),
    }
    for path in (
        "item.price",
        "items[]",
        "items[].product_id",
        "items[].price",
        "notes{}",
        "quantity",
        "day",
    ):
        assert reasons["wrong_type", path] > 0, path
    assert reasons["missing", "items[].price"] > 0


def test_hostile_texts_are_among_them(records: list[bytes | None]) -> None:
    everything = b"\n".join(value or b"" for value in records)
    for text in (
        b"[" * 5000,
        b"1e999999999",
        b"\\ud800",
        b"\\u0000",
        b"\xef\xbb\xbf",
        b"NaN",
        b'"1,2"',
        b"1" * 10_000,
    ):
        assert text in everything, text[:40]
    for stamp in (b"2026-02-30T10:00:00Z", b"T24:00:00Z", b"23:59:60Z", b"0000-01-01", b"10000-01-01"):
        assert stamp in everything, stamp
    assert re.search(rb'"[a-z]*\\u00[67][0-9a-f][a-z]*":', everything)
    assert None in records and b"" in records
    assert max(len(value or b"") for value in records) > 20_000


def test_some_ids_come_again_so_that_there_are_duplicates(records: list[bytes | None]) -> None:
    raws = [Raw(0, offset, None, value, NOW) for offset, value in enumerate(records)]
    fates = Counter(verdict.fate for verdict in judge(CONTRACT, raws))
    assert fates["duplicate"] > 50 and fates["late"] > 50 and fates["accepted"] > 1000


@pytest.mark.parametrize(
    "pattern",
    ["^p-[0-9]{1,9}$", "^[+][0-9]{9,15}$", "[a-c]+|x{2}", r"^\d{3}-\w+\s?$", "^(?:ab|cd)*e.[^x]$", "b"],
)
def test_sample_texts_match_their_pattern(pattern: str) -> None:
    sample, rng = matching(pattern), Random(1)
    for _ in range(200):
        assert re.search(pattern, sample(rng))


def test_fuzz_is_quick_enough_to_be_used() -> None:
    # A tenth of what it reaches on an idle machine, so that a busy one does not fail the test.
    began = time.process_time()
    count = sum(1 for _ in fuzz_records(CONTRACT, 10_000, seed=3))
    assert count / (time.process_time() - began) > 5_000


def test_a_contract_of_two_fields_is_enough() -> None:
    small = Contract(**{**CONTRACT.__dict__, "fields": CONTRACT.fields[:2]})
    values = list(fuzz_records(small, 2000, seed=1))
    assert any(value and not examine(small, value)[1] and json.loads(value) for value in values)
