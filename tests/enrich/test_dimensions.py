"""Versioned tables: the version at a moment, files that are wrong, changes while an engine runs."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace import table
from headrace.dimension_files import read_file
from headrace.dimensions import Dimension, Row, versions_of
from headrace.errors import AppError
from headrace.local.services import Services
from headrace.store.connection import Store
from headrace.store.dimensions import LiveDimension
from tests.oracle.enrich_oracle import DimensionRow, version_at

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = datetime(2026, 3, 1, 9, tzinfo=UTC)


def micros(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def products(tmp_path: Path, text: str, suffix: str = "csv", **more: Any) -> Dimension:
    file = tmp_path / f"products.{suffix}"
    file.write_text(text)
    return table("products", key="product_id", file=str(file), **more)


@pytest.mark.parametrize("seed", range(20))
def test_the_version_at_any_moment_is_the_oracles(seed: int) -> None:
    r = random.Random(seed)
    rows = {}
    for _ in range(60):
        start = START + timedelta(seconds=r.randrange(40))
        end = start + timedelta(seconds=r.randrange(1, 20)) if r.random() < 0.3 else None
        key = f"p{r.randrange(5)}"
        rows[key, start] = DimensionRow(key, start, {"price": r.randrange(1000)}, end)
    given = [
        Row(row.key, micros(row.valid_from), micros(row.valid_to) if row.valid_to else None, (row.values,))
        for row in rows.values()
    ]
    r.shuffle(given)
    versions = versions_of(("all",), given)
    for key in ("p0", "p1", "p2", "p3", "p4", "p5"):
        for second in range(-2, 70):
            at = START + timedelta(seconds=second)
            wanted, found = version_at(list(rows.values()), key, at), versions.as_of(key, micros(at))
            if wanted is None:
                assert found is None
            else:
                assert found == (micros(wanted.valid_from), (wanted.values,))
    assert versions.as_of(None, micros(START)) is None


def test_a_price_change_does_not_touch_what_was_before(tmp_path: Path) -> None:
    dimension = products(
        tmp_path,
        "product_id,valid_from,price,name\n"
        "p-1,2026-03-01T10:05:00Z,12.50,kettle\n"
        'p-1,2026-03-01T09:00:00+00:00,10.00,"kettle, old"\n'
        "p-2,,7,pan\n",
        types={"price": "number"},
    )
    versions = read_file(dimension)
    at = {minute: micros(START + timedelta(minutes=minute)) for minute in (-1, 63, 65)}
    places = [versions.columns.index(name) for name in ("price", "name")]

    def shown(key: str, minute: int) -> list[str] | None:
        found = versions.as_of(key, at[minute])
        return [str(found[1][place]) for place in places] if found else None

    assert shown("p-1", -1) is None
    assert shown("p-1", 63) == ["10.00", "kettle, old"]
    assert shown("p-1", 65) == ["12.50", "kettle"]
    assert shown("p-2", -1) == ["7", "pan"]


def test_json_lines_are_read_too(tmp_path: Path) -> None:
    rows = [
        {"product_id": "p-1", "valid_from": "2026-03-01T09:00:00Z", "price": 1.10, "new": True, "name": "ä"},
        {"product_id": 7, "valid_from": None, "price": None, "new": False, "name": None},
    ]
    text = "\n".join(map(json.dumps, rows)) + "\n\n"
    versions = read_file(products(tmp_path, text, "jsonl", types={"price": "number", "new": "boolean"}))
    found = versions.as_of("p-1", micros(START))
    assert found is not None and [str(value) for value in found[1]] == ["1.1", "True", "ä"]
    assert versions.as_of("7", 0) is not None


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("", None, "empty"),
        ("product,valid_from,price\n", 1, "no column 'product_id'"),
        ("product_id,price\np-1,2\n", 1, "no column 'valid_from'"),
        ("product_id,valid_from,price\n,2026-03-01,2\n", 2, "no product_id"),
        ("product_id,valid_from,price\np-1,yesterday,2\n", 2, "no time"),
        ("product_id,valid_from,price\np-1,2026-03-01,2\np-2,2026-03-01,dear\n", 3, "'dear' is no number"),
        ("product_id,valid_from,price\np-1,2026-03-01\n", 2, "2 values for 3 columns"),
        ("product_id,valid_from,price\np-1,2026-03-01,2\np-1,2026-03-01T00:00Z,3\n", 3, "two versions"),
        ("product_id,valid_from,price,price\np-1,2026-03-01,2,3\n", 1, "two columns"),
        ("product_id,valid_from,price\n" + "".join(f"p-{n},,1\n" for n in range(4)), 5, "more than 3 rows"),
    ],
)
def test_a_wrong_file_is_told_with_its_line(
    tmp_path: Path, text: str, line: int | None, problem: str
) -> None:
    dimension = products(tmp_path, text, types={"price": "number"}, limit=3)
    with pytest.raises(AppError, match=problem) as error:
        read_file(dimension)
    assert error.value.where == (f"{dimension.file}:{line}" if line else str(dimension.file))


def test_wrong_declarations_say_so() -> None:
    for given, problem in (
        ({}, "a file, a store or a lake"),
        ({"file": "a.csv", "store": "a.b"}, "a file, a store or a lake"),
        ({"file": "a.csv", "lake": "b"}, "a file, a store or a lake"),
        ({"store": "products"}, "no table of the store"),
        ({"file": "a.csv", "types": {"price": "money"}}, "no type 'money'"),
        ({"file": "a.csv", "limit": 0}, "at least 1"),
        ({"replica": "products"}, "tables of a CDC replica cannot be looked up yet"),
    ):
        with pytest.raises(AppError, match=problem) as error:
            table("products", key="product_id", **given)  # type: ignore[arg-type]
        assert error.value.where.startswith(__file__)


def test_a_changed_file_is_read_again_and_a_broken_one_is_not(tmp_path: Path) -> None:
    dimension = products(tmp_path, "product_id,valid_from\np-1,\n")
    assert dimension.file is not None
    live = LiveDimension(dimension, None, check_seconds=0.0)
    assert live.current().rows == 1
    assert (live.current(), live.generation) == (live.current(), 1)
    dimension.file.write_text("product_id,valid_from\np-1,\np-2,\n")
    assert (live.current().rows, live.generation) == (2, 2)
    dimension.file.write_text("product_id,valid_from\np-1,never\np-2,\n")
    assert (live.current().rows, live.generation) == (2, 2)
    assert "products.csv:2" in live.problem
    dimension.file.unlink()
    assert live.current().rows == 2
    assert "cannot read" in live.problem
    dimension.file.write_text("product_id,valid_from\np-3,\n")
    assert (live.current().rows, live.generation, live.problem) == (1, 3, "")


def test_a_table_of_the_store_is_read_and_followed(services: Services) -> None:
    store = Store(services.store_url)
    with psycopg.connect(services.store_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS dims")
        connection.execute(
            "CREATE TABLE dims.products (product_id int, valid_from timestamptz, price numeric, sold date)"
        )
        dimension = table(
            "products", key="product_id", store="dims.products", types={"price": "number"}, limit=3
        )
        live = LiveDimension(dimension, store, check_seconds=0.0)
        assert live.current().rows == 0
        connection.execute("INSERT INTO dims.products VALUES (1, %s, 2.50, '2026-03-01')", (START,))
        found = live.current().as_of("1", micros(START))
        assert found is not None and [str(value) for value in found[1]] == ["2.50", "2026-03-01"]
        connection.execute("CREATE VIEW dims.cheap AS SELECT * FROM dims.products WHERE price < 5")
        cheap = LiveDimension(
            table("cheap", key="product_id", store="dims.cheap", types={"price": "number"}), store, 0.0
        )
        assert (cheap.current().rows, cheap.generation) == (1, 1)
        assert (cheap.current().rows, cheap.generation) == (1, 1)
        connection.execute("UPDATE dims.products SET price = 3.75")  # a view has no count of its changes
        found = cheap.current().as_of("1", micros(START))
        assert found is not None and str(found[1][0]) == "3.75"
        connection.execute("INSERT INTO dims.products SELECT n, now(), 1 FROM generate_series(2, 4) n")
        assert live.current().rows == 1
        assert "more than 3 rows" in live.problem
        undated = table("undated", key="product_id", store="dims.products", valid_from="since")
        with pytest.raises(AppError, match="no column 'since'"):
            LiveDimension(undated, store).current()
    missing = table("nothing", key="id", store="dims.nothing")
    with pytest.raises(AppError, match=r"the store has no dims\.nothing"):
        LiveDimension(missing, store).current()
