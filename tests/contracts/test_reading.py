"""What a contract file says arrives in the model."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from headrace.contracts import Mask, Role, Rules, Type, load_contracts
from tests.contracts.files import TURANMART, load, text


def test_a_small_contract_gets_every_default(tmp_path: Path) -> None:
    contract = load(tmp_path, text())
    assert (contract.name, contract.version, contract.major) == ("taps", "1.2.3", 1)
    assert (contract.event_id, contract.event_time, contract.key) == ("id", "at", "who")
    assert contract.lateness == timedelta(minutes=10)
    assert contract.max_future_skew == timedelta(minutes=5)
    assert contract.dedupe_horizon == timedelta(hours=1)
    assert contract.idle_after == timedelta(minutes=1)
    assert (contract.partitions, contract.compacted) == (4, False)
    assert contract.retention == timedelta(days=7)
    assert (contract.status, contract.owner, contract.roles) == ("active", "", ())
    assert contract.file == tmp_path / "taps.yaml"
    assert contract.field("at").line == 12


def test_contract_level_words(tmp_path: Path) -> None:
    more = """\
status: deprecated
description: {purpose: Counts taps.}
team: {name: plumbing, members: [{username: ada}]}
roles: [{role: reader}, {role: writer, access: write}]
slaProperties: [{property: latency, value: 5, unit: s}, {property: retention, value: 90, unit: d}]
customProperties:
  - {property: eventTime, value: at}
  - {property: lateness, value: 0 s}
  - {property: maxFutureSkew, value: 90 s}
  - {property: dedupeHorizon, value: 2 days}
  - {property: idleAfter, value: 1.5 minutes}
  - {property: partitions, value: 12}
  - {property: compacted, value: true}
  - {property: costCentre, value: 4711}
"""
    contract = load(tmp_path, text(contract=more))
    assert (contract.status, contract.description, contract.owner) == (
        "deprecated",
        "Counts taps.",
        "plumbing",
    )
    assert contract.roles == (Role("reader", "read"), Role("writer", "write"))
    assert contract.retention == timedelta(days=90)
    assert contract.lateness == timedelta(0)
    assert contract.max_future_skew == timedelta(seconds=90)
    assert contract.dedupe_horizon == timedelta(days=2)
    assert contract.idle_after == timedelta(seconds=90)
    assert (contract.partitions, contract.compacted) == (12, True)


@pytest.mark.parametrize(
    ("sla", "days"),
    [
        ("{property: retention, value: 3 days}", 3),
        ("{property: retention, value: 48, unit: hours}", 2),
        ("{property: retention, value: 2, unit: y}", 730),
        ("{property: retention, value: 0.5, unit: w}", 3.5),
    ],
)
def test_retention_is_written_in_several_ways(tmp_path: Path, sla: str, days: float) -> None:
    assert load(tmp_path, text(contract=f"slaProperties: [{sla}]\n")).retention == timedelta(days=days)


def test_a_team_may_be_a_list_of_members(tmp_path: Path) -> None:
    team = "team: [{username: ada, role: steward}, {username: bob, role: Owner}]\n"
    assert load(tmp_path, text(contract=team)).owner == "bob"


@pytest.mark.parametrize(
    ("logical", "expected"),
    [
        ("logicalType: string", Type("string")),
        ("logicalType: integer", Type("integer")),
        ("logicalType: number", Type("number")),
        ("logicalType: boolean", Type("boolean")),
        ("logicalType: timestamp", Type("timestamp")),
        ("logicalType: date", Type("date")),
        ("logicalType: number, physicalType: double", Type("number")),
        ("logicalType: number, physicalType: 'decimal(12,2)'", Type("decimal", 12, 2)),
        ("logicalType: number, physicalType: 'NUMERIC( 9 )'", Type("decimal", 9, 0)),
    ],
)
def test_scalar_types(tmp_path: Path, logical: str, expected: Type) -> None:
    assert load(tmp_path, text(f"- {{name: x, {logical}}}")).field("x").type == expected


def test_objects_arrays_and_maps_nest(tmp_path: Path) -> None:
    fields = """\
- name: box
  logicalType: object
  logicalTypeOptions: {required: [b]}
  properties:
    - {name: a, logicalType: string, required: true}
    - {name: b, logicalType: integer}
    - {name: c, logicalType: date}
- name: lines
  logicalType: array
  logicalTypeOptions: {minItems: 1, maxItems: 9}
  items: {logicalType: object, required: true, properties: [{name: n, logicalType: integer}]}
- name: tags
  logicalType: map
  logicalTypeOptions: {maxProperties: 5}
  map: {key: {logicalType: string}, value: {logicalType: array, items: {logicalType: string}}}
- {name: notes, logicalType: object, physicalType: "map<string,string>"}
- {name: sums, logicalType: object, physicalType: "map<string, decimal(10,2)>"}
- {name: counts, logicalType: object, physicalType: "MAP<STRING,BIGINT>"}
"""
    contract = load(tmp_path, text(fields))
    box, lines, tags = (contract.field(name) for name in ("box", "lines", "tags"))
    assert [(f.name, f.required) for f in box.type.fields] == [("a", True), ("b", True), ("c", False)]
    assert lines.type.kind == "array"
    assert lines.type.element and lines.type.element.required
    assert lines.type.element.type.fields[0].name == "n"
    assert (lines.rules.min_length, lines.rules.max_length) == (1, 9)
    assert tags.type.kind == "map"
    assert tags.type.element and tags.type.element.type.kind == "array"
    assert tags.rules.max_length == 5
    values = {name: contract.field(name).type.element for name in ("notes", "sums", "counts")}
    assert {name: value.type for name, value in values.items() if value} == {
        "notes": Type("string"),
        "sums": Type("decimal", 10, 2),
        "counts": Type("integer"),
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("enum: [{value: a}, {value: b}]", ("a", "b")),
        ("customProperties: [{property: enum, value: [a, b]}]", ("a", "b")),
        ("quality: [{metric: invalidValues, arguments: {validValues: [a, b]}, mustBe: 0}]", ("a", "b")),
        ("enum: [{value: no}, {value: on}]", ("no", "on")),
        # A tolerance is a statement about the stream, not about one event.
        (
            "quality: [{metric: invalidValues, arguments: {validValues: [a]}, mustBeLessThan: 5}]",
            None,
        ),
    ],
)
def test_allowed_values_are_written_in_three_ways(
    tmp_path: Path, given: str, expected: tuple[str, ...] | None
) -> None:
    field = load(tmp_path, text(f"- {{name: x, logicalType: string, {given}}}")).field("x")
    assert field.rules.enum == expected


@pytest.mark.parametrize(
    ("type_", "options", "expected"),
    [
        (
            "string",
            "minLength: 1, maxLength: 9, pattern: '^a'",
            Rules(min_length=1, max_length=9, pattern="^a"),
        ),
        ("integer", "minimum: -1, exclusiveMaximum: 9", Rules(minimum=-1, exclusive_maximum=9)),
        ("integer", "format: u8", Rules(minimum=0, maximum=255)),
        ("integer", "format: i16, minimum: 5", Rules(minimum=5, maximum=32767)),
        ("integer", "format: i64", Rules()),
        ("number", "exclusiveMinimum: 0.5", Rules(exclusive_minimum=0.5)),
        ("number, physicalType: 'decimal(9,2)'", "maximum: 0.10", Rules(maximum=Decimal("0.10"))),
        ("date", "minimum: 2020-01-01", Rules(minimum="2020-01-01")),
        ("timestamp", "maximum: 2030-01-01T00:00:00Z", Rules(maximum="2030-01-01T00:00:00Z")),
    ],
)
def test_rules(tmp_path: Path, type_: str, options: str, expected: Rules) -> None:
    field = f"- {{name: x, logicalType: {type_}, logicalTypeOptions: {{{options}}}}}"
    rules = load(tmp_path, text(field)).field("x").rules
    assert rules == expected
    assert type(rules.maximum) is type(expected.maximum)
    assert type(rules.exclusive_minimum) is type(expected.exclusive_minimum)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [("drop", Mask("drop")), ("hash", Mask("hash")), ("'truncate:6'", Mask("truncate", 6))],
)
def test_masks_and_what_describes_a_field(tmp_path: Path, mask: str, expected: Mask) -> None:
    more = "classification: restricted, description: Secret., examples: [abc]"
    field = (
        f"- {{name: x, logicalType: string, {more}, customProperties: [{{property: mask, value: {mask}}}]}}"
    )
    read = load(tmp_path, text(field)).field("x")
    assert read.mask == expected
    assert (read.classification, read.description, read.examples) == ("restricted", "Secret.", ("abc",))


def test_a_lone_required_timestamp_is_the_event_time_and_more_than_one_needs_a_name(tmp_path: Path) -> None:
    second = "- {name: seen, logicalType: timestamp, required: true}"
    named = "customProperties: [{property: eventTime, value: seen}]\n"
    assert load(tmp_path, text(second, named)).event_time == "seen"


def test_the_shipped_contracts_say_what_the_shop_needs() -> None:
    contracts = load_contracts(TURANMART)
    assert list(contracts) == ["clickstream", "logins", "orders", "payments"]
    keys = {name: contract.key for name, contract in contracts.items()}
    assert keys == {
        "clickstream": "customer_id",
        "payments": "customer_id",
        "logins": "customer_id",
        "orders": "order_id",
    }
    assert all(contract.owner and contract.roles and contract.description for contract in contracts.values())
    click = contracts["clickstream"]
    assert (click.lateness, click.partitions) == (timedelta(minutes=10), 4)
    assert not any(field.mask for field in click.fields)
    assert {f.name for f in click.fields if not f.required} == {
        "page",
        "product_id",
        "price",
        "quantity",
        "campaign",
        "checkout_ms",
        "trace_id",
    }
    assert contracts["payments"].field("card_hash").mask == Mask("hash")
    assert contracts["logins"].field("ip_address").mask == Mask("truncate", 6)
    assert contracts["logins"].field("user_agent").mask == Mask("drop")
    address = {f.name: f.mask for f in contracts["orders"].field("shipping_address").type.fields}
    assert (address["street"], address["phone"], address["city"]) == (Mask("drop"), Mask("hash"), None)
