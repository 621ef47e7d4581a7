"""Valid JSON fragments for the fields of a contract, drawn from a seeded source."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from headrace.contracts.model import Field, Rules

try:
    from re import _parser as regex_parser  # type: ignore[attr-defined]
except ImportError:  # pragma: no cover
    import sre_parse as regex_parser

_PRINTABLE = string.ascii_letters + string.digits + " _-./"
_WIDE = "абвўқғҳәөұіңё漢字😀éß"
_CATEGORIES = {
    "CATEGORY_DIGIT": string.digits,
    "CATEGORY_WORD": string.ascii_letters + string.digits + "_",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_DIGIT": string.ascii_letters,
    "CATEGORY_NOT_WORD": "-./ ",
    "CATEGORY_NOT_SPACE": string.ascii_letters,
}
_MOST_REPEATS = 8


def fragment(field: Field, rng: Random, now: datetime) -> str:
    """A JSON value that the field accepts."""
    kind, rules = field.type.kind, field.rules
    if kind == "object":
        return members(field.type.fields, rng, now)
    if kind in ("array", "map"):
        assert field.type.element is not None
        values = [fragment(field.type.element, rng, now) for _ in range(_size(rules, rng, 3))]
        if kind == "array":
            return f"[{','.join(values)}]"
        return "{" + ",".join(f'"k{number}":{value}' for number, value in enumerate(values)) + "}"
    if kind == "boolean":
        return rng.choice(["true", "false"])
    if kind == "timestamp":
        return f'"{moment(rng, now - timedelta(seconds=rng.random() * 3600))}"'
    if kind == "date":
        return f'"{(now - timedelta(days=rng.randrange(3000))).date().isoformat()}"'
    if kind == "string":
        return json.dumps(text(rules, rng), ensure_ascii=rng.random() < 0.5)
    return number(field, rng)


def members(fields: tuple[Field, ...], rng: Random, now: datetime) -> str:
    """A JSON object; optional fields are there, null or absent."""
    parts = []
    for field in fields:
        luck = rng.random()
        if field.required or luck < 0.8:
            parts.append(f"{json.dumps(field.name)}:{fragment(field, rng, now)}")
        elif luck < 0.9:
            parts.append(f"{json.dumps(field.name)}:null")
    return "{" + ",".join(parts) + "}"


def moment(rng: Random, at: datetime) -> str:
    """RFC 3339, in one of the ways it may be written."""
    at = at.astimezone(UTC)
    style = rng.randrange(4)
    if style == 0:
        return at.strftime("%Y-%m-%dT%H:%M:%SZ")
    if style == 1:
        return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
    if style == 2:
        digits = f"{at.microsecond:06d}{rng.randrange(1000):03d}"[: rng.randrange(1, 10)]
        return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{digits}Z"
    hours = rng.choice([5, 6, -3, 14])
    return (at + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S") + f"{hours:+03d}:00"


def number(field: Field, rng: Random) -> str:
    kind, rules = field.type.kind, field.rules
    low = _first(rules.minimum, rules.exclusive_minimum, Decimal(0))
    scale = {"integer": 0, "number": 3}.get(kind, field.type.scale)
    room = Decimal(10) ** (field.type.precision - scale) - 1 if kind == "decimal" else Decimal(10**6)
    high = _first(rules.maximum, rules.exclusive_maximum, low + room if kind != "decimal" else room)
    step = Decimal(1).scaleb(-scale)
    first = int(low / step) + (0 if rules.exclusive_minimum is None else 1)
    last = int(high / step) - (0 if rules.exclusive_maximum is None else 1)
    value = rng.randint(first, max(first, last)) * step
    if kind == "number" and rng.random() < 0.3:
        return f"{value:E}"
    return f"{value:f}"


def text(rules: Rules, rng: Random) -> str:
    if rules.enum:
        return rng.choice(rules.enum)
    if rules.pattern is not None:
        return matching(rules.pattern)(rng)
    alphabet = _PRINTABLE if rng.random() < 0.8 else _WIDE
    return "".join(rng.choices(alphabet, k=_size(rules, rng, 20)))


_Sampler = Callable[[Random], str]
_samplers: dict[str, _Sampler] = {}


def matching(pattern: str) -> _Sampler:
    """A source of texts in which the pattern is found."""
    if pattern not in _samplers:
        _samplers[pattern] = _sequence(regex_parser.parse(pattern, re.ASCII))
    return _samplers[pattern]


def _sequence(parsed: Any) -> _Sampler:
    parts = [_node(str(op), argument) for op, argument in parsed]
    return parts[0] if len(parts) == 1 else lambda rng: "".join(part(rng) for part in parts)


def _node(op: str, argument: Any) -> _Sampler:
    if op == "LITERAL":
        return lambda rng: chr(argument)
    if op == "IN":
        letters = _letters(argument)
        return lambda rng: rng.choice(letters)
    if op in ("ANY", "NOT_LITERAL"):
        letters = [c for c in _PRINTABLE if op == "ANY" or ord(c) != argument]
        return lambda rng: rng.choice(letters)
    if op in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, most, inner = int(argument[0]), int(argument[1]), argument[2]
        most = min(most, least + _MOST_REPEATS)
        if len(inner) == 1 and str(inner[0][0]) == "IN":
            letters = _letters(inner[0][1])
            return lambda rng: "".join(rng.choices(letters, k=rng.randint(least, most)))
        one = _sequence(inner)
        return lambda rng: "".join(one(rng) for _ in range(rng.randint(least, most)))
    if op == "SUBPATTERN":
        return _sequence(argument[3])
    if op == "BRANCH":
        branches = [_sequence(branch) for branch in argument[1]]
        return lambda rng: rng.choice(branches)(rng)
    if op == "AT":
        return lambda rng: ""
    raise ValueError(f"no sample text for a pattern with {op}")


def _letters(members: Any) -> list[str]:
    negated = str(members[0][0]) == "NEGATE"
    letters: set[str] = set()
    for op, argument in members[1:] if negated else members:
        if str(op) == "LITERAL":
            letters.add(chr(argument))
        elif str(op) == "RANGE":
            letters.update(chr(code) for code in range(argument[0], argument[1] + 1))
        else:
            letters.update(_CATEGORIES[str(argument)])
    return sorted(set(_PRINTABLE) - letters if negated else letters)


def _size(rules: Rules, rng: Random, most: int) -> int:
    low = rules.min_length or 0
    high = rules.max_length if rules.max_length is not None else max(low, most)
    return rng.randint(low, max(low, min(high, low + most)))


def _first(*limits: object) -> Decimal:
    return next(Decimal(str(limit)) for limit in limits if limit is not None)
