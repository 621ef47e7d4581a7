"""From the standard's properties to fields: names, types, masks, examples."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from open_data_contract_standard.model import SchemaProperty

from headrace.contracts.custom import OF_FIELD, Custom, read_custom
from headrace.contracts.model import Field, Kind, Mask, Type
from headrace.contracts.problems import Place, Problem, did_you_mean
from headrace.contracts.rules import read_rules
from headrace.contracts.values import faults

_SCALARS: dict[str, Kind] = {
    "string": "string",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "timestamp": "timestamp",
    "date": "date",
}
_IN_MAPS = _SCALARS | {"long": "integer", "bigint": "integer", "double": "number"}
_DECIMAL = re.compile(
    r"(?:decimal|numeric)\s*(?:\(\s*([0-9]{1,3})\s*(?:,\s*([0-9]{1,3})\s*)?\))?", re.IGNORECASE
)
_MAP = re.compile(r"map\s*<\s*(\w+)\s*,\s*(.+?)\s*>", re.IGNORECASE)
# Beyond what breaks paths and queries, these are what the lake's column names cannot hold.
_BAD_IN_NAMES = re.compile(r"[\x00-\x20\x7f-\x9f\"'`\\.,;{}()=]")
_TRUNCATE = re.compile(r"truncate:([1-9][0-9]{0,5})")


@dataclass
class FieldReader:
    lines: dict[Place, int]
    problems: list[Problem] = field(default_factory=list)

    def fields(
        self, properties: list[SchemaProperty] | None, place: Place, required: frozenset[str] = frozenset()
    ) -> tuple[Field, ...]:
        """The fields of one object; `required` holds names that the object itself calls required."""
        here = (*place, "properties")
        if not properties:
            self.fault(here, "an object needs at least one property")
            return ()
        result: list[Field] = []
        seen: dict[str, str] = {}
        for index, prop in enumerate(properties):
            name = prop.name or ""
            self._check_name(name, (*here, index, "name"), seen)
            read = self.read(prop, name, (*here, index))
            result.append(replace(read, required=True) if name in required else read)
        for name in sorted(required - {f.name for f in result}):
            hint = did_you_mean(name, [f.name for f in result])
            self.fault((*place, "logicalTypeOptions", "required"), f"there is no property '{name}'", hint)
        return tuple(result)

    def read(self, prop: SchemaProperty, name: str, place: Place) -> Field:
        before = len(self.problems)
        custom = read_custom(prop.customProperties, place, OF_FIELD, self.problems)
        type_ = self._type(prop, place)
        result = Field(
            name=name,
            type=type_,
            required=bool(prop.required),
            rules=read_rules(prop, type_, place, custom, self.problems),
            mask=self._mask(custom.get("mask"), type_),
            classification=prop.classification or "",
            description=(prop.description or "").strip(),
            examples=tuple(prop.examples or ()),
            line=self.lines.get(place, 0),
        )
        if len(self.problems) == before:
            self._check_examples(result, place)
        return result

    def fault(self, place: Place, what: str, hint: str = "") -> None:
        self.problems.append(Problem(place, what, hint))

    def _check_name(self, name: str, place: Place, seen: dict[str, str]) -> None:
        if not name:
            self.fault(place, "a field needs a name")
        elif bad := _BAD_IN_NAMES.search(name):
            self.fault(place, f"{name!r} holds the character {bad[0]!r}", "use letters, digits and '_'")
        elif name.startswith("_"):
            self.fault(place, f"'{name}' starts with '_', which is kept for Headrace's own columns")
        elif name.lower() in seen:
            other = seen[name.lower()]
            same = "is used twice" if other == name else f"differs from '{other}' only by case"
            self.fault(place, f"'{name}' {same}", "give it another name")
        seen.setdefault(name.lower(), name)

    def _type(self, prop: SchemaProperty, place: Place) -> Type:
        logical, physical = prop.logicalType or "", (prop.physicalType or "").strip()
        if logical == "number" and physical.lower().startswith(("decimal", "numeric")):
            return self._decimal(physical, (*place, "physicalType"))
        if logical in _SCALARS:
            return Type(_SCALARS[logical])
        if logical == "object" and physical.lower().startswith("map"):
            return self._map_by_physical_type(physical, (*place, "physicalType"))
        if logical == "object":
            listed = (prop.logicalTypeOptions or {}).get("required", [])
            return Type("object", fields=self.fields(prop.properties, place, frozenset(listed)))
        if logical == "array":
            if prop.items is None:
                self.fault((*place, "items"), "an array needs `items`")
                return Type("array", element=Field("element", Type("string")))
            return Type("array", element=self._element(prop.items, "element", (*place, "items")))
        if logical == "map":
            return self._map(prop, place)
        if logical:
            known = ", ".join([*_SCALARS, "object", "array", "map"])
            self.fault((*place, "logicalType"), f"'{logical}' is not supported", f"use one of {known}")
        return Type("string")

    def _decimal(self, physical: str, place: Place) -> Type:
        written = _DECIMAL.fullmatch(physical)
        if written is None or written[1] is None:
            self.fault(place, f"'{physical}' is not a decimal", "write it like decimal(12,2)")
            return Type("decimal", 38, 18)
        precision, scale = int(written[1]), int(written[2] or 0)
        if not 1 <= precision <= 38 or scale > precision:
            self.fault(place, f"'{physical}': precision is 1 to 38, scale at most the precision")
        return Type("decimal", precision, scale)

    def _map_by_physical_type(self, physical: str, place: Place) -> Type:
        written = _MAP.fullmatch(physical)
        value = written[2] if written else ""
        if written is None or written[1].lower() != "string":
            self.fault(
                place, f"'{physical}' is not a map", "write it like map<string,string>; keys are strings"
            )
        elif value.lower().startswith(("decimal", "numeric")):
            return Type("map", element=Field("value", self._decimal(value, place)))
        elif value.lower() not in _IN_MAPS:
            hint = "for other values use `logicalType: map` with `map: {key, value}`"
            self.fault(place, f"'{value}' is not a type for the values of a map", hint)
        return Type("map", element=Field("value", Type(_IN_MAPS.get(value.lower(), "string"))))

    def _map(self, prop: SchemaProperty, place: Place) -> Type:
        key, value = (prop.map.key, prop.map.value) if prop.map else (None, None)
        if key is None or value is None:
            self.fault((*place, "map"), "a map needs `key` and `value`")
            return Type("map", element=Field("value", Type("string")))
        if key.logicalType != "string" or key.logicalTypeOptions or key.enum:
            self.fault((*place, "map", "key"), "the keys of a map are strings without rules")
        return Type("map", element=self._element(value, "value", (*place, "map", "value")))

    def _element(self, prop: SchemaProperty, name: str, place: Place) -> Field:
        element = self.read(prop, name, place)
        if element.mask and element.mask.how == "drop":
            self.fault(place, "an element cannot be dropped from its list or map", "mask the whole field")
        return element

    def _mask(self, custom: Custom | None, type_: Type) -> Mask | None:
        if custom is None:
            return None
        text = custom.value
        if text == "drop":
            return Mask("drop")
        truncate = _TRUNCATE.fullmatch(text) if isinstance(text, str) else None
        if text != "hash" and truncate is None:
            hint = did_you_mean(str(text), ["drop", "hash", "truncate:4"])
            self.fault(custom.place, f"'{text}' is not a mask: use drop, hash or truncate:N", hint)
            return None
        if type_.kind != "string":
            self.fault(custom.place, f"{text} needs a string, not {type_.kind}", "use drop")
        return Mask("truncate", int(truncate[1])) if truncate else Mask("hash")

    def _check_examples(self, read: Field, place: Place) -> None:
        for value in read.rules.enum or ():
            for fault in faults(value, replace(read, rules=replace(read.rules, enum=None))):
                self.fault((*place, "enum"), f"its own value breaks its rules: {fault}")
        for index, example in enumerate(read.examples):
            for fault in faults(example, read):
                self.fault((*place, "examples", index), f"the example breaks the field's rules: {fault}")
