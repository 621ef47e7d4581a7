"""Tables of the lake: Delta tables as they are written, followed while an engine runs, and wrong ones."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace import App, Dimension, table
from headrace.dimension_lake import LakeTable
from headrace.dimensions import Versions
from headrace.errors import AppError
from headrace.store.dimensions import LiveDimension

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = datetime(2026, 3, 1, 9, tzinfo=UTC)
TIMES = pa.timestamp("us", "UTC")
PRICES = pa.decimal128(12, 2)


def micros(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def write(
    folder: Path, *rows: tuple[str | None, datetime | None, str], mode: str = "append", **more: Any
) -> None:
    """Rows of a key, its `valid_from` and a price."""
    keys, times, prices = ([row[n] for row in rows] for n in range(3))
    columns = {
        "product_id": pa.array(keys, pa.string()),
        "valid_from": pa.array(times, TIMES),
        "price": pa.array([Decimal(price) for price in prices], PRICES),
    }
    write_deltalake(str(folder), pa.table({**columns, **more}), mode=mode)  # type: ignore[call-overload]


def products(folder: Path, **more: Any) -> Dimension:
    given = {"key": "product_id", "types": {"price": "number"}, **more}
    return table("products", lake=str(folder), **given)


def price_at(versions: Versions, key: str, at: datetime) -> str | None:
    found = versions.as_of(key, micros(at))
    return str(found[1][versions.columns.index("price")]) if found else None


def test_a_version_that_is_appended_does_not_touch_what_was_before(tmp_path: Path) -> None:
    folder = tmp_path / "products"
    write(folder, ("p-1", START, "10.00"), ("p-2", None, "7"))
    live = LiveDimension(products(folder), None, check_seconds=0.0)
    before = live.current()
    assert price_at(before, "p-1", START - timedelta(seconds=1)) is None
    assert price_at(before, "p-1", START + timedelta(hours=2)) == "10.00"
    assert price_at(before, "p-2", EPOCH) == "7.00"
    write(folder, ("p-1", START + timedelta(hours=1), "12.50"))
    after = live.current()
    assert (after.rows, live.generation) == (3, 2)
    assert price_at(after, "p-1", START + timedelta(minutes=59)) == "10.00"
    assert price_at(after, "p-1", START + timedelta(hours=2)) == "12.50"
    write(folder, ("p-1", START - timedelta(hours=1), "9.00"))  # a row that comes late
    assert price_at(live.current(), "p-1", START - timedelta(seconds=1)) == "9.00"
    assert price_at(live.current(), "p-1", START) == "10.00"


def test_a_changed_table_is_read_again_and_a_broken_one_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "products"
    write(folder, ("p-1", None, "1"))
    live = LiveDimension(products(folder, limit=3), None, check_seconds=0.0)
    assert (live.current(), live.generation) == (live.current(), 1)
    write(folder, ("p-2", None, "1"))
    assert (live.current().rows, live.generation, live.problem) == (2, 2, "")
    write(folder, ("p-2", None, "3"))
    assert (live.current().rows, live.generation) == (2, 2)
    assert "product_id 'p-2' has two versions of the same moment" in live.problem
    DeltaTable(folder).delete("price = 3")
    assert (live.current().rows, live.problem) == (2, "")
    write(folder, *((f"p-{n}", START, "1") for n in range(2)))
    assert live.current().rows == 2
    assert "more than 3 rows" in live.problem
    shutil.rmtree(folder)
    assert live.current().rows == 2
    assert f"there is no {folder}" in live.problem
    write(folder, ("p-7", None, "1"))
    for _ in range(2):
        assert (live.current().rows, price_at(live.current(), "p-7", START)) == (1, "1.00")
    assert live.problem == ""


def test_a_table_that_is_made_again_with_the_same_version_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "products"
    write(folder, ("p-1", None, "1"))
    live = LiveDimension(products(folder), None, check_seconds=0.0)
    assert price_at(live.current(), "p-1", START) == "1.00"
    shutil.rmtree(folder)
    write(folder, ("p-1", None, "2"))
    assert DeltaTable(folder).version() == 0
    assert price_at(live.current(), "p-1", START) == "2.00"


def test_columns_of_all_plain_types_are_read(tmp_path: Path) -> None:
    given = pa.table(
        {
            "id": pa.array([7, 8], pa.int64()),
            "since": pa.array([date(2026, 3, 1), None], pa.date32()),
            "until": pa.array(["2026-03-02T00:00:00Z", None]),
            "list price": pa.array([0.1, None], pa.float32()),
            "rate": pa.array([0.1, 2.0], pa.float64()),
            "stock": pa.array([3, None], pa.int16()),
            "new": pa.array([True, None]),
            "sold": pa.array([datetime(2026, 3, 1), None], pa.timestamp("us")),
            "region": pa.array(["eu", "tr"]),
            "tags": pa.array([["a"], []]),
            "picture": pa.array([b"x", None]),
        }
    )
    write_deltalake(str(tmp_path / "things"), given, partition_by=["region"])
    dimension = table(
        "things",
        key="id",
        lake=str(tmp_path / "things"),
        valid_from="since",
        valid_to="until",
        types={"list price": "number", "rate": "number", "stock": "integer", "new": "boolean"},
    )
    versions = LakeTable(dimension).read()
    found = versions.as_of("7", micros(START))
    assert found is not None and found[0] == micros(datetime(2026, 3, 1, tzinfo=UTC))
    assert dict(zip(versions.columns, found[1], strict=True)) == {
        "list price": Decimal("0.1"),
        "rate": Decimal("0.1"),
        "stock": 3,
        "new": True,
        "sold": "2026-03-01 00:00:00",
        "region": "eu",
    }
    assert versions.as_of("7", micros(datetime(2026, 3, 2, tzinfo=UTC))) is None
    found = versions.as_of("8", 0)
    assert found is not None and found[1] == (None, Decimal("2.0"), None, None, None, "tr")


def test_a_table_without_rows_knows_nothing(tmp_path: Path) -> None:
    write(tmp_path / "products")
    assert LakeTable(products(tmp_path / "products")).read().rows == 0


def wrong(dimension: Dimension) -> AppError:
    with pytest.raises(AppError) as error:
        LiveDimension(dimension, None).current()
    assert error.value.where == dimension.declared_at
    assert dimension.declared_at.startswith(__file__)
    assert "\n" not in error.value.what
    return error.value


def test_what_is_no_delta_table_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "products"
    assert wrong(products(folder)).what == f"table 'products': there is no {folder}"
    folder.mkdir()
    assert wrong(products(folder)).what == f"table 'products': {folder} is no Delta table"
    (tmp_path / "file.csv").write_text("product_id\n")
    assert "file.csv is no Delta table" in wrong(products(tmp_path / "file.csv")).what
    (folder / "_delta_log").mkdir()
    assert f"there is no Delta table at {folder}" in wrong(products(folder)).what
    assert "Unknown scheme: lakes" in wrong(table("products", key="product_id", lake="lakes://a/b")).what


def test_a_table_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "products"
    write(folder, ("p-1", None, "1"))
    for file in folder.glob("*.parquet"):
        file.unlink()
    assert f"cannot read {folder}: " in wrong(products(folder)).what
    (folder / "_delta_log" / f"{1:020}.json").write_text("nothing that is JSON")
    assert f"cannot read {folder}: " in wrong(products(folder)).what


def test_a_lake_that_does_not_answer_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "none",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    said = wrong(table("products", key="product_id", lake="s3://bucket/products")).what
    assert wrong(table("products", key="product_id", lake="s3://bucket/products")).what == said
    assert said.startswith("table 'products': cannot read s3://bucket/products: ")
    assert "Connection refused" in said


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"key": "product"}, "table 'products' has no column 'product'"),
        ({"valid_from": "since"}, "table 'products' has no column 'since'"),
        ({"types": {"cost": "number"}}, "table 'products' has no column 'cost'"),
        ({"types": {"tags": "string"}}, "table 'products': column 'tags' is list<element: string>"),
        ({"types": {"name": "number"}}, "table 'products': name: 'pan' is no number, in a row of KEY"),
        ({"types": {"name": "boolean"}}, "table 'products': name: 'pan' is no boolean, in a row of KEY"),
        ({"valid_from": "name"}, "table 'products': name: 'pan' is no time, in a row of KEY"),
        ({"valid_to": "ended"}, "table 'products': ended is not after valid_from, in a row of KEY"),
        ({"key": "empty"}, "table 'products': no empty"),
    ],
)
def test_a_wrong_column_or_value_is_told(tmp_path: Path, more: dict[str, Any], problem: str) -> None:
    write(
        tmp_path / "products",
        ("p-2", START, "7"),
        name=pa.array(["pan"]),
        tags=pa.array([["a"]]),
        ended=pa.array([START], TIMES),
        empty=pa.array([""]),
    )
    said = wrong(products(tmp_path / "products", **more)).what
    assert said.startswith(problem.replace("KEY", "product_id 'p-2'"))


def test_a_time_that_python_does_not_know_is_told(tmp_path: Path) -> None:
    rows = (("p-1", START, "1"), ("p-2", START, "1"))
    write(tmp_path / "products", *rows, never=pa.array([None, 2**62], TIMES))
    said = wrong(products(tmp_path / "products", valid_to="never")).what
    assert said == "table 'products': product_id 'p-2' has a time outside the years 1 to 9999"


def test_no_more_is_read_than_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "products"
    for file in range(4):
        write(folder, *((f"p-{file}-{n}", None, "1") for n in range(5)))
    assert LakeTable(products(folder, limit=20)).read().rows == 20
    read: list[int] = []
    scan = DeltaTable.scan
    monkeypatch.setattr(DeltaTable, "scan", lambda self, **given: read.append(1) or scan(self, **given))
    assert "more than 19 rows" in wrong(products(folder, limit=19)).what
    assert not read  # the log says how many there are
    monkeypatch.setattr(DeltaTable, "count", lambda self: 0)  # files without statistics
    assert "more than 19 rows" in wrong(products(folder, limit=19)).what
    assert read


def test_a_folder_is_beside_the_app_and_an_address_is_not() -> None:
    def placed(lake: str) -> str:
        [found] = (
            App("shop")
            .enrich(
                "clicks_enriched",
                of="clicks",
                with_=table("products", key="product_id", lake=lake),
                columns={"price": "products.price"},
                topic="clicks.enriched.v1",
            )
            .tables
        )
        return found.place

    assert placed("lake/products") == str(Path(__file__).parent / "lake" / "products")
    assert placed("/data/products") == "/data/products"
    assert placed("s3://bucket/products") == "s3://bucket/products"
