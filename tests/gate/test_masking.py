"""No classified value leaves the gate, whatever becomes of the record."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.contracts import Contract, Field
from headrace.gate.mask import has_masks, is_masked
from headrace.ops.simulate import Input, simulate
from headrace.testing.fuzz import NOW, fuzz_records
from tests.gate.frames import turanmart
from tests.oracle.gate_oracle import examine

SALT = "pepper"


def masked_paths(fields: tuple[Field, ...], inside: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for field in fields:
        path = (*inside, field.name)
        if field.mask is not None:
            found.append(path)
        found += masked_paths(field.type.fields, path)
    return found


def marked(contract: Contract, seed: int) -> tuple[list[bytes], list[str]]:
    """Records in which every masked value is a text found nowhere else; some of the records are invalid."""
    rng = Random(seed)
    lines, secrets = [], []
    for value in fuzz_records(contract, 1500, seed):
        if examine(contract, value, NOW)[1]:
            continue
        record = json.loads(value or b"")
        for path in masked_paths(contract.fields):
            holder: Any = record
            for name in path[:-1]:
                holder = holder.get(name) or {}
            if isinstance(holder.get(path[-1]), str):
                secret = f"{rng.randrange(10**14):014d}"
                secret = "+" + secret if path[-1] == "phone" else "secret" + secret
                holder[path[-1]] = secret
                secrets.append(secret)
        if rng.random() < 0.3:
            record["schema_version"] = rng.choice([1, None, []])
        line = json.dumps(record).encode()
        lines.append(line if rng.random() < 0.9 else line[: rng.randrange(len(line))])
    return lines, secrets


@pytest.mark.parametrize("stream", ["payments", "logins", "orders"])
def test_no_masked_value_leaves(spark: SparkSession, tmp_path: Path, stream: str) -> None:
    contract = turanmart(stream)
    assert is_masked(contract)
    lines, secrets = marked(contract, seed=5)
    assert len(secrets) > 100
    file = tmp_path / "in.jsonl"
    file.write_bytes(b"\n".join(lines))
    audit = simulate(spark, [Input(contract, file, 2)], tmp_path / "out", salt=SALT)
    source = audit["sources"][stream]
    assert source["accepted"] > 50 and source["rejected"] > 50
    for output in (tmp_path / "out").iterdir():
        content = output.read_text()
        leaked = [secret for secret in secrets if secret in content]
        assert leaked == [], output.name
    invalid = (tmp_path / "out" / f"{stream}.invalid.jsonl").read_bytes().splitlines()
    hidden = {field.name for field in contract.fields if has_masks(field)}
    assert not any(hidden & set(json.loads(line)) for line in invalid if line)


def test_a_hash_is_stable_under_its_salt(spark: SparkSession, tmp_path: Path) -> None:
    contract = turanmart("payments")
    lines, _ = marked(contract, seed=6)
    cards = [
        json.loads(line)["card_hash"] for line in lines if line.endswith(b"}") and b'"card_hash": "s' in line
    ]
    file = tmp_path / "in.jsonl"
    file.write_bytes(b"\n".join(lines))
    given = Input(contract, file, 2)
    contents = []
    for name, salt in (("one", SALT), ("two", SALT), ("three", "other")):
        simulate(spark, [given], tmp_path / name, salt=salt)
        contents.append((tmp_path / name / "payments.validated.jsonl").read_bytes())
    assert contents[0] == contents[1] != contents[2]
    hashes = {hashlib.sha256((SALT + card).encode()).hexdigest() for card in cards}
    shown = {json.loads(line).get("card_hash") for line in contents[0].splitlines()} - {None}
    assert shown and shown <= hashes
