"""The standard's own checks: its JSON Schema finds what is wrong, its model carries what is right."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import cast

from jsonschema import Draft201909Validator
from jsonschema.exceptions import ValidationError
from open_data_contract_standard.model import (
    DataQuality,
    OpenDataContractStandard,
    SchemaObject,
    SchemaProperty,
)
from pydantic import BaseModel
from pydantic import ValidationError as ModelError

from headrace.contracts.custom import OF_CONTRACT, OF_FIELD
from headrace.contracts.problems import Place, Problem, did_you_mean, nearest
from headrace.contracts.yaml_source import YamlSource

_MODEL_OF: dict[str, type[BaseModel]] = {
    "": OpenDataContractStandard,
    "schema": SchemaObject,
    "quality": DataQuality,
}
_QUOTED = re.compile(r"'([^']*)'")
_MISPLACED = "has no meaning for this type"


def read_odcs(source: YamlSource) -> tuple[OpenDataContractStandard | None, list[Problem]]:
    """The contract in the standard's model, without the parts that break the standard, and what broke it."""
    untyped = list(_without_type(source.data, ()))
    problems = [
        Problem((*place, "logicalType"), "is missing", "every field needs a type, like `logicalType: string`")
        for place in untyped
    ]
    # Without a type every conditional of the JSON Schema applies at once, and its findings are noise.
    found = [
        problem
        for problem in _violations(source.data)
        if not any(problem.place[: len(place)] == place for place in untyped)
    ]
    found = [problem for problem in found if not _is_knock_on(problem, found)]
    problems += found
    usable = copy.deepcopy(source.data)
    for problem in found:
        _remove(usable, problem.place)
    try:
        return OpenDataContractStandard.model_validate(usable), problems
    except ModelError as error:
        faults = [Problem(_place(fault["loc"]), fault["msg"]) for fault in error.errors()]
        return None, problems + [p for p in faults if not is_covered(p, problems)]


def is_covered(problem: Problem, known: Iterable[Problem]) -> bool:
    """Whether a known problem lies on the same branch, so that this one is probably its consequence."""
    return any(all(a == b for a, b in zip(problem.place, k.place, strict=False)) for k in known if k.place)


@cache
def _validator() -> Draft201909Validator:
    schema = files("open_data_contract_standard").joinpath("schema.json").read_text(encoding="utf-8")
    return Draft201909Validator(json.loads(schema))


def _violations(data: dict[str, object]) -> list[Problem]:
    return [problem for error in _validator().iter_errors(data) for problem in _problems_of(error)]


def _problems_of(error: ValidationError) -> Iterator[Problem]:
    place: Place = tuple(error.absolute_path)
    if error.validator in ("additionalProperties", "unevaluatedProperties"):
        names = _known_names(place, error)
        unknown = [key for key in cast(dict[str, object], error.instance) if key not in names]
        for key in unknown:
            ours = nearest(key, [*OF_CONTRACT, *OF_FIELD], at_least=0.85)
            hint = f"'{ours}' goes into customProperties" if ours else did_you_mean(key, names)
            yield Problem((*place, key), "the standard has no such key here", hint)
        for key in [] if unknown else _QUOTED.findall(error.message):
            yield Problem((*place, key), _MISPLACED)
    elif error.validator == "required":
        key = _QUOTED.findall(error.message)[-1]
        yield Problem((*place, key), "is missing")
    elif error.validator == "enum":
        allowed = [str(value) for value in cast(list[object], error.validator_value)]
        yield Problem(
            place,
            f"{_text(error.instance)} is not one of {', '.join(allowed)}",
            did_you_mean(str(error.instance), allowed),
        )
    elif error.validator == "type":
        yield Problem(
            place,
            f"{_text(error.instance)} is not {_article(cast(str, error.validator_value))}",
            _type_hint(error),
        )
    elif error.context:
        yield from _problems_of(max(error.context, key=lambda inner: len(inner.absolute_path)))
    else:
        yield Problem(place, error.message.replace("Decimal(", "").replace("')", "'"))


def _is_knock_on(problem: Problem, found: list[Problem]) -> bool:
    """A fault anywhere in a group makes the schema call its sound keys misplaced as well."""
    group = problem.place[:-1]
    return problem.what == _MISPLACED and any(
        other.what != _MISPLACED and other.place[: len(group)] == group for other in found
    )


def _without_type(node: object, place: Place) -> Iterator[Place]:
    if isinstance(node, list):
        for index, item in enumerate(node):
            yield from _without_type(item, (*place, index))
    elif isinstance(node, dict):
        if _is_property(place) and "logicalType" not in node:
            yield place
        for key in ("schema", "properties", "items", "map", "key", "value"):
            if key in node:
                yield from _without_type(node[key], (*place, key))


def _is_property(place: Place) -> bool:
    return len(place) > 2 and (
        place[-2] == "properties"
        or place[-1] == "items"
        or (place[-2] == "map" and place[-1] in ("key", "value"))
    )


def _known_names(place: Place, error: ValidationError) -> list[str]:
    if error.validator == "additionalProperties" and isinstance(error.schema, dict):
        return list(error.schema.get("properties", {}))
    container = next((step for step in reversed(place) if isinstance(step, str)), "")
    model = _MODEL_OF.get(container, SchemaProperty)
    return [field.alias or name for name, field in model.model_fields.items()]


def _remove(data: object, place: Place) -> None:
    # An item of a list cannot be taken out without renumbering the others: its whole list goes.
    while place and isinstance(place[-1], int):
        place = place[:-1]
    for step in place[:-1]:
        try:
            data = data[step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return
    if place and isinstance(data, dict):
        data.pop(place[-1], None)


def _place(location: tuple[int | str, ...]) -> Place:
    return tuple(step for step in location if isinstance(step, int) or step[:1].islower())


def _text(value: object) -> str:
    if value is None:
        return "an empty value"
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "a group of keys"
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}'" if isinstance(value, str) else str(value)


def _article(kinds: str | list[str]) -> str:
    names = {"object": "a group of keys", "array": "a list", "integer": "an integer"}
    listed = [kinds] if isinstance(kinds, str) else kinds
    return " or ".join(names.get(kind, f"a {kind}") for kind in listed)


def _type_hint(error: ValidationError) -> str:
    scalar = not isinstance(error.instance, dict | list) and error.instance is not None
    return f'put it in quotes: "{error.instance}"' if error.validator_value == "string" and scalar else ""
