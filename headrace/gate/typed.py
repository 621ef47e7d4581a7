"""Fields of a decoded event in the types of the contract, for what is derived from the stream."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.contracts.model import Contract, Field
from headrace.gate.mask import masked_value
from headrace.gate.rules import EXACT_DOUBLE_DIGITS


def typed_fields(contract: Contract, names: tuple[str, ...], event: Column, salt: str) -> Column:
    """A struct of the named fields, masked as in the validated topic. A rejected event may hold anything."""
    fields = [contract.field(name) for name in names]
    return F.struct(*[_typed(f, event[f.name], salt).alias(f.name) for f in fields])


def _typed(field: Field, value: Column, salt: str) -> Column:
    if field.mask is not None:
        return masked_value(field, value, salt)
    match field.type.kind:
        case "timestamp" | "date" as kind:
            return value.try_cast(kind)
        case "decimal":
            type_ = f"decimal({field.type.precision},{field.type.scale})"
            if field.type.precision > EXACT_DOUBLE_DIGITS:
                return F.try_variant_get(value, "$", type_)
            return value.try_cast(type_)
        case _:
            return value
