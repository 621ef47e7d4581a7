"""Which fields say who an event is, when it happened and where it goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from open_data_contract_standard.model import SchemaProperty

from headrace.contracts.custom import Custom
from headrace.contracts.fields import FieldReader
from headrace.contracts.model import Contract, Field
from headrace.contracts.problems import Place, did_you_mean

STREAM_AT: Place = ("schema", 0)


def read_event_id(properties: Sequence[SchemaProperty], fields: Sequence[Field], reader: FieldReader) -> str:
    """The one field marked `primaryKey`."""
    field = _marked(properties, fields, "primaryKey", "the event id", reader)
    if field and (field.type.kind != "string" or not field.required):
        what = f"'{field.name}' is the event id: make it a required string"
        reader.fault((*_at(fields.index(field)), "primaryKey"), what)
    return field.name if field else ""


def read_key(properties: Sequence[SchemaProperty], fields: Sequence[Field], reader: FieldReader) -> str:
    """The one field marked `partitioned`."""
    field = _marked(properties, fields, "partitioned", "the Kafka key", reader)
    if field and (field.type.kind not in ("string", "integer") or not field.required):
        what = f"'{field.name}' is the Kafka key: make it a required string or integer"
        reader.fault((*_at(fields.index(field)), "partitioned"), what)
    return field.name if field else ""


def read_event_time(custom: Custom | None, fields: Sequence[Field], reader: FieldReader) -> str:
    """The field that `eventTime` names; a lone required timestamp needs no naming."""
    usable = [f.name for f in fields if f.type.kind == "timestamp" and f.required]
    if custom is None:
        if len(usable) != 1:
            found = (
                f"there are {len(usable)} required timestamps" if usable else "there is no required timestamp"
            )
            hint = "name it in customProperties: `property: eventTime`"
            reader.fault(STREAM_AT, f"which field is the event time? {found}", hint)
        return usable[0] if usable else ""
    if custom.value not in usable:
        hint = did_you_mean(str(custom.value), usable)
        reader.fault(custom.place, f"'{custom.value}' is not a required top-level timestamp", hint)
    return str(custom.value)


def refuse_masked_identity(contract: Contract, reader: FieldReader) -> None:
    roles = {contract.event_id: "event id", contract.event_time: "event time", contract.key: "Kafka key"}
    for index, field in enumerate(contract.fields):
        if field.mask and field.name in roles:
            what = f"'{field.name}' is the {roles[field.name]}, which every output needs: it cannot be masked"
            hint = "let the producer send a pseudonym instead"
            reader.fault((*_at(index), "customProperties"), what, hint)


def _marked(
    properties: Sequence[SchemaProperty], fields: Sequence[Field], word: str, role: str, reader: FieldReader
) -> Field | None:
    for index, prop in enumerate(properties):
        for place, inner in _inside(prop, _at(index)):
            if getattr(inner, word):
                reader.fault((*place, word), "only a top-level field can be marked so")
    marked = [index for index, prop in enumerate(properties) if getattr(prop, word)]
    if not marked:
        reader.fault(STREAM_AT, f"no field is {role}", f"mark one with `{word}: true`")
        return None
    for extra in marked[1:]:
        first = fields[marked[0]].name
        reader.fault((*_at(extra), word), f"'{first}' is {role} already; there is only one")
    return fields[marked[0]]


def _at(index: int) -> Place:
    return (*STREAM_AT, "properties", index)


def _inside(prop: SchemaProperty, place: Place) -> Iterator[tuple[Place, SchemaProperty]]:
    children: list[tuple[Place, SchemaProperty]] = [
        ((*place, "properties", index), child) for index, child in enumerate(prop.properties or [])
    ]
    if prop.items is not None:
        children.append(((*place, "items"), prop.items))
    if prop.map is not None and prop.map.value is not None:
        children.append(((*place, "map", "value"), prop.map.value))
    for here, child in children:
        yield here, child
        yield from _inside(child, here)
