"""What the gate must answer, recomputed one record at a time in plain Python.

It shares no code with the gate and no idea with its implementation: no columns, no batches, no state
store. A test hands both the same records and compares.

Where the rules leave a choice, the oracle chooses:
- time is compared in microseconds, as Spark keeps it; finer digits are cut off;
- the dedupe horizon is counted in log time from the record that was kept, inclusive; without log times it
  has no end;
- a pattern means what it means in ECMAScript: `$` is the very end, `.` stops at line terminators, `\\d` and
  `\\w` are ASCII;
- a decimal of up to 15 digits is the double nearest to its literal, as in every JavaScript producer;
- an event id with an unpaired surrogate is no identity: `bad_format`;
- the digits of a number are all digit characters of its literal, those of the exponent included.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Literal, NamedTuple

from headrace.contracts.model import Contract, Field, Rules, Scalar
from tests.oracle.moments import is_date, micros, micros_of
from tests.oracle.strict_json import NotJson, Number, parse

Fate = Literal["rejected", "duplicate", "late", "accepted"]
Reason = tuple[str, str]  # code, field path


class Raw(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    log_time: datetime | None = None


@dataclass(frozen=True)
class Verdict:
    partition: int
    offset: int
    fate: Fate
    reasons: frozenset[Reason] = frozenset()


@dataclass(frozen=True)
class Judgement:
    verdicts: list[Verdict]
    clocks: dict[int, int]  # partition to microseconds since 1970


def judge(contract: Contract, records: Sequence[Raw]) -> list[Verdict]:
    return judgement(contract, records).verdicts


def judgement(contract: Contract, records: Sequence[Raw]) -> Judgement:
    """The fate of every record in the order of processing, and where the clocks stand after the last one."""
    verdicts: list[Verdict] = []
    clocks: dict[int, int] = {}
    kept: dict[str, datetime | None] = {}
    lateness = _length(contract.lateness)
    for raw in records:
        record, reasons = examine(contract, raw.value, raw.log_time)
        if reasons:
            verdicts.append(Verdict(raw.partition, raw.offset, "rejected", reasons))
            continue
        identity = str(record[contract.event_id])
        at = micros_of(str(record[contract.event_time]))
        assert at is not None
        clock = clocks.get(raw.partition)
        if identity in kept and _within(contract.dedupe_horizon, kept[identity], raw.log_time):
            fate: Fate = "duplicate"
        else:
            kept[identity] = raw.log_time
            fate = "late" if clock is not None and at < clock - lateness else "accepted"
        if fate == "accepted":
            clocks[raw.partition] = at if clock is None else max(at, clock)
        verdicts.append(Verdict(raw.partition, raw.offset, fate))
    return Judgement(verdicts, clocks)


def examine(
    contract: Contract, value: bytes | None, log_time: datetime | None = None
) -> tuple[dict[str, object], frozenset[Reason]]:
    """The record (empty when it cannot be read) and every rule it breaks."""
    if not value:
        return {}, frozenset({("empty", "")})
    try:
        record = parse(value.decode("utf-8", errors="strict"))
    except UnicodeDecodeError:
        return {}, frozenset({("not_utf8", "")})
    except NotJson:
        return {}, frozenset({("not_json", "")})
    if not isinstance(record, dict):
        return {}, frozenset({("not_object", "")})
    reasons = set(_of_object(contract.fields, record, ""))
    identity = record.get(contract.event_id)
    if isinstance(identity, str) and any("\ud800" <= char <= "\udfff" for char in identity):
        reasons = {r for r in reasons if r[1] != contract.event_id} | {("bad_format", contract.event_id)}
    if log_time is not None:
        stamp = record.get(contract.event_time)
        at = micros_of(stamp) if isinstance(stamp, str) else None
        if at is not None and at > micros(log_time) + _length(contract.max_future_skew):
            reasons.add(("future", contract.event_time))
    return record, frozenset(reasons)


def _of_object(fields: tuple[Field, ...], value: dict[str, object], inside: str) -> Iterator[Reason]:
    for field in fields:
        path = f"{inside}{field.name}"
        if value.get(field.name) is not None:
            yield from _of_value(field, value[field.name], path)
        elif field.required:
            yield "missing", path


def _of_value(field: Field, value: object, path: str) -> Iterator[Reason]:
    kind, rules, element = field.type.kind, field.rules, field.type.element
    if kind == "object" and isinstance(value, dict):
        yield from _of_object(field.type.fields, value, f"{path}.")
    elif kind == "array" and isinstance(value, list):
        yield from _of_length(rules, len(value), path)
        for item in value if element else ():
            yield from _of_element(element, item, f"{path}[]")
    elif kind == "map" and isinstance(value, dict):
        yield from _of_length(rules, len(value), path)
        for item in value.values() if element else ():
            yield from _of_element(element, item, f"{path}{{}}")
    elif kind == "string" and isinstance(value, str):
        yield from _of_string(rules, value, path)
    elif kind == "timestamp" and isinstance(value, str):
        if micros_of(value) is None:
            yield "bad_format", path
    elif kind == "date" and isinstance(value, str):
        if not is_date(value):
            yield "bad_format", path
    elif kind == "boolean" and isinstance(value, bool):
        return
    elif isinstance(value, Number) and (exact := _exact(field, value)) is not None:
        yield from _of_number(rules, exact, path)
    else:
        yield "wrong_type", path


def _of_element(element: Field | None, item: object, path: str) -> Iterator[Reason]:
    assert element is not None
    if item is not None:
        yield from _of_value(element, item, path)
    elif element.required:
        yield "missing", path


def _exact(field: Field, value: Number) -> Decimal | None:
    """The number as the field's type holds it, or None when it does not."""
    if field.type.kind == "integer" and value.is_integer:
        return value.decimal() if -(2**63) <= int(value.literal) < 2**63 else None
    if field.type.kind == "number":
        double = float(value.literal)
        return None if double in (float("inf"), float("-inf")) else Decimal(repr(double))
    if field.type.kind == "decimal" and field.type.precision <= 15:
        nearest = float(value.literal)
        if abs(nearest) == float("inf"):
            return None
        written = Number(format(Decimal(repr(nearest)), "f"))
        return written.decimal() if written.fits(field.type.precision, field.type.scale) else None
    if field.type.kind == "decimal" and value.fits(field.type.precision, field.type.scale):
        return value.decimal() if value.digits_and_exponent()[0] else Decimal(0)
    return None


def _of_number(rules: Rules, value: Decimal, path: str) -> Iterator[Reason]:
    minimum, above = _limit(rules.minimum), _limit(rules.exclusive_minimum)
    maximum, below = _limit(rules.maximum), _limit(rules.exclusive_maximum)
    if (minimum is not None and value < minimum) or (above is not None and value <= above):
        yield "too_small", path
    if (maximum is not None and value > maximum) or (below is not None and value >= below):
        yield "too_large", path


def _of_string(rules: Rules, value: str, path: str) -> Iterator[Reason]:
    if rules.enum is not None and value not in rules.enum:
        yield "not_allowed", path
    if rules.pattern is not None and not ecma(rules.pattern).search(value):
        yield "no_match", path
    yield from _of_length(rules, len(value), path)


def _of_length(rules: Rules, length: int, path: str) -> Iterator[Reason]:
    if rules.min_length is not None and length < rules.min_length:
        yield "too_short", path
    if rules.max_length is not None and length > rules.max_length:
        yield "too_long", path


def _limit(limit: Scalar | None) -> Decimal | None:
    return None if limit is None else Decimal(str(limit))


def _length(span: timedelta) -> int:
    return span // timedelta(microseconds=1)


def _within(horizon: timedelta, first: datetime | None, again: datetime | None) -> bool:
    return first is None or again is None or again - first <= horizon


@cache
def ecma(pattern: str) -> re.Pattern[str]:
    """A JSON Schema pattern as Python's `re` must spell it."""
    spelled, in_class, escaped = [], False, False
    for char in pattern:
        outside = not in_class and not escaped
        if char == "$" and outside:
            spelled.append(r"\Z")
        elif char == "." and outside:
            spelled.append(r"[^\n\r\u2028\u2029]")
        else:
            spelled.append(char)
        if not escaped and char in "[]":
            in_class = char == "["
        escaped = char == "\\" and not escaped
    return re.compile("".join(spelled), re.ASCII)
