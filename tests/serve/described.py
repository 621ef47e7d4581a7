"""Looks at the OpenAPI document: what in it has no example, and what of an answer it does not describe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


class Document:
    def __init__(self, document: Json) -> None:
        self.paths: Json = document["paths"]
        self.schemas: Json = document["components"]["schemas"]

    def without_example(self) -> Iterator[str]:
        """Fields of answers, bodies and parameters that nobody could picture."""
        for name, schema in self.schemas.items():
            if not _own_examples(schema):
                yield from (
                    f"{name}.{field}"
                    for field, inner in schema.get("properties", {}).items()
                    if not self._pictured(inner)
                )
        for path, methods in self.paths.items():
            for told in methods.values():
                for parameter in told.get("parameters", []):
                    if not (_own_examples(parameter) or self._pictured(parameter["schema"])):
                        yield f"{path}: {parameter['name']}"
                for status, answer in told["responses"].items():
                    for kind, body in answer.get("content", {}).items():
                        if not self._pictured(body.get("schema", {})):
                            yield f"{path}: {status} {kind}"

    def examples(self) -> Iterator[tuple[str, Json, Any]]:
        """Every example, with the schema that it should fit."""
        for name, schema in self.schemas.items():
            for inner_name, inner in [("", schema), *schema.get("properties", {}).items()]:
                for place in (inner, *inner.get("anyOf", [])):
                    for example in _own_examples(place):
                        yield f"{name}.{inner_name}", inner, example
        for path, methods in self.paths.items():
            for told in methods.values():
                for parameter in told.get("parameters", []):
                    for example in _own_examples(parameter["schema"]):
                        yield f"{path}: {parameter['name']}", parameter["schema"], example

    def answer(self, path: str) -> Json:
        schema: Json = self.paths[path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        return schema

    def undescribed(self, schema: Json, value: Any, place: str = "") -> Iterator[str]:
        """Members that the document does not know."""
        schema = self._followed(schema)
        for option in schema.get("anyOf", []):
            if value is not None and self._followed(option).get("type") != "null":
                yield from self.undescribed(option, value, place)
        if isinstance(value, list):
            for item in value:
                yield from self.undescribed(schema.get("items", {}), item, f"{place}[]")
        known = schema.get("properties")
        if isinstance(value, dict):
            for name, inner in value.items():
                if known is None:
                    rest = schema.get("additionalProperties")
                    yield from self.undescribed(rest if isinstance(rest, dict) else {}, inner, f"{place}.*")
                elif name not in known:
                    yield f"{place}.{name}"
                else:
                    yield from self.undescribed(known[name], inner, f"{place}.{name}")

    def _pictured(self, schema: Json) -> bool:
        """It has an example of its own, or is made of what has: those are looked at by themselves."""
        rest = schema.get("additionalProperties")
        return bool(
            _own_examples(schema)
            or "$ref" in schema
            or any(self._pictured(option) for option in schema.get("anyOf", []))
            or (schema.get("type") == "array" and self._pictured(schema["items"]))
            or (isinstance(rest, dict) and self._pictured(rest))
        )

    def _followed(self, schema: Json) -> Json:
        while "$ref" in schema:
            schema = self.schemas[schema["$ref"].rpartition("/")[2]]
        return schema


def _own_examples(schema: Json) -> list[Any]:
    return [*schema.get("examples", []), *([schema["example"]] if "example" in schema else [])]
