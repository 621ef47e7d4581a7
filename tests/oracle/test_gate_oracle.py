"""The oracle on hand-written tables: every code, every order of fates, the clocks."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from headrace.contracts.model import Contract, Field, Rules, Type
from tests.oracle.gate_oracle import Raw, Reason, Verdict, ecma, examine, judge, judgement
from tests.oracle.validity import violations

ITEM = Type(
    "object",
    fields=(
        Field("product_id", Type("string"), required=True, rules=Rules(pattern="^P[0-9]{5}$")),
        Field("price", Type("decimal", precision=5, scale=2), rules=Rules(exclusive_minimum=Decimal("0"))),
    ),
)
SHIPPING = Type(
    "object", fields=(Field("street", Type("string"), required=True), Field("flat", Type("integer")))
)
CONTRACT = Contract(
    name="orders",
    version="1.0.0",
    fields=(
        Field("id", Type("string"), required=True, rules=Rules(min_length=1, max_length=4)),
        Field("at", Type("timestamp"), required=True),
        Field("region", Type("string"), rules=Rules(enum=("tashkent", "almaty"))),
        Field("quantity", Type("integer"), rules=Rules(minimum=1, maximum=99)),
        Field("score", Type("number"), rules=Rules(exclusive_maximum=1)),
        Field("paid", Type("boolean")),
        Field("day", Type("date")),
        Field("shipping", SHIPPING),
        Field("items", Type("array", element=Field("", ITEM, required=True)), rules=Rules(max_length=2)),
        Field("tags", Type("array", element=Field("", Type("string")))),
        Field(
            "attributes",
            Type("map", element=Field("", Type("string"), required=True)),
            rules=Rules(min_length=1),
        ),
    ),
    event_id="id",
    event_time="at",
    key="id",
    lateness=timedelta(minutes=10),
    max_future_skew=timedelta(minutes=5),
    dedupe_horizon=timedelta(hours=1),
    idle_after=timedelta(minutes=1),
    partitions=2,
    retention=timedelta(days=7),
)
NINE = datetime(2026, 7, 1, 9, tzinfo=UTC)


def with_field(name: str, literal: str) -> bytes:
    return b'{"id":"a","at":"2026-07-01T09:00:00Z","%s":%s}' % (name.encode(), literal.encode())


def reasons(value: bytes | None) -> frozenset[Reason]:
    found = examine(CONTRACT, value)[1]
    if value is not None and not found:
        assert violations(CONTRACT, value) == []
    elif value and not found <= {("future", "at")}:
        assert violations(CONTRACT, value) != []
    return found


WHOLE = b'{"id":"a","at":"2026-07-01T09:00:00Z"}'


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "empty"),
        (b"", "empty"),
        (b"\xff" + WHOLE, "not_utf8"),
        (b'{"id":"\xed\xa0\x80"}', "not_utf8"),
        (b" ", "not_json"),
        (b"\xef\xbb\xbf" + WHOLE, "not_json"),
        (WHOLE[:-1], "not_json"),
        (WHOLE + WHOLE, "not_json"),
        (WHOLE + b",", "not_json"),
        (WHOLE + b"]", "not_json"),
        (b"{'id':'a'}", "not_json"),
        (b"/* */" + WHOLE, "not_json"),
        (b'{"id":"a",}', "not_json"),
        (b'{"id":"a\nb"}', "not_json"),
        (b'{"quantity":01}', "not_json"),
        (b'{"quantity":+1}', "not_json"),
        (b'{"score":NaN}', "not_json"),
        (b'{"score":-Infinity}', "not_json"),
        (b'{"quantity":' + b"1" * 1001 + b"}", "not_json"),
        (b"[" * 1001 + b"]" * 1001, "not_json"),
        (b"[" * 100_000, "not_json"),
        (b"[" * 1000 + b"]" * 1000, "not_object"),
        (b"[1]", "not_object"),
        (b"null", "not_object"),
        (b'"{}"', "not_object"),
    ],
)
def test_a_record_that_is_no_object_has_one_reason(value: bytes | None, code: str) -> None:
    assert reasons(value) == {(code, "")}


def test_brackets_inside_a_string_do_not_nest() -> None:
    assert reasons(with_field("extra", json.dumps("[" * 2000 + '\\"'))) == frozenset()


@pytest.mark.parametrize(
    ("field", "literal", "expected"),
    [
        ("region", '"almaty"', None),
        ("region", "null", None),
        ("region", '"Almaty"', "not_allowed"),
        ("region", "1", "wrong_type"),
        ("region", "{}", "wrong_type"),
        ("quantity", "1", None),
        ("quantity", "99", None),
        ("quantity", "0", "too_small"),
        ("quantity", "-0", "too_small"),
        ("quantity", "100", "too_large"),
        ("quantity", "9223372036854775807", "too_large"),
        ("quantity", "9223372036854775808", "wrong_type"),
        ("quantity", "1.0", "wrong_type"),
        ("quantity", "1e0", "wrong_type"),
        ("quantity", '"1"', "wrong_type"),
        ("quantity", "true", "wrong_type"),
        ("score", "0.999", None),
        ("score", "-1e308", None),
        ("score", "0.1e-400", None),
        ("score", "1", "too_large"),
        ("score", "1.0", "too_large"),
        ("score", "1e400", "wrong_type"),
        ("score", "-1e999999999", "wrong_type"),
        ("score", "false", "wrong_type"),
        ("paid", "true", None),
        ("paid", "1", "wrong_type"),
        ("paid", '"true"', "wrong_type"),
        ("day", '"2024-02-29"', None),
        ("day", '"2026-02-29"', "bad_format"),
        ("day", '"2026-2-1"', "bad_format"),
        ("day", '"0000-01-01"', "bad_format"),
        ("day", "20260701", "wrong_type"),
        ("shipping", "null", None),
        ("shipping", "[]", "wrong_type"),
        ("shipping", '"x"', "wrong_type"),
        ("attributes", '{"a":"b"}', None),
        ("attributes", "{}", "too_short"),
        ("attributes", "[]", "wrong_type"),
        ("tags", "[]", None),
        ("tags", '["a",null]', None),
        ("tags", "{}", "wrong_type"),
    ],
)
def test_one_field(field: str, literal: str, expected: str | None) -> None:
    assert reasons(with_field(field, literal)) == (
        frozenset({(expected, field)}) if expected else frozenset()
    )


@pytest.mark.parametrize(
    ("price", "fits"),
    [
        ("999.99", True),
        ("0.010", True),
        ("1.0000000e0", True),
        ("12e1", True),
        ("99999e-2", True),
        ("1000", False),
        ("0.001", False),
        ("1e3", False),
        ("1e400", False),
        ('"1.00"', False),
        ('"1,2"', False),
        ("true", False),
    ],
)
def test_a_decimal_must_be_exactly_representable(price: str, fits: bool) -> None:
    item = f'[{{"product_id":"P00001","price":{price}}}]'
    assert reasons(with_field("items", item)) == (frozenset() if fits else {("wrong_type", "items[].price")})


@pytest.mark.parametrize(
    "zero", ["0", "-0", "0.000000", "0e999999999999999999999", "-0.0e-400", "1e-999999999"]
)
def test_a_zero_is_a_zero_however_it_is_written(zero: str) -> None:
    item = f'[{{"product_id":"P00001","price":{zero}}}]'
    assert reasons(with_field("items", item)) == {("too_small", "items[].price")}


@pytest.mark.parametrize(
    ("stamp", "valid"),
    [
        ("2026-07-01T09:00:00Z", True),
        ("2026-07-01T09:00:00.123456789+05:00", True),
        ("2026-07-01T09:00:00-00:00", True),
        ("2026-07-01T09:00:00+18:00", True),
        ("0001-01-01T00:00:00Z", True),
        ("0001-01-01T00:00:00+05:00", False),
        ("9999-12-31T23:59:59-00:01", False),
        ("9999-12-31T23:59:59.999Z", True),
        ("2024-02-29T00:00:00Z", True),
        ("2026-02-29T00:00:00Z", False),
        ("2026-02-30T00:00:00Z", False),
        ("2026-13-01T00:00:00Z", False),
        ("2026-07-01T24:00:00Z", False),
        ("2026-06-30T23:59:60Z", False),
        ("2026-07-01T09:60:00Z", False),
        ("2026-07-01T09:00:00", False),
        ("2026-07-01T09:00:00+0500", False),
        ("2026-07-01T09:00:00+05:60", False),
        ("2026-07-01T09:00:00+18:01", False),
        ("2026-07-01T09:00:00.Z", False),
        ("2026-07-01T09:00:00.1234567890Z", False),
        ("2026-07-01T09:00:00,5Z", False),
        ("2026-07-01 09:00:00Z", False),
        ("2026-07-01t09:00:00z", False),
        ("2026-07-01T09:00Z", False),
        ("2026-07-01", False),
        ("0000-01-01T00:00:00Z", False),
        ("10000-01-01T00:00:00Z", False),
        ("2026-07-01T09:00:00Z\n", False),
        (" 2026-07-01T09:00:00Z", False),
        ("٢٠٢٦-07-01T09:00:00Z", False),
        ("", False),
    ],
)
def test_event_times(stamp: str, valid: bool) -> None:
    found = examine(CONTRACT, json.dumps({"id": "a", "at": stamp}).encode())[1]
    assert found == (frozenset() if valid else {("bad_format", "at")})


def test_all_reasons_are_listed_with_their_paths() -> None:
    value = b"""{"id":"abcde","quantity":0,"region":"mars","shipping":{"flat":"3"},
      "items":[{"product_id":"P1","price":0},null,{"price":"1"}],"attributes":{"a":null,"b":1},"tags":[1]}"""
    assert reasons(value) == {
        ("too_long", "id"),
        ("missing", "at"),
        ("too_small", "quantity"),
        ("not_allowed", "region"),
        ("missing", "shipping.street"),
        ("wrong_type", "shipping.flat"),
        ("too_long", "items"),
        ("no_match", "items[].product_id"),
        ("too_small", "items[].price"),
        ("missing", "items[]"),
        ("missing", "items[].product_id"),
        ("wrong_type", "items[].price"),
        ("wrong_type", "attributes{}"),
        ("missing", "attributes{}"),
        ("wrong_type", "tags[]"),
    }


def test_null_is_missing_and_the_last_of_two_keys_wins() -> None:
    assert reasons(b'{"id":null,"at":"2026-07-01T09:00:00Z"}') == {("missing", "id")}
    assert reasons(b'{"id":1,"id":"a","at":"2026-07-01T09:00:00Z"}') == frozenset()
    assert reasons(b'{"id":"a","\\u0069d":1,"at":"2026-07-01T09:00:00Z"}') == {("wrong_type", "id")}


def test_length_counts_code_points() -> None:
    assert reasons('{"id":"😀😀😀😀","at":"2026-07-01T09:00:00Z"}'.encode()) == frozenset()
    assert reasons(b'{"id":"\\ud83d\\ude00abcd","at":"2026-07-01T09:00:00Z"}') == {("too_long", "id")}
    assert reasons(b'{"id":"","at":"2026-07-01T09:00:00Z"}') == {("too_short", "id")}


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^a$", "a", True),
        ("^a$", "a\n", False),
        ("a", "bab", True),
        (r"^\d+$", "٢", False),
        ("^a.c$", "a\rc", False),
        ("^a.c$", "a😀c", True),
        (r"^[.$]\.\$$", "$.$", True),
    ],
)
def test_patterns_are_those_of_json_schema(pattern: str, text: str, found: bool) -> None:
    assert bool(ecma(pattern).search(text)) is found


def sequence(*rows: tuple[str, int, str] | tuple[str, int, str, str]) -> list[Raw]:
    """Rows of: id, partition, event time, and the log time (none when left out)."""
    raws = []
    for offset, (name, partition, at, *logged) in enumerate(rows):
        value = json.dumps({"id": name, "at": f"2026-07-01T{at}Z"}).encode()
        log_time = datetime.fromisoformat(f"2026-07-01T{logged[0]}+00:00") if logged else None
        raws.append(Raw(partition, offset, None, value, log_time))
    return raws


def fates(raws: list[Raw]) -> list[str]:
    return [verdict.fate for verdict in judge(CONTRACT, raws)]


def test_the_clock_belongs_to_the_partition() -> None:
    raws = sequence(
        ("1", 0, "09:00:10"),
        ("2", 1, "09:00:40"),
        ("3", 0, "09:20:00"),
        ("4", 1, "09:00:50"),  # partition 1 has its own clock
        ("5", 0, "09:10:00"),  # exactly the lateness behind: not late
        ("6", 0, "09:09:59.999999"),
        ("7", 0, "09:09:59.9999999"),  # cut to microseconds
        ("8", 1, "08:50:50"),
        ("9", 1, "08:50:49"),
    )
    assert fates(raws) == [*["accepted"] * 5, "late", "late", "accepted", "late"]
    clocks = judgement(CONTRACT, raws).clocks
    assert {p: datetime.fromtimestamp(c / 1e6, UTC).time().isoformat() for p, c in clocks.items()} == {
        0: "09:20:00",
        1: "09:00:50",
    }


def test_only_accepted_records_move_a_clock() -> None:
    raws = sequence(
        ("1", 0, "09:00:00", "09:00:00"),
        ("2", 0, "09:05:00.001", "09:00:00"),  # one millisecond more than the skew
        ("3", 0, "09:05:00", "09:00:00"),
        ("1", 0, "09:05:00", "09:01:00"),  # a duplicate with a later time
        ("4", 0, "08:55:00", "09:01:00"),
        ("5", 0, "08:54:59", "09:01:00"),
        ("6", 0, "08:55:00", "09:01:00"),
    )
    assert fates(raws) == ["accepted", "rejected", "accepted", "duplicate", "accepted", "late", "accepted"]
    assert judge(CONTRACT, raws)[1] == Verdict(0, 1, "rejected", frozenset({("future", "at")}))


def test_duplicates_are_judged_after_rejects_and_before_lateness() -> None:
    good = sequence(("1", 0, "09:30:00"), ("2", 0, "09:00:00"), ("2", 1, "09:00:00"), ("1", 1, "09:30:00"))
    broken = Raw(0, 9, None, b'{"id":"3","at":"2026-07-01T09:30:00Z","quantity":0}')
    repaired = Raw(1, 9, None, b'{"id":"3","at":"2026-07-01T09:30:00Z","quantity":1}')
    assert fates([*good, broken, repaired, repaired]) == [
        "accepted",
        "late",
        "duplicate",  # of a late record, in another partition
        "duplicate",
        "rejected",
        "accepted",  # a rejected record is no original
        "duplicate",
    ]


def test_the_horizon_is_counted_from_the_record_that_was_kept() -> None:
    raws = sequence(
        ("1", 0, "09:00:00", "09:00:00"),
        ("1", 0, "09:00:00", "09:40:00"),
        ("1", 0, "09:00:00", "10:00:00"),
        ("1", 0, "09:00:00", "10:00:01"),
        ("1", 0, "09:00:00", "10:30:00"),
    )
    assert fates(raws) == ["accepted", "duplicate", "duplicate", "accepted", "duplicate"]


def test_a_future_stamp_is_listed_with_the_other_reasons() -> None:
    value = b'{"at":"2026-07-01T10:00:00Z","paid":0}'
    assert examine(CONTRACT, value, NINE)[1] == {("missing", "id"), ("wrong_type", "paid"), ("future", "at")}
