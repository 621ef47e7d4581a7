"""JSON bytes to typed events.

Spark's `from_json` is fast but forgiving: it takes a number for a string, ignores what follows the object and
replaces invalid UTF-8. So a record is parsed once, cheap tests then *doubt* the few records in which
forgiveness could have happened, and only those are diagnosed exactly.
"""

from __future__ import annotations

import secrets

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.contracts.model import Contract, Field, Type
from headrace.gate.reasons import any_of, let, literal_rows, no_reasons, reason
from headrace.gate.rules import EXACT_DOUBLE_DIGITS

CORRUPT = "_corrupt"
OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
WRAPPED_OPTIONS = {**OPTIONS, "maxNestingDepth": "1001"}  # one level for the wrapping array
TEXTS = ("string", "timestamp", "date")
CONTAINERS = ("object", "array", "map")
# What is no text in JSON. A number beyond all doubles arrives as "Infinity", in quotes.
FIRST_OF_BARE = '-0123456789{["'
BARE = r'^(?:-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$|[\x7b\["]|true$|false$)'
OPENS_CONTAINER = r"^[\[{]"

# Kinds as `schema_of_variant` names them.
VARIANT_TYPES = {
    "string": "^(STRING|VOID)$",
    "timestamp": "^(STRING|VOID)$",
    "date": "^(STRING|VOID)$",
    "integer": "^(BIGINT|VOID)$",
    "number": "^(BIGINT|DECIMAL|DOUBLE|FLOAT|VOID)",
    "decimal": "^(BIGINT|DECIMAL|DOUBLE|FLOAT|VOID)",
    "boolean": "^(BOOLEAN|VOID)$",
    "object": "^(OBJECT|VOID)",
    "map": "^(OBJECT|VOID)",
    "array": "^(ARRAY|VOID)",
}


class JsonDecoder:
    """The decoder of one contract. Another format is another class with these three methods."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.nested = any(field.type.kind in CONTAINERS for field in contract.fields)
        # Unknown to producers, so that no record can contain what marks its own end.
        self._end_mark = secrets.token_hex(8)

    def parse(self, value: Column) -> Column:
        """The event as a struct of the contract's fields, and a column that is set where parsing failed."""
        fields = ", ".join(f"`{f.name}` {_parsed_type(f.type)}" for f in self.contract.fields)
        return F.from_json(_text(value), f"{fields}, {CORRUPT} string", OPTIONS)

    def doubt(self, value: Column, event: Column) -> Column:
        """True where the record may break the format in a way that `parse` does not show."""
        text = _text(value)
        doubts = [
            value.isNull(),
            event[CORRUPT].isNotNull(),
            ~F.is_valid_utf8(text),
            ~text.startswith("{"),
            ~self._surely_ends(value),
            event[self.contract.event_id].contains("?"),  # what becomes of an unpaired surrogate
            *[doubt for f in self.contract.fields for doubt in _text_doubts(f, event[f.name], text)],
        ]
        return F.coalesce(any_of(doubts), F.lit(True))

    def _surely_ends(self, value: Column) -> Column:
        """False where something may follow the object."""
        if not self.nested:
            all_but_last = F.substring(value, 1, F.octet_length(value) - 1)
            return F.endswith(value, F.lit(b"}")) & ~F.contains(all_but_last, F.lit(b"}"))
        wrapped = F.concat(F.lit("["), _text(value), F.lit(f',{{"{self._end_mark}":1}}]'))
        parts = F.from_json(wrapped, f"array<struct<`{self._end_mark}`:int>>", WRAPPED_OPTIONS)
        return F.get(parts, F.lit(1))[self._end_mark].isNotNull() & (F.size(parts) == 2)

    def diagnose(self, value: Column, event: Column) -> Column:
        """The format's reasons of a doubted record: an array, empty when the record is sound after all."""
        text = _text(value)
        whole = (
            F.when(value.isNull() | (F.octet_length(value) == 0), "empty")
            .when(~F.is_valid_utf8(text), "not_utf8")
            .when(~self._is_one_json_text(text), "not_json")
            .when(F.from_json(text, f"{CORRUPT} string", OPTIONS)[CORRUPT].isNotNull(), "not_object")
        )
        corrupt = event[CORRUPT].isNotNull()

        def explain(code: Column) -> Column:
            types = let(self._type_reasons(text), lambda found: _or_unexplained(found, corrupt))
            return F.when(code.isNotNull(), F.array(reason(code, ""))).otherwise(types)

        return let(whole, explain)

    def _is_one_json_text(self, text: Column) -> Column:
        """Parsed as the first of two array elements: were it none, or more than one, the mark would move."""
        wrapped = F.concat(F.lit("[0,"), text, F.lit(f',"{self._end_mark}"]'))
        return let(
            F.from_json(wrapped, "array<string>", WRAPPED_OPTIONS),
            lambda parts: F.coalesce(
                (F.size(parts) == 3) & (F.get(parts, F.lit(2)) == self._end_mark), F.lit(False)
            ),
        )

    def _type_reasons(self, text: Column) -> Column:
        kinds = ", ".join(f"`{f.name}` variant" for f in self.contract.fields)
        texts = ", ".join(f"`{f.name}` string" for f in self.contract.fields)
        both = F.struct(
            F.from_json(text, f"{kinds}, {CORRUPT} string", OPTIONS).alias("variants"),
            F.from_json(text, f"{texts}, {CORRUPT} string", OPTIONS).alias("texts"),
        )

        def explain(parsed: Column) -> Column:
            variants, texts = parsed["variants"], parsed["texts"]
            plain = [f for f in self.contract.fields if f.type.kind not in CONTAINERS]
            found = [self._plain_reasons(plain, variants, texts)]
            for f in self.contract.fields:
                if f.type.kind in CONTAINERS:
                    found += _container_reasons(f, variants[f.name], texts[f.name])
            return F.concat(*found, self._repeated_name(variants, texts))

        return let(both, explain)

    def _plain_reasons(self, fields: list[Field], variants: Column, texts: Column) -> Column:
        """One expression for all fields that hold no others: a plan that names each of them grows large."""
        known = literal_rows(
            "name string, type string, is_text boolean, is_id boolean",
            [
                {
                    "name": f.name,
                    "type": VARIANT_TYPES[f.type.kind],
                    "is_text": f.type.kind in TEXTS,
                    "is_id": f.name == self.contract.event_id,
                }
                for f in fields
            ],
        )
        variant_of = F.array(*[variants[f.name] for f in fields])
        text_of = F.array(*[texts[f.name] for f in fields])

        def judged(field: Column, n: Column) -> Column:
            variant, text = F.get(variant_of, n), F.get(text_of, n)
            wrong = ~F.regexp_like(F.schema_of_variant(variant), field["type"])
            unreadable = variant.isNull() & text.isNotNull()
            code = F.when(
                F.coalesce(wrong, F.lit(False))
                | (unreadable & (~field["is_text"] | text.rlike(OPENS_CONTAINER))),
                "wrong_type",
            ).when(unreadable & field["is_id"], "bad_format")
            return F.struct(code.alias("code"), field["name"].alias("field"))

        return F.filter(F.transform(known, judged), lambda r: r["code"].isNotNull())

    def _repeated_name(self, variants: Column, texts: Column) -> Column:
        """Nothing is unreadable, yet something failed: a name is there twice, one of the two is wrong."""
        variant_of = F.array(*[variants[f.name] for f in self.contract.fields])
        text_of = F.array(*[texts[f.name] for f in self.contract.fields])
        readable = F.zip_with(variant_of, text_of, lambda v, t: v.isNotNull() | t.isNull())
        repeated = variants[CORRUPT].isNotNull() & F.forall(readable, lambda is_so: is_so)
        return _some(repeated, reason("wrong_type", ""))


def _text(value: Column) -> Column:
    return value.cast("string")


def _parsed_type(type_: Type) -> str:
    match type_.kind:
        case "object":
            return "struct<" + ", ".join(f"`{f.name}`: {_parsed_type(f.type)}" for f in type_.fields) + ">"
        case "array":
            assert type_.element is not None
            return f"array<{_parsed_type(type_.element.type)}>"
        case "map":
            assert type_.element is not None
            return f"map<string,{_parsed_type(type_.element.type)}>"
        case "decimal":
            return "double" if type_.precision <= EXACT_DOUBLE_DIGITS else "variant"
        case "string" | "timestamp" | "date":
            return "string"
        case "integer":
            return "bigint"
        case "number":
            return "double"
        case "boolean":
            return "boolean"


def _text_doubts(field: Field, value: Column, text: Column) -> list[Column]:
    """Where a free text, at any depth, may have been another JSON type. Other rules reject it elsewhere."""
    match field.type.kind:
        case "string" if not _only_words(field):
            return [_may_be_bare(field.name, value, text)]
        case "object":
            return [doubt for f in field.type.fields for doubt in _text_doubts(f, value[f.name], text)]
        case "array" | "map" if field.type.element is not None:
            element = field.type.element
            inside = value if field.type.kind == "array" else F.map_values(value)

            def doubtful(x: Column) -> Column:
                return any_of([F.lit(False), *_text_doubts(element, x, text)])

            return [F.coalesce(F.exists(inside, doubtful), F.lit(False))]
        case _:
            return []


def _only_words(field: Field) -> bool:
    """Whether every allowed value starts with a letter and is not `true` or `false`."""
    enum = field.rules.enum
    return enum is not None and all(v[:1].isalpha() and v not in ("true", "false") for v in enum)


def _may_be_bare(name: str, value: Column, text: Column) -> Column:
    """True where a parsed string could come from a JSON number, boolean, object or array.

    A look at one character is much cheaper than looking for the quoted value in the record, and that is
    cheaper than a regular expression; the few that pass all three are diagnosed.
    """
    starts_bare = F.contains(F.lit(FIRST_OF_BARE), F.left(value, F.lit(1))) | value.isin("true", "false")
    quoted = [F.contains(text, F.concat(F.lit(f'"{name}":{gap}"'), value, F.lit('"'))) for gap in ("", " ")]
    return value.isNotNull() & starts_bare & ~quoted[0] & ~quoted[1] & value.rlike(BARE)


def _or_unexplained(found: Column, corrupt: Column) -> Column:
    """A record that did not parse never passes, whatever the diagnosis says."""
    return F.when(corrupt & (F.size(found) == 0), F.array(reason("wrong_type", ""))).otherwise(found)


def _some(condition: Column, found: Column) -> Column:
    return F.when(condition, F.array(found)).otherwise(no_reasons())


def _container_reasons(field: Field, variant: Column, as_text: Column) -> list[Column]:
    # A variant has no room for a repeated name or an unpaired surrogate, nor has the contract.
    opened = as_text.startswith("[" if field.type.kind == "array" else "{")
    code = F.when(opened, "not_json").otherwise("wrong_type")
    unreadable = variant.isNull() & as_text.isNotNull()
    return [*_wrong_types(field, variant, field.name), _some(unreadable, reason(code, field.name))]


def _is_wrong(kind: str, variant: Column) -> Column:
    return F.coalesce(~F.schema_of_variant(variant).rlike(VARIANT_TYPES[kind]), F.lit(False))


def _wrong_types(field: Field, variant: Column, path: str) -> list[Column]:
    """Where the JSON types differ from the contract's, at any depth."""
    kind = field.type.kind
    reasons = [_some(_is_wrong(kind, variant), reason("wrong_type", path))]
    if kind == "object":
        for f in field.type.fields:
            inner = F.try_variant_get(variant, f"$['{f.name}']", "variant")
            reasons += _wrong_types(f, inner, f"{path}.{f.name}")
    elif kind in ("array", "map") and field.type.element is not None:
        element = field.type.element
        where = f"{path}[]" if kind == "array" else f"{path}{{}}"
        container = "array<variant>" if kind == "array" else "map<string,variant>"
        values = F.try_variant_get(variant, "$", container)
        inside = values if kind == "array" else F.map_values(values)
        found = F.flatten(F.transform(inside, lambda x: F.concat(*_wrong_types(element, x, where))))
        reasons.append(F.coalesce(F.array_distinct(found), no_reasons()))
    return reasons
