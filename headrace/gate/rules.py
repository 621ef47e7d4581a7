"""A contract's rules as Spark columns: one boolean expression each, no UDF."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.contracts.model import Contract, Field, Scalar
from headrace.gate.patterns import java_pattern
from headrace.gate.reasons import Rule

RFC_3339 = r"^(?!0000)\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)\z"
ISO_DATE = r"^(?!0000)\d{4}-\d\d-\d\d\z"

FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799  # of the years 1 to 9999

# A decimal of up to this many digits survives a trip through a double, and a double parses much faster.
EXACT_DOUBLE_DIGITS = 15

Judge = Callable[[Column], Column]


def contract_rules(contract: Contract, event: Column) -> list[Rule]:
    """Every rule of the contract about a decoded event."""
    return [rule for field in contract.fields for rule in _field_rules(field, event[field.name], field.name)]


def timestamp_of(text: Column) -> Column:
    """The instant that an RFC 3339 text names, or null."""
    return text.try_cast("timestamp")


def _field_rules(field: Field, value: Column, path: str) -> list[Rule]:
    rules = [Rule("missing", path, value.isNull())] if field.required else []

    def add(code: str, broken: Column) -> None:
        rules.append(Rule(code, path, value.isNotNull() & broken))

    match field.type.kind:
        case "string":
            _add_text_rules(field, value, add)
        case "integer":
            _add_range_rules(field, value, add)
        case "number":
            add("wrong_type", ~_is_finite(value))
            _add_range_rules(field, value, add)
        case "decimal":
            add("wrong_type", ~_fits_decimal(field, value))
            _add_range_rules(field, value, add)
        case "timestamp":
            add("bad_format", ~value.rlike(RFC_3339) | ~_is_in_calendar(timestamp_of(value)))
            _add_instant_rules(field, value, "timestamp", add)
        case "date":
            add("bad_format", ~value.rlike(ISO_DATE) | value.try_cast("date").isNull())
            _add_instant_rules(field, value, "date", add)
        case "array" | "map":
            _add_size_rules(field, F.size(value), add)
    return rules + _inner_rules(field, value, path)


def _add_text_rules(field: Field, value: Column, add: Callable[[str, Column], None]) -> None:
    if field.rules.enum is not None:
        add("not_allowed", ~value.isin(*field.rules.enum))
    if field.rules.pattern is not None:
        add("no_match", ~value.rlike(java_pattern(field.rules.pattern)))
    if field.rules.min_length == 1:
        add("too_short", value == "")
    elif field.rules.min_length:
        add("too_short", F.char_length(value) < field.rules.min_length)
    if field.rules.max_length is not None:
        # A text within the limit in bytes is within it in characters, and its bytes need no counting.
        limit = field.rules.max_length
        add("too_long", (F.octet_length(value) > limit) & (F.char_length(value) > limit))


def _add_size_rules(field: Field, size: Column, add: Callable[[str, Column], None]) -> None:
    if field.rules.min_length:
        add("too_short", size < field.rules.min_length)
    if field.rules.max_length is not None:
        add("too_long", size > field.rules.max_length)


def _add_range_rules(field: Field, value: Column, add: Callable[[str, Column], None]) -> None:
    def limit(bound: Scalar) -> Column:
        if field.type.kind == "integer":
            return F.lit(bound)
        if _is_wide(field):
            return F.lit(bound).cast(_decimal_type(field))
        return F.lit(float(bound))

    number = _wide_decimal(field, value) if _is_wide(field) else value
    rules = field.rules
    if rules.minimum is not None:
        add("too_small", number < limit(rules.minimum))
    if rules.exclusive_minimum is not None:
        add("too_small", number <= limit(rules.exclusive_minimum))
    if rules.maximum is not None:
        add("too_large", number > limit(rules.maximum))
    if rules.exclusive_maximum is not None:
        add("too_large", number >= limit(rules.exclusive_maximum))


def _add_instant_rules(field: Field, value: Column, type_: str, add: Callable[[str, Column], None]) -> None:
    instant, rules = value.try_cast(type_), field.rules

    def beyond(bound: Scalar | None, code: str, compare: Callable[[Column, Column], Column]) -> None:
        if bound is not None:
            add(code, F.coalesce(compare(instant, F.lit(str(bound)).cast(type_)), F.lit(False)))

    beyond(rules.minimum, "too_small", lambda a, b: a < b)
    beyond(rules.exclusive_minimum, "too_small", lambda a, b: a <= b)
    beyond(rules.maximum, "too_large", lambda a, b: a > b)
    beyond(rules.exclusive_maximum, "too_large", lambda a, b: a >= b)


def _inner_rules(field: Field, value: Column, path: str) -> list[Rule]:
    """Rules about what is inside an object, an array or a map; an absent container has no inside."""
    if field.type.kind == "object":
        inner = [
            rule for f in field.type.fields for rule in _field_rules(f, value[f.name], f"{path}.{f.name}")
        ]
        return [Rule(r.code, r.field, value.isNotNull() & r.broken) for r in inner]
    element = field.type.element
    if element is None:
        return []
    inner_path = f"{path}[]" if field.type.kind == "array" else f"{path}{{}}"
    elements = value if field.type.kind == "array" else F.map_values(value)
    return [
        Rule(code, where, F.coalesce(F.exists(elements, broken), F.lit(False)))
        for code, where, broken in _element_rules(element, inner_path)
    ]


def _element_rules(element: Field, path: str) -> list[tuple[str, str, Judge]]:
    """The element's rules as functions of the element: lambdas need a column of their own each."""

    def rule(n: int) -> Judge:
        # Spark counts a lambda's parameters, so the number cannot be a default of one.
        return lambda x: _field_rules(element, x, path)[n].broken

    shapes = _field_rules(element, F.lit(None), path)
    return [(shape.code, shape.field, rule(n)) for n, shape in enumerate(shapes)]


def _is_in_calendar(instant: Column) -> Column:
    """Whether the instant is in the years 1 to 9999 of UTC: a zone can push it out, and few can follow."""
    middle, reach = (FIRST_SECOND + LAST_SECOND) / 2, (LAST_SECOND - FIRST_SECOND) / 2
    return F.coalesce(F.abs(F.unix_seconds(instant) - middle) <= reach, F.lit(False))


def _is_finite(value: Column) -> Column:
    return (value > float("-inf")) & (value < float("inf"))


def _is_wide(field: Field) -> bool:
    return field.type.kind == "decimal" and field.type.precision > EXACT_DOUBLE_DIGITS


def _decimal_type(field: Field) -> str:
    return f"decimal({field.type.precision},{field.type.scale})"


def _wide_decimal(field: Field, value: Column) -> Column:
    return F.try_variant_get(value, "$", _decimal_type(field))


def _fits_decimal(field: Field, value: Column) -> Column:
    """Whether the number has no more digits, before or after the point, than the contract gives it."""
    if _is_wide(field):
        exact = F.try_variant_get(value, "$", "decimal(38,18)")
        fits = F.schema_of_variant(value).rlike("^(BIGINT|DECIMAL)") & (exact == _wide_decimal(field, value))
        return F.coalesce(fits, F.lit(False))
    unit = float(10**field.type.scale)
    limit = float(10 ** (field.type.precision - field.type.scale))
    return (F.rint(value * unit) / unit == value) & (value < limit) & (value > -limit)
