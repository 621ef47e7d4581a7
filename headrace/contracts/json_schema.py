"""A contract as JSON Schema (draft 2020-12), for producers that check events before they send them."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from headrace.contracts.model import Contract, Field, Rules, Scalar, Type

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# `format` is only a remark to many validators; the pattern makes the 'T' and the zone binding.
_TIMESTAMP_PATTERN = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$"
)
_DATE_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_LENGTH_WORDS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "map": ("minProperties", "maxProperties"),
}
_NUMERIC = ("integer", "number", "decimal")


def json_schema(contract: Contract) -> dict[str, Any]:
    """The schema of one event as it enters the raw topic, before any mask."""
    return {
        "$schema": _DIALECT,
        "$id": f"urn:headrace:{contract.name}:{contract.version}",
        "title": contract.name,
        **({"description": contract.description} if contract.description else {}),
        **_object(contract.fields),
    }


def _object(fields: Iterable[Field]) -> dict[str, Any]:
    fields = tuple(fields)
    return {
        "type": "object",
        "properties": {field.name: _field(field) for field in fields},
        "required": [field.name for field in fields if field.required],
        "additionalProperties": True,
    }


def _field(field: Field) -> dict[str, Any]:
    schema = _type(field.type) | _rules(field.rules, field.type)
    notes = [field.description.rstrip("."), *_notes(field)]
    if any(notes):
        schema["description"] = ". ".join(note for note in notes if note) + "."
    if field.examples:
        schema["examples"] = [_plain(example) for example in field.examples]
    if not field.required:
        schema["type"] = [schema["type"], "null"]
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
    return schema


def _type(type_: Type) -> dict[str, Any]:
    match type_.kind:
        case "integer":
            return {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
        case "decimal":
            return {"type": "number"}
        case "timestamp":
            return {"type": "string", "format": "date-time", "pattern": _TIMESTAMP_PATTERN}
        case "date":
            return {"type": "string", "format": "date", "pattern": _DATE_PATTERN}
        case "object":
            return _object(type_.fields)
        case "array":
            return {"type": "array", "items": _field(type_.element) if type_.element else {}}
        case "map":
            return {"type": "object", "additionalProperties": _field(type_.element) if type_.element else {}}
        case kind:
            return {"type": kind}


def _rules(rules: Rules, type_: Type) -> dict[str, Any]:
    shortest, longest = _LENGTH_WORDS.get(type_.kind, ("", ""))
    words: dict[str, Any] = {
        "enum": list(rules.enum) if rules.enum is not None else None,
        "pattern": rules.pattern,
        shortest: rules.min_length,
        longest: rules.max_length,
    }
    if type_.kind in _NUMERIC:
        words |= {
            "minimum": rules.minimum,
            "maximum": rules.maximum,
            "exclusiveMinimum": rules.exclusive_minimum,
            "exclusiveMaximum": rules.exclusive_maximum,
        }
    return {word: _plain(value) for word, value in words.items() if word and value is not None}


def _notes(field: Field) -> Iterable[str]:
    """What JSON Schema has no keyword for."""
    if field.type.kind == "decimal":
        whole = field.type.precision - field.type.scale
        yield (
            f"decimal({field.type.precision},{field.type.scale}): at most {whole} digits before"
            f" the point and {field.type.scale} after it"
        )
    if field.type.kind in ("timestamp", "date"):
        limits: list[tuple[str, Scalar | None]] = [
            ("not before", field.rules.minimum),
            ("not after", field.rules.maximum),
            ("after", field.rules.exclusive_minimum),
            ("before", field.rules.exclusive_maximum),
        ]
        yield from (f"{word} {limit}" for word, limit in limits if limit is not None)


def _plain(value: object) -> object:
    """JSON has one kind of number; a whole decimal is written without a point."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
