"""A table of 100,000 rows for the benchmark of enrichment: 50,000 products with a price before and now."""

from __future__ import annotations

from pathlib import Path

from headrace.app import App
from headrace.dimensions import table
from headrace.enrich import Enrich

PRODUCTS = 50_000


def enrichment(folder: Path, stream: str) -> Enrich:
    file = folder / "products.csv"
    with file.open("w") as out:
        out.write("product_id,valid_from,category,list_price\n")
        for number in range(PRODUCTS):
            for since in ("2020-01-01", "2026-01-01"):
                out.write(f"p-{number},{since},category-{number % 200},{number / 100:.2f}\n")
    products = table("products", key="product_id", file=str(file), types={"list_price": "number"})
    return App("bench").enrich(
        "bench_enriched",
        of=stream,
        with_=products,
        columns={"category": "products.category", "list_price": "products.list_price"},
        topic="bench.enriched.v1",
    )
