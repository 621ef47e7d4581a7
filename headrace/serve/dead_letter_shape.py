"""A dead letter as JSON, without what the caller may not see.

A broken record may hold a classified value anywhere. So, without the role, nothing is shown that the contract
does not declare as harmless: other fields, values of another type, headers of producers and keys are hidden.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from headrace.contracts.model import Contract, Field
from headrace.log.tail import TailRecord
from headrace.serve.access import is_classified_field

HIDDEN = "(hidden)"
PRODUCER = "producer"
OWN = "headrace-"


def shown(record: TailRecord, contract: Contract, *, everything: bool) -> dict[str, Any]:
    """`everything` is for those whose role may read the stream."""
    value, encoding = _value(record, contract, everything)
    return {
        "source": contract.name,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "at": _time(record.log_time),
        "reasons": reasons_of(record),
        "contract_version": contract_version(record),
        "producer": producer_of(record, contract, everything=everything),
        "origin": _origin(record),
        "key": _text(record.key) if everything else (None if record.key is None else HIDDEN),
        "headers": _headers(record, everything),
        "value": value,
        "encoding": encoding,
        "size": record.size,
        "truncated": record.value is None and record.size > 0,
        "masked": not everything,
    }


def reasons_of(record: TailRecord) -> list[dict[str, str]]:
    try:
        given = orjson.loads(record.header("headrace-reasons") or b"[]")
        return [{"code": str(r["code"]), "field": str(r.get("field") or "")} for r in given]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []


def contract_version(record: TailRecord) -> str | None:
    """Of the contract that judged the record."""
    name, _, version = _text(record.header("headrace-contract") or b"").rpartition(":")
    return version if name else None


def producer_of(record: TailRecord, contract: Contract, *, everything: bool) -> str | None:
    """Who sent it: the header `producer`, or a field of that name if the contract declares one."""
    header = record.header(PRODUCER)
    if header is not None and everything:
        return _text(header)[:200]
    declared = next((f for f in contract.fields if f.name == PRODUCER), None)
    if declared is None or (is_classified_field(declared) and not everything):
        return None
    body = _parsed(record.value)
    name = body.get(PRODUCER) if isinstance(body, dict) else None
    return name[:200] if isinstance(name, str) else None


def _value(record: TailRecord, contract: Contract, everything: bool) -> tuple[Any, str | None]:
    if record.value is None:
        return None, None
    body = _parsed(record.value)
    if isinstance(body, dict):
        return (body if everything else _harmless(body, contract.fields)), "json"
    if not everything:
        return HIDDEN, None
    try:
        return record.value.decode(), "text"
    except UnicodeDecodeError:
        return record.value.decode(errors="backslashreplace"), "bytes"


def _parsed(value: bytes | None) -> Any:
    """The JSON in it, if it can be written again: what is nested too deeply cannot."""
    try:
        body = orjson.loads(value or b"")
        orjson.dumps(body)
    except (ValueError, TypeError):
        return None
    return body


def _harmless(body: dict[str, Any], fields: tuple[Field, ...]) -> dict[str, Any]:
    declared = {field.name: field for field in fields}
    return {
        name if name in declared else HIDDEN: _harmless_value(value, declared.get(name))
        for name, value in body.items()
    }


def _harmless_value(value: Any, field: Field | None) -> Any:
    if field is None or is_classified_field(field):
        return HIDDEN
    kind = field.type.kind
    if kind == "object" and isinstance(value, dict):
        return _harmless(value, field.type.fields)
    if kind == "array" and isinstance(value, list):
        return [_harmless_value(item, field.type.element) for item in value]
    if kind == "map" and isinstance(value, dict):
        return {name: _harmless_value(item, field.type.element) for name, item in value.items()}
    if kind in ("object", "array", "map") or isinstance(value, dict | list):
        return HIDDEN
    return value


def _headers(record: TailRecord, everything: bool) -> dict[str, str | None]:
    return {
        name[:200]: None if text is None else _text(text)[:2000]
        for name, text in record.headers[:100]
        if everything or name.startswith(OWN)
    }


def _origin(record: TailRecord) -> dict[str, Any] | None:
    topic, *numbers = _text(record.header("headrace-source") or b"").split("/")
    if len(numbers) != 3 or not all(n.isdecimal() and len(n) < 19 for n in numbers):
        return None
    partition, offset, log_time = map(int, numbers)
    return {"topic": topic, "partition": partition, "offset": offset, "log_time": _time(log_time)}


def _time(millis: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(millis / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="backslashreplace")
