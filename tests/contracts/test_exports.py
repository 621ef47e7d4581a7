"""JSON Schema, topics and Spark types of a contract."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from headrace.contracts import load_contract, load_contracts
from headrace.contracts.json_schema import json_schema
from headrace.contracts.topics import topic_configs
from tests.contracts.files import TURANMART, load, text

ORDER: dict[str, Any] = {
    "event_id": "e1",
    "event_type": "order_created",
    "event_time": "2026-03-01T09:00:00.5+05:00",
    "order_id": "o-1",
    "customer_id": "c-1",
    "region": "almaty",
    "total": 10.5,
    "currency": "KZT",
    "promised_date": "2026-03-04",
    "gift": False,
    "shipping_address": {"recipient": "A", "street": "B 1", "city": "Almaty", "country": "KZ", "phone": None},
    "items": [{"product_id": "p-1", "quantity": 1, "unit_price": 10.5}],
    "attributes": {"courier": "x", "none": None},
    "schema_version": "1.0.0",
    "producer": "order-service",
    "more": "allowed",
}


@pytest.mark.parametrize("stream", ["clickstream", "payments", "orders", "logins"])
def test_the_schemas_of_the_shipped_contracts_are_valid_schemas(stream: str) -> None:
    schema = json_schema(load_contract(TURANMART / f"{stream}.yaml"))
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:headrace:{stream}:1.0.0"
    assert json.loads(json.dumps(schema)) == schema


def _judge(event: object) -> list[str]:
    schema = json_schema(load_contract(TURANMART / "orders.yaml"))
    return [error.message for error in Draft202012Validator(schema).iter_errors(event)]


def test_a_right_event_passes() -> None:
    assert _judge(ORDER) == []
    optional = ("promised_date", "gift", "shipping_address", "attributes")
    assert _judge(ORDER | dict.fromkeys(optional)) == []
    assert _judge({key: value for key, value in ORDER.items() if key not in optional}) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["event_id"], None),
        (["event_id"], ""),
        (["event_id"], 5),
        (["event_type"], "order_lost"),
        (["event_time"], "2026-03-01 09:00:00Z"),
        (["event_time"], "2026-03-01T09:00:00"),
        (["event_time"], 1772355600),
        (["total"], "10.5"),
        (["total"], -1),
        (["gift"], "no"),
        (["promised_date"], "04.03.2026"),
        (["items"], []),
        (["items", 0], None),
        (["items", 0, "quantity"], 1.5),
        (["items", 0, "quantity"], 0),
        (["items", 0, "product_id"], "90017"),
        (["shipping_address", "city"], None),
        (["shipping_address", "country"], "US"),
        (["attributes", "courier"], 7),
    ],
)
def test_a_wrong_event_fails(path: list[str | int], value: object) -> None:
    event: Any = copy.deepcopy(ORDER)
    inner = event
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    assert len(_judge(event)) == 1


def test_an_optional_enum_may_be_null(tmp_path: Path) -> None:
    schema = json_schema(load(tmp_path, text("- {name: x, logicalType: string, enum: [{value: a}]}")))
    judge = Draft202012Validator(schema["properties"]["x"])
    assert [judge.is_valid(value) for value in ("a", None, "b")] == [True, True, False]


def test_what_json_schema_cannot_say_is_in_the_description(tmp_path: Path) -> None:
    fields = """\
- {name: price, logicalType: number, physicalType: "decimal(12,2)", description: Per piece., examples: [1.50]}
- {name: born, logicalType: date, logicalTypeOptions: {minimum: 1900-01-01}}
- {name: n, logicalType: integer}
"""
    properties = json_schema(load(tmp_path, text(fields)))["properties"]
    assert properties["price"]["description"] == (
        "Per piece. decimal(12,2): at most 10 digits before the point and 2 after it."
    )
    assert properties["price"]["examples"] == [1.5]
    assert "multipleOf" not in properties["price"]
    assert properties["born"]["description"] == "not before 1900-01-01."
    assert (properties["n"]["minimum"], properties["n"]["maximum"]) == (-(2**63), 2**63 - 1)


def test_topics_and_their_settings(tmp_path: Path) -> None:
    more = "customProperties: [{property: partitions, value: 3}]\n"
    topics = topic_configs(load(tmp_path, text(contract=more)))
    assert list(topics) == ["taps.raw.v1", "taps.validated.v1", "taps.invalid.v1", "taps.late.v1"]
    assert {asked.partitions for asked in topics.values()} == {3}
    week, fortnight = str(7 * 86_400_000), str(14 * 86_400_000)
    assert topics["taps.raw.v1"].config == {
        "cleanup.policy": "delete",
        "retention.ms": week,
        "message.timestamp.type": "LogAppendTime",
    }
    kept = {topic: asked.config["retention.ms"] for topic, asked in topics.items()}
    assert kept == {
        "taps.raw.v1": week,
        "taps.validated.v1": week,
        "taps.invalid.v1": fortnight,
        "taps.late.v1": fortnight,
    }


def test_a_long_retention_holds_for_every_topic_and_compaction_only_where_keys_matter(tmp_path: Path) -> None:
    more = """\
slaProperties: [{property: retention, value: 90, unit: d}]
customProperties: [{property: compacted, value: true}]
"""
    topics = topic_configs(load(tmp_path, text(contract=more)))
    assert {asked.config["retention.ms"] for asked in topics.values()} == {str(90 * 86_400_000)}
    policies = {topic.split(".")[1]: asked.config["cleanup.policy"] for topic, asked in topics.items()}
    assert policies == {"raw": "compact", "validated": "compact", "invalid": "delete", "late": "delete"}


def test_spark_types() -> None:
    from headrace.contracts.spark_schema import spark_schema

    schema = spark_schema(load_contract(TURANMART / "orders.yaml"))
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    assert kinds["event_time"] == "timestamp"
    assert kinds["total"] == "decimal(12,2)"
    assert kinds["promised_date"] == "date"
    assert kinds["gift"] == "boolean"
    assert kinds["items"] == "array<struct<product_id:string,quantity:bigint,unit_price:decimal(12,2)>>"
    assert kinds["attributes"] == "map<string,string>"
    assert kinds["shipping_address"].startswith("struct<recipient:string,street:string,phone:string")
    assert all(field.nullable for field in schema.fields)


def test_a_number_is_a_double(tmp_path: Path) -> None:
    from headrace.contracts.spark_schema import spark_schema

    contract = load(tmp_path, text("- {name: x, logicalType: number}"))
    assert spark_schema(contract)["x"].dataType.simpleString() == "double"


def test_contracts_are_read_without_spark_or_kafka() -> None:
    modules = (
        "headrace.contracts, headrace.contracts.evolution, headrace.contracts.topics, headrace.cli.contract"
    )
    probe = f"import sys, {modules}; print([m for m in ('pyspark', 'confluent_kafka') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_stream_has_its_own_topics() -> None:
    names = [topic for contract in load_contracts(TURANMART).values() for topic in topic_configs(contract)]
    assert len(names) == len(set(names)) == 16
