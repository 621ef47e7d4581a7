"""Is this accepted record really valid? A second opinion, simpler than the oracle: only yes or no."""

from __future__ import annotations

import json
import re
import sys
from datetime import date, datetime
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import cast

from headrace.contracts.model import Contract, Field

_OFFSET = re.compile(r"\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-](0\d|1[0-7]):[0-5]\d|[+-]18:00)$")
_WIDE = Context(prec=2000, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])


def violations(contract: Contract, value: bytes) -> list[str]:
    """What is wrong with a record that was let through; an empty list when nothing is."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 5000)
    try:
        record = json.loads(value.decode(), parse_float=_decimal, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return [f"not JSON: {error}"]
    finally:
        sys.setrecursionlimit(limit)
    if not isinstance(record, dict):
        return ["not an object"]
    return _in_object(contract.fields, record, "")


def _in_object(fields: tuple[Field, ...], record: dict[str, object], inside: str) -> list[str]:
    found = []
    for field in fields:
        value = record.get(field.name)
        if value is not None:
            found += _in_value(field, value, inside + field.name)
        elif field.required:
            found.append(f"{inside}{field.name} is required")
    return found


def _in_value(field: Field, value: object, path: str) -> list[str]:
    if not _has_type(field, value):
        return [f"{path} is not a {field.type.kind}"]
    found = [f"{path} breaks its {rule}" for rule in _broken_rules(field, value)]
    if field.type.kind == "object":
        found += _in_object(field.type.fields, cast("dict[str, object]", value), f"{path}.")
    elif field.type.element is not None:
        items = value.values() if isinstance(value, dict) else cast("list[object]", value)
        for item in items:
            if item is not None:
                found += _in_value(field.type.element, item, f"{path}[]")
            elif field.type.element.required:
                found.append(f"{path} holds a null")
    return found


def _has_type(field: Field, value: object) -> bool:
    kind = field.type.kind
    if kind in ("object", "map"):
        return isinstance(value, dict)
    if kind == "array":
        return isinstance(value, list)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in ("string", "timestamp", "date"):
        return isinstance(value, str) and (kind == "string" or _is_moment(kind, value))
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return False
    if kind == "integer":
        return isinstance(value, int) and -(2**63) <= value < 2**63
    if kind == "number":
        return abs(float(str(value))) != float("inf")
    if field.type.precision <= 15:
        value = Decimal(repr(float(str(value))))
    if Decimal(value).copy_abs() >= 10 ** (field.type.precision - field.type.scale):
        return False
    shifted = _WIDE.scaleb(Decimal(value), field.type.scale)
    return shifted == shifted.to_integral_value(context=_WIDE)


def _is_moment(kind: str, text: str) -> bool:
    try:
        if kind == "date":
            return date.fromisoformat(text).isoformat() == text
        datetime.fromisoformat(text[:19] + text[19:].lstrip(".0123456789").replace("Z", "+00:00"))
    except ValueError:
        return False
    return text[4:11:3] == "--T" and _OFFSET.search(text) is not None


def _broken_rules(field: Field, value: object) -> list[str]:
    rules, broken = field.rules, []
    if isinstance(value, str):
        if rules.enum is not None and value not in rules.enum:
            broken.append("enum")
        if rules.pattern is not None and not re.search(rules.pattern.replace("$", r"\Z"), value):
            broken.append("pattern")
    if isinstance(value, str | list | dict):
        most = len(value) if rules.max_length is None else rules.max_length
        if not (rules.min_length or 0) <= len(value) <= most:
            broken.append("length")
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        for limit, worst in ((rules.minimum, -1), (rules.maximum, 1)):
            if limit is not None and (Decimal(value) - Decimal(str(limit))) * worst > 0:
                broken.append(f"limit {limit}")
        for limit, worst in ((rules.exclusive_minimum, -1), (rules.exclusive_maximum, 1)):
            if limit is not None and (Decimal(value) - Decimal(str(limit))) * worst >= 0:
                broken.append(f"exclusive limit {limit}")
    return broken


def _decimal(literal: str) -> Decimal:
    try:
        return Decimal(literal)
    except InvalidOperation:  # an exponent beyond what Decimal holds
        digits = literal.lower().partition("e")[0].strip("-0.")
        return Decimal("Infinity") if digits else Decimal(0)


def _refuse(literal: str) -> object:
    raise ValueError(literal)
