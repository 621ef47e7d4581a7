"""Differences between the fields of two contracts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.contracts.changes import Breaks, Change
from headrace.contracts.model import Field, Mask, Type
from headrace.contracts.rule_changes import rule_changes, span

_INT64_DIGITS = 19
_MASK_STRENGTH = {None: 0, "truncate": 1, "hash": 2, "drop": 3}


def fields_changes(old: Sequence[Field], new: Sequence[Field], parent: str = "") -> Iterator[Change]:
    """Changes of one object's fields. Their order carries no meaning."""
    before, after = {f.name: f for f in old}, {f.name: f for f in new}
    for name, field in before.items():
        if name in after:
            yield from field_changes(field, after[name], parent + name)
        else:
            why = "readers that select it find nothing"
            yield Change(parent + name, "field removed", why, "major", ("forward",))
    for name, field in after.items():
        if name in before:
            continue
        if field.required:
            why = "old events do not have it, and writers that do not send it yet are rejected"
            yield Change(parent + name, "required field added", why, "major", ("backward",))
        else:
            yield Change(parent + name, "optional field added", "old events read as null", "minor")


def field_changes(old: Field, new: Field, path: str) -> Iterator[Change]:
    if new.required and not old.required:
        why = "old events may not have it, and writers that leave it out are rejected"
        yield Change(path, "optional → required", why, "major", ("backward",))
    if old.required and not new.required:
        why = "old readers may meet a null they never had to expect: upgrade readers first"
        yield Change(path, "required → optional", why, "minor", ("forward",))
    yield from _type_changes(old, new, path)
    yield from _mask_changes(old.mask, new.mask, path)
    if old.classification != new.classification:
        what = f"classification {old.classification or 'none'} → {new.classification or 'none'}"
        yield Change(path, what, "operational: who may see it may change", "minor")
    if (old.description, old.examples) != (new.description, new.examples):
        yield Change(path, "description or examples changed", "documentation", "patch")


def _type_changes(old: Field, new: Field, path: str) -> Iterator[Change]:
    if not _same_shape(old.type, new.type):
        what = f"type {type_name(old.type)} → {type_name(new.type)}"
        if _is_wider(old, new.type):
            why = f"every old value fits; old readers may meet values that are no {type_name(old.type)}"
            if (old.type.kind, new.type.kind) == ("integer", "number"):
                why += "; beyond 2^53 a number is not exact"
            yield Change(path, what, why, "minor", ("forward",))
        else:
            yield Change(path, what, "old values do not all fit the new type", "major", _broken(old, new))
    if old.type.kind == new.type.kind or _is_wider(old, new.type):
        yield from rule_changes(old, new, path)
    if old.type.kind == new.type.kind == "object":
        yield from fields_changes(old.type.fields, new.type.fields, f"{path}.")
    if old.type.kind == new.type.kind and old.type.element and new.type.element:
        inside = "[]" if old.type.kind == "array" else "{}"
        yield from field_changes(old.type.element, new.type.element, path + inside)


def type_name(type_: Type) -> str:
    return f"decimal({type_.precision},{type_.scale})" if type_.kind == "decimal" else type_.kind


def _same_shape(old: Type, new: Type) -> bool:
    return (old.kind, old.precision, old.scale) == (new.kind, new.precision, new.scale)


def _broken(old: Field, new: Field) -> tuple[Breaks, ...]:
    return ("backward",) if _is_wider(new, old.type) else ("backward", "forward")


def _is_wider(old: Field, new: Type) -> bool:
    """Whether the new type holds every value that the old field could hold."""
    if new.kind == "number":
        return old.type.kind == "integer"
    if new.kind != "decimal":
        return False
    whole = new.precision - new.scale
    if old.type.kind == "decimal":
        return whole >= old.type.precision - old.type.scale and new.scale >= old.type.scale
    return old.type.kind == "integer" and whole >= _digits(old)


def _digits(integer: Field) -> int:
    """How many digits the integers of a field can have, by its own limits."""
    low, high = span(integer)
    if low is None or high is None:
        return _INT64_DIGITS
    return max(len(str(abs(int(low)))), len(str(abs(int(high)))))


def _mask_changes(old: Mask | None, new: Mask | None, path: str) -> Iterator[Change]:
    if old == new:
        return
    what = f"mask {mask_name(old)} → {mask_name(new)}"
    if _strength(new) < _strength(old):
        why = "values that were hidden from every output become visible"
        yield Change(path, what, why, "major", ("privacy",))
    else:
        why = "readers of this field get another value, or none"
        yield Change(path, what, why, "major", ("forward",))


def _strength(mask: Mask | None) -> tuple[int, int]:
    if mask is None:
        return (0, 0)
    return (_MASK_STRENGTH[mask.how], -mask.keep)


def mask_name(mask: Mask | None) -> str:
    if mask is None:
        return "none"
    return f"truncate:{mask.keep}" if mask.how == "truncate" else mask.how
