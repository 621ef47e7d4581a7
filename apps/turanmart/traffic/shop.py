"""The shop itself: regions, products, customers. Drawn once from the seed, then only looked up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import NamedTuple, TypeVar

T = TypeVar("T")

CAMPAIGNS = ("navruz-2026", "ramadan-2026", "back-to-school", "winter-tech", "first-order", "bring-a-friend")
_CAMPAIGN_WEIGHTS = (8, 6, 5, 5, 4, 2)
DEVICES = {"android": 44, "ios": 22, "mobile_web": 16, "web": 18}
MOBILE = ("android", "ios", "mobile_web")
UNITS_PER_DOLLAR = {"UZS": 12_600, "KZT": 480, "KGS": 87, "USD": 1}
PRODUCTS = 4_000
CUSTOMERS = 50_000
GUESTS = 10_000
_POOL = 1 << 15  # a draw from a pool this long is one index, and its shares are right to four digits


class Region(NamedTuple):
    name: str
    weight: int
    city: str
    country: str
    postal: str
    currency: str
    phone: str


REGIONS = (
    Region("tashkent", 38, "Tashkent", "UZ", "1000", "UZS", "+99890"),
    Region("almaty", 27, "Almaty", "KZ", "0500", "KZT", "+77012"),
    Region("samarkand", 13, "Samarkand", "UZ", "1401", "UZS", "+99891"),
    Region("astana", 13, "Astana", "KZ", "0100", "KZT", "+77172"),
    Region("bishkek", 9, "Bishkek", "KG", "7200", "KGS", "+99655"),
)


class Product(NamedTuple):
    id: str
    cents: int  # in US dollars
    prices: dict[str, str]  # by currency, as JSON
    page: str


class Customer(NamedTuple):
    id: str
    key: bytes
    region: Region
    phone: str


@dataclass(frozen=True)
class Shop:
    products: list[Product]  # long: the best sellers occur often
    customers: list[Customer]
    guests: list[Customer]
    hot: Customer
    devices: list[str]
    campaigns: list[str | None]


def open_shop(rng: Random) -> Shop:
    products = [_product(rng, number) for number in range(1, PRODUCTS + 1)]
    ranked = rng.sample(products, len(products))
    homes = rng.choices(REGIONS, [r.weight for r in REGIONS], k=CUSTOMERS + GUESTS)
    customers = [_customer(rng, f"c-{100_000 + n}", homes[n]) for n in range(CUSTOMERS)]
    guests = [_customer(rng, f"guest-{rng.getrandbits(32):08x}", home) for home in homes[CUSTOMERS:]]
    paying = [None, *CAMPAIGNS]
    return Shop(
        products=_pool(rng, ranked, [1 / rank**1.05 for rank in range(1, PRODUCTS + 1)]),
        customers=customers,
        guests=guests,
        hot=rng.choice(customers),
        devices=_pool(rng, list(DEVICES), list(DEVICES.values())),
        campaigns=_pool(rng, paying, [70, *_CAMPAIGN_WEIGHTS]),
    )


def money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


def _product(rng: Random, number: int) -> Product:
    cents = min(300_000, max(99, int(rng.lognormvariate(7.6, 1.1)) // 10 * 10 + 9))
    prices = {currency: money(cents * unit) for currency, unit in UNITS_PER_DOLLAR.items()}
    return Product(f"p-{10_000 + number}", cents, prices, f"/catalogue/p-{10_000 + number}")


def _customer(rng: Random, name: str, region: Region) -> Customer:
    return Customer(name, name.encode(), region, f"{region.phone}{int(rng.random() * 10**7):07d}")


def _pool(rng: Random, things: list[T], weights: list[float]) -> list[T]:
    """The things, each as often as its weight says, in random order."""
    total = sum(weights)
    ends = [round(end / total * _POOL) for end in accumulate(weights)]
    pool = list(_repeated(things, ends))
    rng.shuffle(pool)
    return pool


def _repeated(things: list[T], ends: list[int]) -> Iterator[T]:
    start = 0
    for thing, end in zip(things, ends, strict=True):
        yield from [thing] * (end - start)
        start = end
