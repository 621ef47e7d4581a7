"""What follows a checkout: the payment, with its failures and refunds, and the life of the order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from random import Random

from .clickstream import open_order
from .journey import Journey, Order, Waiting, uuid
from .shop import UNITS_PER_DOLLAR, Customer, Shop, money

METHODS = ("card", "card", "card", "card", "card", "wallet", "wallet", "cash_on_delivery", "bank_transfer")
FAILURES = (
    *("insufficient_funds", "insufficient_funds", "card_expired", "limit_exceeded"),
    *("suspected_fraud", "bank_unavailable", "cancelled_by_customer"),
)
_PAYMENTS = (
    (190, ("payment_authorized",)),
    (8, ("payment_authorized", "payment_refunded")),
    (3, ("payment_failed", "payment_authorized")),
    (1, ("payment_failed", "payment_failed", "payment_failed")),
)
CARD_TESTING = 0.002  # of all payment journeys: stolen cards are tried with small sums, the good one pays
_TRIED, _COSTLY = 100, 60_000  # cents, in US dollars
_LIVES = (
    (78, ("order_created", "order_paid", "order_packed", "order_shipped", "order_delivered")),
    (9, ("order_created", "order_cancelled")),
    (5, ("order_created", "order_paid", "order_cancelled")),
    (8, ("order_created", "order_paid", "order_packed", "order_shipped")),
)
_STREETS = (
    "Amir Temur",
    "Navoiy",
    "Abay",
    "Chuy",
    "Registan",
    "Mustaqillik",
    "Dostyk",
    "Kabanbay Batyr",
    "Bobur",
)
_NAMES = (
    "Nodira Rashidova",
    "Aibek Toktogulov",
    "Zarina Omarova",
    "Jasur Aliyev",
    "Dana Serikova",
    "Bobur Ergashev",
)
_NOTES = (
    '"courier":"yuk-express"',
    '"courier":"tez-post"',
    '"warehouse":"tas-2"',
    '"warehouse":"ala-1"',
    '"slot":"evening"',
)
_WRONG_AMOUNT, _FEE = 150, 100  # one payment in so many is a fee too high
_COLLECTED = 0.12  # of the orders have no address


class Checkouts:
    """Orders that wait for a payment or a life; the call centre opens one when none is waiting."""

    def __init__(self, rng: Random, shop: Shop, who: Callable[[], Customer]) -> None:
        self._rng = rng
        self._shop = shop
        self._who = who
        self._waiting: deque[Order] = deque(maxlen=10_000)

    def add(self, order: Order) -> None:
        self._waiting.append(order)

    def take(self) -> Order:
        if self._waiting:
            return self._waiting.popleft()
        rng = self._rng
        basket = [
            (rng.choice(self._shop.products), 1 + int(rng.random() ** 3 * 4))
            for _ in range(1 + int(rng.random() ** 2 * 4))
        ]
        return open_order(rng, self._who(), basket, f"{rng.getrandbits(128):032x}")

    def costly(self) -> Order:
        """One that a thief would place."""
        product = self._rng.choice(self._shop.products)
        basket = [(product, -(-_COSTLY // product.cents))]
        return open_order(self._rng, self._who(), basket, f"{self._rng.getrandbits(128):032x}")


def payments(rng: Random, checkouts: Checkouts) -> Callable[[], Journey]:
    courses = [course for _, course in _PAYMENTS]
    weights = [weight for weight, _ in _PAYMENTS]

    def begin() -> Journey:
        if rng.random() < CARD_TESTING:
            return Journey(_tried_cards(rng, checkouts.costly()), hasty=True)
        order = checkouts.take()
        customer = order.customer
        method = rng.choice(METHODS)
        card = f',"card_hash":"{_card(customer)}"' if method == "card" else ""
        wrong = _FEE if rng.randrange(_WRONG_AMOUNT) == 0 else 0
        payment, ending = _payment(rng, order, order.cents + wrong, method, card), _ending(order)
        steps = []
        for event_type in rng.choices(courses, weights)[0]:
            failed = event_type == "payment_failed"
            reason = f',"failure_reason":"{rng.choice(FAILURES)}"' if failed else ""
            steps.append(_waiting(rng, customer.key, event_type, f"{payment}{reason}{ending}"))
        steps.reverse()
        return Journey(steps)

    return begin


def _tried_cards(rng: Random, order: Order) -> list[Waiting]:
    unit = UNITS_PER_DOLLAR[order.currency]
    steps = []
    for number in range(1 + rng.randrange(3, 7)):  # the last to happen is the first in the list
        card = f',"card_hash":"{rng.getrandbits(256):064x}"'
        cents = _TRIED * unit if number else order.cents
        reason = ',"failure_reason":"suspected_fraud"' if number else ""
        body = f"{_payment(rng, order, cents, 'card', card)}{reason}{_ending(order)}"
        event_type = "payment_failed" if number else "payment_authorized"
        steps.append(_waiting(rng, order.customer.key, event_type, body))
    return steps


def _payment(rng: Random, order: Order, cents: int, method: str, card: str) -> str:
    return (
        f'"payment_id":"pay-{rng.randrange(10**9, 10**10)}",'
        f'"order_id":"{order.id}","customer_id":"{order.customer.id}",'
        f'"amount":{money(cents)},"currency":"{order.currency}","method":"{method}"{card}'
    )


def _ending(order: Order) -> str:
    return (
        f',"region":"{order.customer.region.name}","schema_version":"1.0.0",'
        f'"producer":"payment-gateway","trace_id":"{order.trace_id}"}}'
    )


def orders(rng: Random, checkouts: Checkouts) -> Callable[[], Journey]:
    lives = [life for _, life in _LIVES]
    weights = [weight for weight, _ in _LIVES]

    def begin() -> Journey:
        order = checkouts.take()
        customer = order.customer
        key = order.id.encode()
        notes = {note.partition(":")[0]: note for note in rng.sample(_NOTES, rng.randrange(3))}
        body = (
            f'"order_id":"{order.id}","customer_id":"{customer.id}","region":"{customer.region.name}",'
            f'"total":{money(order.cents)},"currency":"{order.currency}",'
            f'"gift":{"true" if rng.random() < 0.05 else "false"},'
            f'{_address(rng, customer)}"items":{order.items},'
            f'"attributes":{{{",".join(notes.values())}}},'
            f'"schema_version":"1.0.0","producer":"order-service","trace_id":"{order.trace_id}"}}'
        )
        steps = [_waiting(rng, key, event_type, body) for event_type in rng.choices(lives, weights)[0]]
        steps.reverse()
        return Journey(steps)

    return begin


def _card(customer: Customer) -> str:
    """A customer has one card, the same in every payment."""
    return blake2b(customer.key, digest_size=32).hexdigest()


def _address(rng: Random, customer: Customer) -> str:
    if rng.random() < _COLLECTED:
        return ""
    region = customer.region
    return (
        f'"shipping_address":{{"recipient":"{rng.choice(_NAMES)}",'
        f'"street":"{rng.choice(_STREETS)} {rng.randrange(1, 200)}",'
        f'"phone":"{customer.phone}","city":"{region.city}",'
        f'"postal_code":"{region.postal}{rng.randrange(100):02d}",'
        f'"country":"{region.country}"}},'
    )


def _waiting(rng: Random, key: bytes, event_type: str, body: str) -> Waiting:
    return Waiting(key, f'{{"event_id":"{uuid(rng)}","event_type":"{event_type}","event_time":"', f'",{body}')
