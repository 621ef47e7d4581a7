"""Shoppers: page_view, product_impression, product_click, add_to_cart, checkout_started, purchase."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .journey import Journey, Order, Waiting, uuid
from .shop import MOBILE, UNITS_PER_DOLLAR, Customer, Product, Shop

CLICKED, CARTED, CHECKED_OUT, BOUGHT = 0.35, 0.28, 0.55, 0.72  # of those who came one step less far
_TEMPLATES = 2048
_PAGES = (
    "/",
    "/",
    "/sale",
    "/search",
    *(f"/catalogue/{c}" for c in ("phones", "kettles", "clothes", "books", "kids")),
)
_PRODUCERS = {
    "web": "storefront-web",
    "mobile_web": "storefront-web",
    "ios": "storefront-ios",
    "android": "storefront-android",
}
_QUANTITIES = (1, 1, 1, 1, 1, 1, 2, 2, 3, 5)

_NO_PRODUCT = -1
Template = list[tuple[str, int]]  # event types, each with the number of the product it is about


def shoppers(
    rng: Random, shop: Shop, who: Callable[[], Customer], campaign: str | None = None
) -> Callable[[], Journey]:
    """Journeys through the shop; all of one campaign if it is given."""
    templates = [_template(rng) for _ in range(_TEMPLATES)]
    random = rng.random
    products, devices, campaigns = shop.products, shop.devices, shop.campaigns

    def begin() -> Journey:
        customer = who()
        currency = customer.region.currency
        device = devices[int(random() * len(devices))]
        source = campaign or campaigns[int(random() * len(campaigns))]
        trace_id = f"{rng.getrandbits(128):032x}"
        visitor = (
            f'"session_id":"s-{rng.getrandbits(64):016x}","customer_id":"{customer.id}",'
            f'"region":"{customer.region.name}","device_type":"{device}"'
        )
        ending = (
            f',"campaign":"{source}"' if source else ""
        ) + f',"schema_version":"1.0.0","producer":"{_PRODUCERS[device]}","trace_id":"{trace_id}"}}'
        looked_at: dict[int, Product] = {}
        quantity = _QUANTITIES[int(random() * len(_QUANTITIES))]
        steps = []
        for event_type, number in templates[int(random() * _TEMPLATES)]:
            order = None
            if number == _NO_PRODUCT:
                about = f'"page":"{_PAGES[int(random() * len(_PAGES))]}"'
            else:
                product = looked_at.get(number)
                if product is None:
                    product = looked_at[number] = products[int(random() * len(products))]
                about = (
                    f'"page":"{product.page}","product_id":"{product.id}","price":{product.prices[currency]}'
                )
                if event_type in ("add_to_cart", "checkout_started", "purchase"):
                    about += f',"quantity":{quantity}'
                if event_type == "purchase":
                    about += f',"checkout_ms":{int(rng.lognormvariate(6.8, 0.6))}'
                if event_type == "checkout_started":
                    order = open_order(rng, customer, [(product, quantity)], trace_id)
            steps.append(
                Waiting(
                    customer.key,
                    f'{{"event_id":"{uuid(rng)}","event_type":"{event_type}","event_time":"',
                    f'",{visitor},{about}{ending}',
                    order,
                )
            )
        steps.reverse()
        return Journey(steps, device in MOBILE)

    return begin


def open_order(rng: Random, customer: Customer, basket: list[tuple[Product, int]], trace_id: str) -> Order:
    """Prices become those of the customer's currency; one in fifty pays in dollars."""
    currency = customer.region.currency if rng.random() < 0.98 else "USD"
    unit = UNITS_PER_DOLLAR[currency]
    items = ",".join(
        f'{{"product_id":"{p.id}","quantity":{n},"unit_price":{p.prices[currency]}}}' for p, n in basket
    )
    total = sum(p.cents * unit * n for p, n in basket)
    return Order(f"o-{rng.randrange(10**9, 10**10)}", customer, currency, f"[{items}]", total, trace_id)


def _template(rng: Random) -> Template:
    steps: Template = [("page_view", _NO_PRODUCT)]
    carted = []
    while rng.random() < 0.3:
        steps.append(("page_view", _NO_PRODUCT))
    for number in range(min(15, int(rng.expovariate(0.22)))):
        steps.append(("product_impression", number))
        if rng.random() < CLICKED:
            steps.append(("product_click", number))
            if rng.random() < CARTED:
                steps.append(("add_to_cart", number))
                carted.append(number)
    if carted and rng.random() < CHECKED_OUT:
        steps.append(("checkout_started", carted[-1]))
        if rng.random() < BOUGHT:
            steps.append(("purchase", carted[-1]))
    return steps
