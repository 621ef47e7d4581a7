"""JSON that producers and attackers really send: values, moments and texts that break careless readers."""

from __future__ import annotations

import json
from decimal import Decimal
from random import Random

from headrace.contracts.model import Field

# fmt: off
NUMBERS = (
    "0", "-0", "-0.0", "1.0", "1e0", "1E2", "1e+2", "-1", "0.1e-400", "1e-999999999",
    "0e999999999999999999999", "1e400", "-1e400", "1e999999999", "1.7976931348623157e308",
    "1.7976931348623159e308", "5e-324", "0.1", "1e3", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "99999999999999999999999999999999999999",
    "0.00000000000000000001", "12345678901234.567", "1.005", "1.10000", "9" * 999, "9" * 1000, "9" * 1001,
    "0." + "3" * 1200, "1" * 10_000, "1" + "0" * 400, "1e" + "0" * 20 + "1",
)
BROKEN_NUMBERS = (
    "01", "-01", "+1", ".5", "1.", "1.e3", "1e", "0x10", "1_000", "NaN", "Infinity", "-Infinity", "-",
)
STRINGS = (
    '""', '" "', '"0"', '"1"', '"1.5"', '"1,2"', '"1e3"', '"true"', '"null"', '"NaN"', '"{}"', '"[]"',
    '"a\\nb"', '"\\ud800"', '"\\udc00\\ud800"', '"x\\udbff"', '"\\u0000"', '"\\u0000\\u0000"',
    '"\\ud83d\\ude00"', '"\\/"', '"p-1\\n"', '"p-1 "', '"tashkent\\u0000"', '"TASHKENT"', '"\\u200b"',
    '"\u202e\u0301"', '"😀"', '"ﬁ"', '"\x7f"',
)
BROKEN_STRINGS = (
    "'a'", '"a', '"\\x41"', '"\\u12"', '"\\u12G4"', '"a\nb"', '"a\tb"', '"\x00"', '"\\"', "a", "undefined",
)
OTHERS = (
    "null", "true", "false", "[]", "{}", "[null]", "[[]]", '{"":null}', '{"a":1,"a":"b"}', "[1,2]",
    "[true,{}]",
)
BROKEN_OTHERS = (
    "True", "None", "nul", "[1,]", "[,1]", '{"a":1,}', "{a:1}", '{"a"}', "[1 2]", "{,}", "", "/*x*/1", "]",
    "}",
)
MOMENTS = (
    "2026-02-30T10:00:00Z", "2026-02-29T10:00:00Z", "2024-02-29T10:00:00Z", "2026-07-01T24:00:00Z",
    "2026-06-30T23:59:60Z", "2026-07-01T09:60:00Z", "2026-13-01T09:00:00Z", "2026-00-10T09:00:00Z",
    "2026-07-01T09:00:00", "2026-07-01T09:00", "2026-07-01T09:00Z", "2026-07-01", "2026-07-01 09:00:00Z",
    "2026-07-01t09:00:00z", "2026-07-01T09:00:00+0500", "2026-07-01T09:00:00+05", "2026-07-01T09:00:00 Z",
    "2026-07-01T09:00:00+18:00", "2026-07-01T09:00:00+18:01", "2026-07-01T09:00:00-19:00",
    "2026-07-01T09:00:00+05:60", "2026-07-01T09:00:00-00:00", "2026-07-01T09:00:00.Z",
    "2026-07-01T09:00:00.1234567890Z", "2026-07-01T09:00:00,5Z", "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+18:00", "9999-12-31T23:59:59.999999999Z",
    "9999-12-31T23:59:59-18:00", "10000-01-01T00:00:00Z", "+12026-07-01T09:00:00Z", "-2026-07-01T09:00:00Z",
    "1582-10-10T00:00:00Z", "1969-12-31T23:59:59.999999Z", "2026-W27-3T09:00:00Z", "2026-182T09:00:00Z",
    "1782896400", "1782896400000", "now", "today", "epoch", "2026-7-1T9:0:0Z", " 2026-07-01T09:00:00Z",
    "T09:00:00Z", "2026-07-01T09:00:00[UTC]", "2026-07-01T09:00:00 Asia/Tashkent", "٢٠٢٦-07-01T09:00:00Z",
    "2026-07-01T09:00:00Z\\n", "2026-02-30", "2024-02-29", "2026-2-3", "20260701", "0000-12-31",
    "9999-12-31", "10000-01-01", "2026-07-01Z",
)
AFTER = (
    "{}", ",", "]", "}", "null", " x", ";", "//", "/**/", "\x00", "\x1e", "\u00a0", "\ufeff", '"', "\n{}\n",
    ":1",
)
BEFORE = (
    "\ufeff", "//x\n", "/**/", ",", "\x00", "\x0b", "\u2028", ")]}',\n", "{", "[", "0", " \t\r\n", "\n\n",
)
ROOTS = (
    "null", "true", "0", "-1.5", '""', '"text"', "[]", "[{}]", "{}", "NaN", " ", "\n", "{", "[", '{"":{}}',
    "''", "<a/>",
)
# fmt: on


def numbers_and_strings(rng: Random) -> str:
    """Any JSON value, one in three of them broken."""
    broken = rng.random() < 0.33
    return rng.choice(rng.choice(_BROKEN if broken else _WHOLE))


_WHOLE: tuple[tuple[str, ...], ...] = (NUMBERS, STRINGS, OTHERS, tuple(f'"{m}"' for m in MOMENTS))
_BROKEN = (BROKEN_NUMBERS, BROKEN_STRINGS, BROKEN_OTHERS)


def nested(depth: int, rng: Random) -> str:
    """Brackets inside brackets, closed or not."""
    style = rng.randrange(4)
    if style == 0:
        return "[" * depth + "]" * depth
    if style == 1:
        return '{"a":' * depth + "1" + "}" * depth
    if style == 2:
        return '[{"a":' * (depth // 2) + "[]" + "}]" * (depth // 2)
    return "[" * depth


def long_text(rng: Random) -> str:
    """A string value of up to 100 kB."""
    return json.dumps(
        rng.choice(["x", "ў", "😀", '"', "\\", "\n"]) * rng.randrange(1_000, 25_000), ensure_ascii=False
    )


def edges(field: Field) -> list[str]:
    """Values just inside and just outside the limits of a field."""
    rules, kind = field.rules, field.type.kind
    found = []
    step = Decimal(1).scaleb(-field.type.scale) if kind == "decimal" else Decimal(1)
    for limit in (rules.minimum, rules.maximum, rules.exclusive_minimum, rules.exclusive_maximum):
        if limit is not None:
            exact = Decimal(str(limit))
            found += [f"{exact + move:f}" for move in (-step, 0, step, -step / 10, step / 10)]
    if kind == "decimal":
        most = Decimal(10) ** (field.type.precision - field.type.scale)
        found += [f"{value:f}" for value in (most, most - step, -most, step - most, step, step / 10)]
    if kind == "string":
        for length in (rules.min_length, rules.max_length):
            for size in () if length is None else (length - 1, length, length + 1):
                found += [json.dumps(char * max(0, size), ensure_ascii=False) for char in "a😀"]
        found += [json.dumps(value + extra) for value in rules.enum or () for extra in ("", " ", "x", "\n")]
        found += [json.dumps(value.upper()) for value in rules.enum or ()]
    return found
