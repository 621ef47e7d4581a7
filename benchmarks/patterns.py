"""Five patterns on the benchmark's clickstream: together they take about one event in ten."""

from __future__ import annotations

from headrace.app import App
from headrace.patterns import Pattern

CART, CHECKOUT, PURCHASE = (
    f"event_type = '{name}'" for name in ("add_to_cart", "checkout_started", "purchase")
)


def five_patterns() -> list[Pattern]:
    app = App("bench")
    by_customer = {"of": "bench", "key": "customer_id"}
    large = {"A": CART, "P": f"{PURCHASE} AND price >= 900"}
    app.pattern("large_at_last", sequence="A{3,} P", define=large, within="10 minutes", **by_customer)
    bought = {"C": CHECKOUT, "P": PURCHASE, "A": CART}
    app.pattern("straight", sequence="C !A P", define=bought, within="5 minutes", **by_customer)
    app.pattern("many_carts", where=CART, count=4, within="2 minutes", **by_customer)
    app.pattern("many_checkouts", where=CHECKOUT, count=3, within="10 minutes", **by_customer)
    app.pattern("abandoned", starts=CHECKOUT, without=PURCHASE, within="10 minutes", **by_customer)
    return list(app.patterns.values())
