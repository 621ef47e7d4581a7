"""From a property's options to the rules that its values must satisfy."""

from __future__ import annotations

from decimal import Decimal

from open_data_contract_standard.model import SchemaProperty

from headrace.contracts.custom import Custom
from headrace.contracts.model import Rules, Scalar, Type
from headrace.contracts.patterns import pattern_fault
from headrace.contracts.problems import Place, Problem
from headrace.contracts.values import ordered

_LENGTHS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "map": ("minProperties", "maxProperties"),
}
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_USED: dict[str, tuple[str, ...]] = {
    **_LENGTHS,
    "string": (*_LENGTHS["string"], "pattern"),
    "object": ("required",),
    **dict.fromkeys(("integer", "number", "decimal", "date"), _LIMITS),
    "timestamp": (*_LIMITS, "timezone", "defaultTimezone"),
}
_INTEGER_FORMATS = {
    f"{sign}{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if sign == "i" else (0, 2**bits - 1)
    for sign in "iu"
    for bits in (8, 16, 32)
}
_TEXT_ONLY = "only strings can have an enum"


def read_rules(
    prop: SchemaProperty, type_: Type, place: Place, custom: dict[str, Custom], problems: list[Problem]
) -> Rules:
    options = prop.logicalTypeOptions or {}
    here = (*place, "logicalTypeOptions")
    _refuse_unchecked(options, type_, here, problems)
    limits = {
        name: _limit(options[name], type_, (*here, name), problems) for name in _LIMITS if name in options
    }
    low, high = _format_limits(options, type_)
    minimum, maximum = limits.get("minimum", low), limits.get("maximum", high)
    shortest, longest = (
        _length(options.get(name), (*here, name), problems) for name in _LENGTHS.get(type_.kind, ("", ""))
    )
    rules = Rules(
        enum=_enum(prop, type_, place, custom, problems),
        pattern=_pattern(prop, type_, place, problems),
        minimum=minimum,
        maximum=maximum,
        exclusive_minimum=limits.get("exclusiveMinimum"),
        exclusive_maximum=limits.get("exclusiveMaximum"),
        min_length=shortest,
        max_length=longest,
    )
    _refuse_impossible(rules, type_, here, problems)
    return rules


def _limit(value: object, type_: Type, place: Place, problems: list[Problem]) -> Scalar | None:
    limit = ordered(value, type_.kind)
    if limit is None:
        problems.append(Problem(place, f"'{value}' is not a {type_.kind}"))
        return None
    if not isinstance(limit, Decimal):
        return str(value)
    if type_.kind == "integer":
        if limit != limit.to_integral_value() or not -(2**63) <= limit < 2**63:
            problems.append(Problem(place, f"{value} is not a 64-bit integer"))
            return None
        return int(limit)
    return limit if type_.kind == "decimal" else float(limit)


def _length(value: object, place: Place, problems: list[Problem]) -> int | None:
    # The standard has no word on the options of a map, so its JSON Schema lets anything through.
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    problems.append(Problem(place, f"'{value}' is not a length"))
    return None


def _format_limits(options: dict[str, object], type_: Type) -> tuple[int | None, int | None]:
    if type_.kind != "integer":
        return (None, None)
    return _INTEGER_FORMATS.get(str(options.get("format")), (None, None))


def _refuse_unchecked(options: dict[str, object], type_: Type, place: Place, problems: list[Problem]) -> None:
    """A rule that nobody would check is worse than none: say so instead of ignoring it."""
    for name, value in options.items():
        fine = (
            name in _USED.get(type_.kind, ())
            or value is False
            or (
                type_.kind == "integer" and name == "format" and (value in _INTEGER_FORMATS or value == "i64")
            )
            or (type_.kind in ("number", "decimal") and name == "format" and value == "f64")
            or (type_.kind == "date" and name == "format" and value == "yyyy-MM-dd")
        )
        if name == "timezone" and value is False:
            problems.append(Problem((*place, name), "timestamps always carry a zone (RFC 3339)"))
        elif not fine:
            hint = "use a pattern" if type_.kind == "string" else "use minimum and maximum, or leave it out"
            if type_.kind in ("timestamp", "date"):
                hint = "timestamps are RFC 3339 with a zone, dates are yyyy-MM-dd: leave it out"
            problems.append(
                Problem((*place, name), f"'{value}' would not be checked on a {type_.kind}", hint)
            )


def _enum(
    prop: SchemaProperty, type_: Type, place: Place, custom: dict[str, Custom], problems: list[Problem]
) -> tuple[str, ...] | None:
    given: list[tuple[Place, object]] = []
    if prop.enum is not None:
        given.append(((*place, "enum"), [entry.value for entry in prop.enum]))
    if "enum" in custom:
        given.append((custom["enum"].place, custom["enum"].value))
    for index, check in enumerate(prop.quality or []):
        arguments = check.arguments or {}
        if (
            _rejects_each_invalid_value(check.metric or check.rule, check.mustBe)
            and "validValues" in arguments
        ):
            given.append(((*place, "quality", index, "arguments", "validValues"), arguments["validValues"]))
    if not given:
        return None
    if len(given) > 1:
        problems.append(Problem(given[1][0], "the allowed values are given twice", "keep one list"))
    where, values = given[0]
    if type_.kind != "string":
        problems.append(Problem(where, f"{_TEXT_ONLY}, not {type_.kind}", "use minimum and maximum"))
        return None
    if not isinstance(values, list) or not values:
        problems.append(Problem(where, "must be a list with at least one value"))
        return None
    for index, value in enumerate(values):
        if not isinstance(value, str):
            problems.append(
                Problem((*where, index), f"{value} is not a string", f'put it in quotes: "{value}"')
            )
        elif value in values[:index]:
            problems.append(Problem((*where, index), f"'{value}' is in the list twice"))
    return tuple(str(value) for value in values)


def _rejects_each_invalid_value(metric: str | None, must_be: object) -> bool:
    # A tolerance ("less than 5 percent") speaks of the whole stream; only "none at all" judges one event.
    return metric == "invalidValues" and must_be == 0 and not isinstance(must_be, bool)


def _pattern(prop: SchemaProperty, type_: Type, place: Place, problems: list[Problem]) -> str | None:
    pattern = (prop.logicalTypeOptions or {}).get("pattern")
    if type_.kind != "string" or not isinstance(pattern, str):
        return None
    fault = pattern_fault(pattern)
    if fault:
        problems.append(Problem((*place, "logicalTypeOptions", "pattern"), fault))
    return None if fault else pattern


def _refuse_impossible(rules: Rules, type_: Type, place: Place, problems: list[Problem]) -> None:
    lows = [ordered(v, type_.kind) for v in (rules.minimum, rules.exclusive_minimum) if v is not None]
    highs = [ordered(v, type_.kind) for v in (rules.maximum, rules.exclusive_maximum) if v is not None]
    pairs = [(low, high) for low in lows for high in highs if low is not None and high is not None]
    if any(low > high for low, high in pairs):  # type: ignore[operator]
        problems.append(Problem(place, "the minimum is above the maximum: no value can pass"))
    if rules.min_length is not None and rules.max_length is not None and rules.min_length > rules.max_length:
        problems.append(Problem(place, "the shortest length is above the longest: no value can pass"))
