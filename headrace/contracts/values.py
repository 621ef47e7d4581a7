"""Whether a plain value satisfies a field: for the examples and limits that a contract gives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal

from headrace.contracts.model import Field, Rules, Type

_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-5][0-9])"
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INT64 = range(-(2**63), 2**63)

Ordered = Decimal | datetime | date


def faults(value: object, field: Field) -> Iterator[str]:
    """Every reason why the value does not belong in the field."""
    if value is None:
        if field.required:
            yield "null in a required field"
        return
    wrong = _type_fault(value, field.type)
    if wrong:
        yield wrong
        return
    yield from _rule_faults(value, field.type, field.rules)
    yield from _inner_faults(value, field.type)


def ordered(value: object, kind: str) -> Ordered | None:
    """The value in a form that can be compared, or None when the type has no order or does not fit."""
    if kind in ("integer", "number", "decimal"):
        number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        return Decimal(str(value)) if number else None
    try:
        if kind == "timestamp" and isinstance(value, str) and _TIMESTAMP.fullmatch(value):
            return datetime.fromisoformat(value).astimezone(UTC)
        if kind == "date" and isinstance(value, str) and _DATE.fullmatch(value):
            return date.fromisoformat(value)
    except (ValueError, OverflowError):
        pass  # 30 February looks like a date and is none
    return None


def _type_fault(value: object, type_: Type) -> str | None:
    match type_.kind:
        case "string":
            fits = isinstance(value, str)
        case "boolean":
            fits = isinstance(value, bool)
        case "array":
            fits = isinstance(value, list)
        case "object" | "map":
            fits = isinstance(value, dict)
        case "integer":
            fits = isinstance(value, int) and not isinstance(value, bool) and value in _INT64
        case kind:
            fits = ordered(value, kind) is not None
    if not fits:
        return f"{_said(value)} is not {_needed(type_)}"
    if type_.kind == "decimal":
        return _decimal_fault(Decimal(str(value)), type_)
    return None


def _decimal_fault(value: Decimal, type_: Type) -> str | None:
    exponent = int(value.normalize().as_tuple().exponent)
    if -exponent > type_.scale or (value and value.adjusted() >= type_.precision - type_.scale):
        return f"{value} does not fit decimal({type_.precision},{type_.scale})"
    return None


def _rule_faults(value: object, type_: Type, rules: Rules) -> Iterator[str]:
    if isinstance(value, str):
        if rules.enum is not None and value not in rules.enum:
            yield f"'{value}' is not one of {', '.join(rules.enum)}"
        if rules.pattern is not None and not re.search(rules.pattern, value, re.ASCII):
            yield f"'{value}' does not match the pattern {rules.pattern}"
    if isinstance(value, str | list | dict) and type_.kind not in ("timestamp", "date"):
        if rules.min_length is not None and len(value) < rules.min_length:
            yield f"{_said(value)} is shorter than {rules.min_length}"
        if rules.max_length is not None and len(value) > rules.max_length:
            yield f"{_said(value)} is longer than {rules.max_length}"
    here = ordered(value, type_.kind)
    if here is not None:
        yield from _range_faults(here, value, type_.kind, rules)


def _range_faults(here: Ordered, value: object, kind: str, rules: Rules) -> Iterator[str]:
    def limit(bound: object) -> Ordered | None:
        return None if bound is None else ordered(bound, kind)

    low, high = limit(rules.minimum), limit(rules.maximum)
    above, below = limit(rules.exclusive_minimum), limit(rules.exclusive_maximum)
    if low is not None and here < low:  # type: ignore[operator]
        yield f"{value} is below the minimum {rules.minimum}"
    if high is not None and here > high:  # type: ignore[operator]
        yield f"{value} is above the maximum {rules.maximum}"
    if above is not None and here <= above:  # type: ignore[operator]
        yield f"{value} is not above {rules.exclusive_minimum}"
    if below is not None and here >= below:  # type: ignore[operator]
        yield f"{value} is not below {rules.exclusive_maximum}"


def _inner_faults(value: object, type_: Type) -> Iterator[str]:
    if isinstance(value, list) and type_.element:
        for index, item in enumerate(value):
            yield from (f"[{index}]: {fault}" for fault in faults(item, type_.element))
    elif isinstance(value, dict) and type_.kind == "map" and type_.element:
        for key, item in value.items():
            yield from (f"{key}: {fault}" for fault in faults(item, type_.element))
    elif isinstance(value, dict):
        for field in type_.fields:
            yield from (f"{field.name}: {fault}" for fault in faults(value.get(field.name), field))


def _needed(type_: Type) -> str:
    wanted = {
        "timestamp": "a timestamp like 2026-03-01T09:00:00Z (with 'T' and a zone)",
        "date": "a date like 2026-03-01",
        "integer": "a 64-bit integer",
        "decimal": f"a number that fits decimal({type_.precision},{type_.scale})",
        "array": "a list",
        "object": "an object",
    }
    return wanted.get(type_.kind, f"a {type_.kind}")


def _said(value: object) -> str:
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
