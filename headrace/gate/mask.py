"""Hiding classified values, in Spark, before anything leaves the gate.

An accepted record of a contract with masks is written again from its decoded fields; a rejected one keeps
only the top-level fields that hold nothing classified, whatever their types are.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.contracts.model import Contract, Field, Mask
from headrace.gate.reasons import let


def has_masks(field: Field) -> bool:
    inner = (*field.type.fields, *([field.type.element] if field.type.element else []))
    return field.mask is not None or any(has_masks(f) for f in inner)


def is_masked(contract: Contract) -> bool:
    return any(has_masks(field) for field in contract.fields)


def plain_fields(contract: Contract) -> list[Field]:
    """The fields without others inside that may leave the gate, masked or not."""
    nested = ("object", "array", "map")
    return [field for field in contract.fields if not _dropped(field) and field.type.kind not in nested]


def masked_event(contract: Contract, event: Column, salt: str) -> Column:
    """The accepted event as JSON bytes, with every mask applied."""
    fields = [masked_value(f, event[f.name], salt).alias(f.name) for f in contract.fields if not _dropped(f)]
    return F.to_json(F.struct(*fields)).cast("binary")


def masked_reject(contract: Contract, value: Column) -> Column:
    """A rejected record without its classified fields, or null where it cannot be read at all."""
    hidden = [field.name for field in contract.fields if has_masks(field)]
    return let(value.cast("string"), lambda text: _without(text, hidden)).cast("binary")


def masked_key(contract: Contract, key: Column, event: Column, salt: str) -> Column:
    """The Kafka key: hidden in the same way as the field that it repeats."""
    mask = contract.field(contract.key).mask
    if mask is None:
        return key
    return _hide(mask, event[contract.key].cast("string"), salt).cast("binary")


def _without(text: Column, hidden: list[str]) -> Column:
    fields = F.from_json(text, "map<string,variant>", {"mode": "PERMISSIVE", "allowSingleQuotes": "false"})
    return F.to_json(F.map_filter(fields, lambda name, _: ~name.isin(*hidden)))


def _dropped(field: Field) -> bool:
    return field.mask is not None and field.mask.how == "drop"


def masked_value(field: Field, value: Column, salt: str) -> Column:
    """A field of a decoded event as it may leave the gate."""
    if field.mask is not None:
        return _hide(field.mask, value.cast("string"), salt)
    if not has_masks(field):
        return value
    if field.type.kind == "object":
        inner = [
            masked_value(f, value[f.name], salt).alias(f.name) for f in field.type.fields if not _dropped(f)
        ]
        return F.when(value.isNotNull(), F.struct(*inner) if inner else F.lit("{}"))
    element = field.type.element
    assert element is not None
    if field.type.kind == "array":
        return F.transform(value, lambda x: masked_value(element, x, salt))
    return F.transform_values(value, lambda _, x: masked_value(element, x, salt))


def _hide(mask: Mask, text: Column, salt: str) -> Column:
    match mask.how:
        case "hash":
            return F.sha2(F.concat(F.lit(salt), text), 256)
        case "truncate":
            return F.substring(text, 1, mask.keep)
        case "drop":
            return F.lit(None).cast("string")
