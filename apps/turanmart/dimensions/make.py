"""Make the tables that events are enriched with: python apps/turanmart/dimensions/make.py

The products of the shop with their prices in dollars, some of which change, and the members of its loyalty
programme. Drawn from the seed that the shoppers have by default.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from random import Random

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2])]

from traffic import Traffic  # noqa: E402
from traffic.shop import money, open_shop  # noqa: E402

CATEGORIES = (
    *("kettles", "phones", "carpets", "tea", "toys", "shoes", "books", "tools", "lamps", "bicycles"),
    *("cosmetics", "ceramics", "textiles", "furniture", "headphones", "spices", "watches", "bags"),
)
OPENED = "2026-01-01T00:00:00Z"
CHANGES = ("2026-03-01T10:05:00Z", "2026-07-01T00:00:00Z", "2026-11-11T00:00:00Z")
MEMBERS = 5_000


def main() -> None:
    rng = Random(11)
    shop = open_shop(Random(Traffic().seed))
    products = []
    for product in sorted({product.id: product for product in shop.products}.values()):
        category = rng.choice(CATEGORIES)
        products.append((product.id, OPENED, category, money(product.cents)))
        if rng.random() < 0.25:
            changed = int(product.cents * rng.uniform(0.7, 1.2))
            products.append((product.id, rng.choice(CHANGES), category, money(changed)))
    _write("products.csv", ("product_id", "valid_from", "category", "list_price"), products)
    customers = []
    for customer in sorted(shop.customers)[:MEMBERS]:
        level = rng.choices(("basic", "silver", "gold"), (80, 15, 5))[0]
        customers.append((customer.id, OPENED, level, rng.randrange(2015, 2026)))
        if level != "gold" and rng.random() < 0.05:
            customers.append((customer.id, rng.choice(CHANGES), "gold", customers[-1][3]))
    _write("customers.csv", ("customer_id", "valid_from", "level", "member_since"), customers)


def _write(name: str, header: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    with (HERE / name).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    print(f"{HERE / name}: {len(rows):,} rows")


if __name__ == "__main__":
    main()
