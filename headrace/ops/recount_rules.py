"""Whether a raw record keeps its contract, in plain Python: bytes in, event or nothing out."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import NoReturn

from headrace.contracts.model import Contract, Field
from headrace.contracts.values import faults, ordered

MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_NUMBER = 1000
_WIDEST_ZONE = timedelta(hours=18)
# A text that is escaped or in a set stays as it is; a bare `$` or `.` does not mean the same everywhere.
_SPECIAL = re.compile(r"(\\.|\[(?:\\.|[^\]])*\])|[$.]")
_SPELLED = {"$": r"\Z", ".": r"[^\n\r\u2028\u2029]"}
_BEYOND = object()  # a number that no double holds belongs in no field


@dataclass(frozen=True)
class Sound:
    """A record that keeps the contract.

    Where a name occurs twice in it, JSON leaves open which value counts: the last one does here, and the gate
    may reject for either.
    """

    event_id: str
    at: int  # event time in microseconds
    names_twice: bool = False


def examine(contract: Contract, value: bytes | None, log_time: int) -> Sound | None:
    """The event of a record, or None where the record breaks a rule of the contract."""
    names_twice = False

    def members(pairs: list[tuple[str, object]]) -> dict[str, object]:
        nonlocal names_twice
        found = dict(pairs)
        names_twice = names_twice or len(found) < len(pairs)
        return found

    try:
        record = json.loads(
            (value or b"").decode(),
            object_pairs_hook=members,
            parse_int=_integer,
            parse_float=_fraction,
            parse_constant=_refuse,
        )
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    if any(True for field in contract.fields for _ in faults(record.get(field.name), field)):
        return None
    event_id, text = record[contract.event_id], record[contract.event_time]
    zone = datetime.fromisoformat(text).utcoffset()
    if zone is None or abs(zone) > _WIDEST_ZONE or not _is_text(event_id):
        return None
    moment = ordered(text, "timestamp")
    assert isinstance(moment, datetime)
    at = (moment - _EPOCH) // MICROSECOND
    if at > log_time * 1000 + contract.max_future_skew // MICROSECOND:
        return None
    return Sound(event_id, at, names_twice)


def python_rules(contract: Contract) -> Contract:
    """The contract with patterns that mean in Python what they mean in JSON Schema."""
    return replace(contract, fields=tuple(_with_python_pattern(field) for field in contract.fields))


def _with_python_pattern(field: Field) -> Field:
    kind, pattern = field.type, field.rules.pattern
    inner = replace(
        kind,
        fields=tuple(_with_python_pattern(f) for f in kind.fields),
        element=_with_python_pattern(kind.element) if kind.element else None,
    )
    spelled = None if pattern is None else _SPECIAL.sub(_spelled, pattern)
    return replace(field, type=inner, rules=replace(field.rules, pattern=spelled))


def _spelled(found: re.Match[str]) -> str:
    return found[1] or _SPELLED[found[0]]


def _integer(literal: str) -> object:
    return int(literal) if _is_short(literal) else _refuse(literal)


def _fraction(literal: str) -> object:
    if not _is_short(literal):
        _refuse(literal)
    double = float(literal)
    if double == 0:  # also what is too small for a double, and for Decimal
        return Decimal(0)
    return Decimal(literal) if abs(double) < float("inf") else _BEYOND


def _is_short(literal: str) -> bool:
    return len(literal) <= _LONGEST_NUMBER or sum(map(str.isdigit, literal)) <= _LONGEST_NUMBER


def _is_text(event_id: str) -> bool:
    """False where the id holds half a character (an unpaired surrogate)."""
    try:
        event_id.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not JSON")
