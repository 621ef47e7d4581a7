"""Every mistake is one error that names the file, the line and the field."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headrace.contracts import load_contract, load_contracts
from headrace.errors import ContractError
from tests.contracts.files import BASE, error_of, line_of, text

CUSTOM = "customProperties: [{{property: {name}, value: {value}}}]\n"


def test_a_wrong_type_names_file_line_field_and_the_nearest_type(tmp_path: Path) -> None:
    content = text("- name: x\n  logicalType: strng")
    message = error_of(tmp_path, content)
    where = f"taps.yaml:{line_of(content, 'strng')}: schema[0].properties[3].logicalType: "
    assert message.startswith(where + "'strng' is not one of string, date, ")
    assert message.endswith("→ did you mean 'string'?")


# field (as flow mapping content after the name), the marked place, a part of the message
FIELD_MISTAKES = [
    ("requird: true, logicalType: string", "requird", "did you mean 'required'?"),
    ("description: no type", "logicalType", "is missing"),
    ("logicalType: string, required: yes", "required", "'yes' is not a boolean"),
    ("logicalType: string, properties: []", "properties", "has no meaning for this type"),
    ("logicalType: string, 'wh(at': 1", "wh(at", "no such key"),
    (
        "logicalType: object, properties: [{name: y, logicalType: strng}]",
        "properties[0].logicalType",
        "did you mean 'string'?",
    ),
    (
        "logicalType: array,"
        " items: {logicalType: object, properties: [{name: y, logicalType: date, uniqe: true}]}",
        "items.properties[0].uniqe",
        "did you mean 'unique'?",
    ),
    ("logicalType: string, customProperties: [{property: mask}]", "customProperties[0].value", "is missing"),
    (
        "logicalType: string, quality: [{metric: invalidVals, mustBe: 0}]",
        "quality[0].metric",
        "'invalidValues'?",
    ),
    ("logicalType: time", "logicalType", "'time' is not supported"),
    ("logicalType: string, lateness: 5", "lateness", "goes into customProperties"),
    ("logicalType: number, physicalType: decimal", "physicalType", "decimal(12,2)"),
    ("logicalType: number, physicalType: 'decimal(39,2)'", "physicalType", "precision is 1 to 38"),
    ("logicalType: number, physicalType: 'decimal(4,5)'", "physicalType", "precision is 1 to 38"),
    ("logicalType: object", "properties", "at least one property"),
    ("logicalType: object, physicalType: 'map<int,string>'", "physicalType", "keys are strings"),
    ("logicalType: object, physicalType: 'map<string,blob>'", "physicalType", "'blob' is not a type"),
    ("logicalType: array", "items", "an array needs `items`"),
    ("logicalType: map", "map", "is missing"),
    (
        "logicalType: map, map: {key: {logicalType: integer}, value: {logicalType: string}}",
        "map.key",
        "keys of a map are strings",
    ),
    ("logicalType: integer, enum: [{value: 1}]", "enum", "only strings can have an enum"),
    ("logicalType: string, enum: [{value: 1}]", "enum[0]", 'put it in quotes: "1"'),
    (
        "logicalType: string, customProperties: [{property: enum, value: []}]",
        "customProperties[0].value",
        "a list",
    ),
    (
        "logicalType: string, customProperties: [{property: enum, value: [a, a]}]",
        "customProperties[0].value[1]",
        "twice",
    ),
    (
        "logicalType: string, enum: [{value: a}], customProperties: [{property: enum, value: [a]}]",
        "customProperties[0].value",
        "given twice",
    ),
    (
        "logicalType: string, logicalTypeOptions: {pattern: '['}",
        "logicalTypeOptions.pattern",
        "regular expression",
    ),
    (
        "logicalType: string, logicalTypeOptions: {pattern: '(?P<x>a)'}",
        "logicalTypeOptions.pattern",
        "not to Java",
    ),
    ("logicalType: string, logicalTypeOptions: {minimum: 1}", "logicalTypeOptions.minimum", "no such key"),
    ("logicalType: string, logicalTypeOptions: {format: uuid}", "logicalTypeOptions.format", "use a pattern"),
    (
        "logicalType: integer, logicalTypeOptions: {minimum: x}",
        "logicalTypeOptions.minimum",
        "'x' is not a number",
    ),
    (
        "logicalType: integer, logicalTypeOptions: {minimum: 1.5}",
        "logicalTypeOptions.minimum",
        "64-bit integer",
    ),
    (
        "logicalType: integer, logicalTypeOptions: {multipleOf: 2}",
        "logicalTypeOptions.multipleOf",
        "not be checked",
    ),
    (
        "logicalType: integer, logicalTypeOptions: {format: u64}",
        "logicalTypeOptions.format",
        "not be checked",
    ),
    (
        "logicalType: integer, logicalTypeOptions: {minimum: 0, maximum: -1}",
        "logicalTypeOptions",
        "no value can pass",
    ),
    (
        "logicalType: string, logicalTypeOptions: {minLength: 2, maxLength: 1}",
        "logicalTypeOptions",
        "no value can",
    ),
    (
        "logicalType: date, logicalTypeOptions: {minimum: 2026-02-30}",
        "logicalTypeOptions.minimum",
        "is not a date",
    ),
    (
        "logicalType: timestamp, logicalTypeOptions: {timezone: false}",
        "logicalTypeOptions.timezone",
        "carry a zone",
    ),
    (
        "logicalType: array, items: {logicalType: string}, logicalTypeOptions: {uniqueItems: true}",
        "logicalTypeOptions.uniqueItems",
        "not be checked",
    ),
    (
        "logicalType: string, customProperties: [{property: mask, value: hide}]",
        "customProperties[0].value",
        "a mask",
    ),
    (
        "logicalType: string, customProperties: [{property: mask, value: 'truncate:0'}]",
        "customProperties[0].value",
        "not a mask",
    ),
    (
        "logicalType: date, customProperties: [{property: mask, value: hash}]",
        "customProperties[0].value",
        "a string",
    ),
    (
        "logicalType: string, customProperties: [{property: maks, value: drop}]",
        "customProperties[0].property",
        "did you mean 'mask'?",
    ),
    (
        "logicalType: string, customProperties: [{property: lateness, value: 1 s}]",
        "customProperties[0].property",
        "belongs to the contract",
    ),
    (
        "logicalType: array, items: {logicalType: string, customProperties: [{property: mask, value: drop}]}",
        "items",
        "cannot be dropped",
    ),
    ("logicalType: string, primaryKey: true, required: true", "primaryKey", "'id' is the event id already"),
    (
        "logicalType: string, partitioned: true, required: true",
        "partitioned",
        "'who' is the Kafka key already",
    ),
    (
        "logicalType: object, properties: [{name: y, logicalType: string, partitioned: true}]",
        "properties[0].partitioned",
        "only a top-level field",
    ),
    ("logicalType: string, logicalType: string", "logicalType", "written twice"),
    ("logicalType: string, description: !!binary aGk=", "description", "tag"),
]


@pytest.mark.parametrize(("field", "place", "part"), FIELD_MISTAKES)
def test_mistakes_in_a_field(tmp_path: Path, field: str, place: str, part: str) -> None:
    content = text(f"- {{name: x, {field}}}")
    message = error_of(tmp_path, content)
    where = f"taps.yaml:{line_of(content, 'name: x')}: schema[0].properties[3].{place}: "
    assert message.startswith(where)
    assert part in message
    assert message.count("taps.yaml:") == 1


MAP = "logicalType: map, map: {key: {logicalType: string}, value: {logicalType: string}}"


@pytest.mark.parametrize(
    "options", ["{maxProperties: few}", "{minProperties: -1}", "{minLength: 1}", "{pattern: a}"]
)
def test_the_options_of_a_map_are_checked_though_the_standard_does_not(tmp_path: Path, options: str) -> None:
    message = error_of(tmp_path, text(f"- {{name: x, {MAP}, logicalTypeOptions: {options}}}"))
    assert "schema[0].properties[3].logicalTypeOptions." in message


def test_the_options_of_a_boolean_are_refused(tmp_path: Path) -> None:
    message = error_of(tmp_path, text("- {name: x, logicalType: boolean, logicalTypeOptions: {pattern: a}}"))
    assert "would not be checked on a boolean" in message


EXAMPLES = [
    ("logicalType: string, enum: [{value: a}]", "b", "'b' is not one of a"),
    ("logicalType: string, logicalTypeOptions: {pattern: '^a$'}", "b", "does not match"),
    ("logicalType: string, logicalTypeOptions: {minLength: 2}", "b", "shorter than 2"),
    ("logicalType: string, logicalTypeOptions: {maxLength: 2}", "bbb", "longer than 2"),
    ("logicalType: string", "5", "5 is not a string"),
    ("logicalType: string, required: true", "null", "null in a required field"),
    ("logicalType: integer", "1.5", "64-bit integer"),
    ("logicalType: integer", "9223372036854775808", "64-bit integer"),
    ("logicalType: integer", "true", "64-bit integer"),
    ("logicalType: integer, logicalTypeOptions: {minimum: 3}", "2", "below the minimum 3"),
    ("logicalType: integer, logicalTypeOptions: {maximum: 3}", "4", "above the maximum 3"),
    ("logicalType: number, logicalTypeOptions: {exclusiveMinimum: 3}", "3", "not above 3"),
    ("logicalType: number, logicalTypeOptions: {exclusiveMaximum: 3}", "3.0", "not below 3"),
    ("logicalType: number, physicalType: 'decimal(4,2)'", "100.00", "does not fit decimal(4,2)"),
    ("logicalType: number, physicalType: 'decimal(4,2)'", "1.001", "does not fit decimal(4,2)"),
    ("logicalType: boolean", "'true'", "is not a boolean"),
    ("logicalType: timestamp", "2026-03-01 09:00:00Z", "with 'T' and a zone"),
    ("logicalType: timestamp", "'2026-03-01T09:00:00'", "with 'T' and a zone"),
    ("logicalType: date", "2026-02-30", "a date like"),
    ("logicalType: date, logicalTypeOptions: {minimum: 2026-03-01}", "2026-02-28", "below the minimum"),
    ("logicalType: array, items: {logicalType: integer}", "[1, x]", "[1]: 'x' is not a 64-bit integer"),
    (
        "logicalType: object, properties: [{name: y, logicalType: string, required: true}]",
        "{z: 1}",
        "y: null in a required field",
    ),
    ("logicalType: object, physicalType: 'map<string,integer>'", "{z: a}", "z: 'a' is not a 64-bit integer"),
]


@pytest.mark.parametrize(("field", "example", "part"), EXAMPLES)
def test_an_example_must_satisfy_its_own_field(tmp_path: Path, field: str, example: str, part: str) -> None:
    message = error_of(tmp_path, text(f"- {{name: x, {field}, examples: [{example}]}}"))
    assert "schema[0].properties[3].examples[0]: the example breaks the field's rules" in message
    assert part in message


def test_good_examples_are_accepted(tmp_path: Path) -> None:
    fields = """\
- {name: a, logicalType: number, physicalType: "decimal(4,2)", examples: [99.99, 0, -1.50, 1.500, null]}
- {name: b, logicalType: timestamp, examples: [2026-03-01T09:00:00Z, "2026-03-01T09:00:00.123456789+05:00"]}
- {name: c, logicalType: integer, examples: [9223372036854775807, -9223372036854775808]}
"""
    (tmp_path / "good.yaml").write_text(text(fields))
    assert len(load_contract(tmp_path / "good.yaml").field("a").examples) == 5


@pytest.mark.parametrize(
    "name", ["a.b", "a'b", 'a"b', "a`b", "a\\b", "a\tb", "a b", "a\x7fb", "_a", "", "a(b"]
)
def test_names_that_cannot_be_columns(tmp_path: Path, name: str) -> None:
    content = text(f"- name: {json.dumps(name)}\n  logicalType: string")
    assert "schema[0].properties[3].name: " in error_of(tmp_path, content)


def test_names_that_differ_only_by_case(tmp_path: Path) -> None:
    message = error_of(tmp_path, text("- {name: Who, logicalType: string}"))
    assert "schema[0].properties[3].name: 'Who' differs from 'who' only by case" in message
    inside = "- {name: x, logicalType: object, properties: [{name: Who, logicalType: string}]}"
    (tmp_path / "fine.yaml").write_text(text(inside))
    assert load_contract(tmp_path / "fine.yaml")


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("lateness", "soon", "'soon' is not a duration"),
        ("lateness", "10", "10 is not a duration"),
        ("idleAfter", "0 s", "longer than zero"),
        ("dedupeHorizon", "-1 hour", "not a duration"),
        ("partitions", "0", "not a number of partitions"),
        ("partitions", "'4'", "not a number of partitions"),
        ("compacted", "'yes'", "neither true nor false"),
        ("eventTime", "who", "not a required top-level timestamp"),
        ("latness", "5 minutes", "did you mean 'lateness'?"),
        ("dedupe_horizon", "5 minutes", "did you mean 'dedupeHorizon'?"),
        ("mask", "drop", "belongs to a field"),
    ],
)
def test_mistakes_in_custom_properties(tmp_path: Path, name: str, value: str, part: str) -> None:
    content = text(contract=CUSTOM.format(name=name, value=value))
    message = error_of(tmp_path, content)
    assert message.startswith(f"taps.yaml:{line_of(content, 'customProperties')}: customProperties[0].")
    assert part in message


@pytest.mark.parametrize(
    ("before", "after", "start"),
    [
        ("version: 1.2.3", "version: 1.2", "taps.yaml:4: version: 1.2 is not a string"),
        ("version: 1.2.3", "version: '1.2'", "taps.yaml:4: version: '1.2' is not a version"),
        ("version: 1.2.3\n", "", "taps.yaml:1: version: is missing"),
        ("v3.2.0", "v2.2.0", "taps.yaml:2: apiVersion: 'v2.2.0' is too old"),
        ("v3.2.0", "v3.9.0", "taps.yaml:2: apiVersion: 'v3.9.0' is not one of"),
        ("kind: DataContract", "kind: Contract", "taps.yaml:1: kind: 'Contract' is not one of DataContract"),
        ("- name: taps", "- name: Taps!", "taps.yaml:6: schema[0].name: 'Taps!' cannot name a stream"),
        ("primaryKey: true", "unique: true", "taps.yaml:6: schema[0]: no field is the event id"),
        ("partitioned: true", "unique: true", "taps.yaml:6: schema[0]: no field is the Kafka key"),
        (
            "logicalType: timestamp",
            "logicalType: date",
            "taps.yaml:6: schema[0]: which field is the event time?",
        ),
        ("# contract", "status: actve", "taps.yaml:20: status: 'actve' is not one of proposed"),
        (
            "# contract",
            "slaProperties: [{property: retention, value: 7}]",
            "taps.yaml:20: slaProperties[0].value",
        ),
        (
            "# contract",
            "slaProperties: [{property: retension, value: 7}]",
            "taps.yaml:20: slaProperties[0].prop",
        ),
        (
            "# contract",
            "  - {name: more, properties: []}",
            "taps.yaml:20: schema[1]: a contract describes one",
        ),
        (
            "    properties:",
            "    physicalName: x\n    properties:",
            "taps.yaml:7: schema[0].physicalName: 'x'",
        ),
        ("# contract", "statu: active", "taps.yaml:20: statu: the standard has no such key here"),
        ("# contract", "team: 5", "taps.yaml:20: team: "),
    ],
)
def test_mistakes_in_the_contract_itself(tmp_path: Path, before: str, after: str, start: str) -> None:
    assert before in BASE
    content = BASE.replace(before, after).replace("      # fields\n", "")
    message = error_of(tmp_path, content)
    assert message.startswith(start.replace("taps.yaml:20", "taps.yaml:19"))


def test_identity_fields_must_be_required_and_unmasked(tmp_path: Path) -> None:
    content = text().replace("        required: true\n        primaryKey: true", "        primaryKey: true")
    assert "'id' is the event id: make it a required string" in error_of(tmp_path, content)
    mask = "        customProperties: [{property: mask, value: hash}]\n"
    content = text().replace("        partitioned: true\n", "        partitioned: true\n" + mask)
    assert "'who' is the Kafka key, which every output needs" in error_of(tmp_path, content)


def test_all_problems_of_a_file_come_together_one_per_line_in_order(tmp_path: Path) -> None:
    content = text(
        "- name: x\n  logicalType: strng\n- name: _y\n  logicalType: integer\n  examples: [one]",
        CUSTOM.format(name="lateness", value="soon"),
    )
    lines = error_of(tmp_path, content).splitlines()
    numbers = [int(line.split(":")[1]) for line in lines]
    wanted = [line_of(content, part) for part in ("strng", "_y", "[one]", "soon")]
    assert numbers == wanted
    assert all(line.startswith("taps.yaml:") for line in lines)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "the file is empty"),
        (b"# nothing\n", "the file is empty"),
        (b"just text", "not a contract"),
        (b"- a\n- b\n", "taps.yaml:1: not a contract"),
        (b"kind: [\n", "not valid YAML"),
        (b"a: b\n  c: d\n", "taps.yaml:2: not valid YAML"),
        (b"a: 1\n---\nb: 2\n", "not valid YAML"),
        (b"\x89PNG\r\n\x1a\n\x00\xff\xfe", "not a text file"),
        (b"a: 1\nb: \x00\x01\n", "taps.yaml:2: not valid YAML: character"),
        (b"a: &a [*a]\n", "aliases expand without end"),
        (b"[" * 5000, "nested too deeply"),
        (b"x: [" + b"1, " * 1_500_000 + b"]", "larger than 4 MiB"),
    ],
)
def test_files_that_are_no_contracts(tmp_path: Path, content: bytes, part: str) -> None:
    (tmp_path / "taps.yaml").write_bytes(content)
    with pytest.raises(ContractError) as caught:
        load_contract(tmp_path / "taps.yaml")
    message = str(caught.value).replace(f"{tmp_path}/", "")
    assert message.startswith("taps.yaml")
    assert part in message


def test_aliases_that_multiply_are_refused(tmp_path: Path) -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "aliases expand without end" in error_of(tmp_path, "\n".join(levels))


def test_missing_files_folders_and_permissions(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"nowhere\.yaml: there is no such file"):
        load_contract(tmp_path / "nowhere.yaml")
    with pytest.raises(ContractError, match="this is a folder"):
        load_contract(tmp_path)
    with pytest.raises(ContractError, match="cannot be read"):
        load_contract("a\0b.yaml")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission(tmp_path: Path) -> None:
    file = tmp_path / "taps.yaml"
    file.write_text(text())
    file.chmod(0)
    with pytest.raises(ContractError, match="Permission denied"):
        load_contract(file)


def test_a_file_that_the_system_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "taps.yaml").write_text(text())
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ContractError, match=r"taps\.yaml: cannot be read: Permission denied"):
        load_contract(tmp_path / "taps.yaml")


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="no contract in this folder"):
        load_contracts(tmp_path)
    with pytest.raises(ContractError, match="cannot read the folder"):
        load_contracts(tmp_path / "none")
    (tmp_path / "a.yaml").write_text(text())
    (tmp_path / "b.yml").write_text(text())
    with pytest.raises(ContractError) as caught:
        load_contracts(tmp_path)
    assert "b.yml: the stream 'taps' is already described by" in str(caught.value)
    assert "a.yaml" in str(caught.value)
    (tmp_path / "c.yaml").write_text("")
    with pytest.raises(ContractError, match=r"(?s)b\.yml.*c\.yaml"):
        load_contracts(tmp_path)
