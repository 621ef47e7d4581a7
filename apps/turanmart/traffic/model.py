"""The shoppers at work: one simulated clock, a crowd per stream, and the faults of the road."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

from headrace.log.record import Record

from .clickstream import shoppers
from .commerce import Checkouts, orders, payments
from .faults import malformed, stamped_ahead
from .journey import Crowd, stamp
from .logins import logins
from .options import Traffic
from .shop import Customer, open_shop

_LANES = 1000  # a draw among so many lanes stands for the weights of the streams
_JITTER_APP, _JITTER_BACKEND = 0.8, 0.02  # seconds from the event to the log
_GUESTS = 0.15  # of the visitors have no account
_REDELIVERED_WITHIN = 5.0  # seconds, and so many records of the current rate are remembered


def records(options: Traffic) -> Iterator[Record]:
    """The records in the order of arrival. The same options, with a fixed start, make the same bytes."""
    rng = Random(options.seed)
    random = rng.random
    crowds, spiking, open_checkouts = _crowds(rng, options)
    lanes = _lanes(options)
    recent: list[Record] = []
    remembered = int(min(8192, max(16, options.rate * _REDELIVERED_WITHIN)))
    redelivered = options.duplicates
    broken = redelivered + options.malformed
    ahead = broken + options.future
    start = options.start.timestamp() if options.start else time.time()
    spike_from, spike_to = options.spike_at, options.spike_at + options.spike_for
    extra = 1 - 1 / options.spike if options.spike else 0.0
    gap, spike_gap = 1 / options.rate, 1 / (options.rate * (options.spike or 1))
    length = options.seconds if options.seconds is not None else float("inf")
    left = options.events if options.events is not None else -1
    elapsed, at, count = 0.0, start, 0
    while count != left and elapsed < length:
        count += 1
        in_spike = extra and spike_from <= elapsed < spike_to
        fault = random()
        if fault < redelivered and recent:
            again = recent[int(random() * len(recent))]
            # A producer that retries keeps the key; a proxy in one of ten loses it.
            yield Record(again.stream, again.key if random() < 0.9 else None, again.value, at)
        else:
            name = lanes[int(random() * len(lanes))]
            crowd = spiking if in_spike and name == "clickstream" and random() < extra else crowds[name]
            (key, head, tail, order), moment = crowd.step(at)
            if order is not None:
                for checkouts in open_checkouts:
                    checkouts.add(order)
            if fault >= ahead or fault < redelivered:
                record = Record(name, key, f"{head}{stamp(moment)}{tail}".encode(), at)
                if len(recent) < remembered:
                    recent.append(record)
                else:
                    recent[count % remembered] = record
                yield record
            elif fault < broken:
                yield Record(name, key, malformed(rng, f"{head}{stamp(moment)}{tail}".encode()), at)
            else:
                yield Record(name, key, stamped_ahead(rng, at, head, tail), at)
        # Seconds since 1970 are too coarse a float to add up a microsecond at a time.
        elapsed += spike_gap if in_spike else gap
        at = start + elapsed


def _crowds(rng: Random, options: Traffic) -> tuple[dict[str, Crowd], Crowd, list[Checkouts]]:
    shop = open_shop(rng)
    random, customers, hot, share = rng.random, shop.customers, shop.hot, options.hot_key

    guests = shop.guests

    def visitor() -> Customer:
        return guests[int(random() * len(guests))] if random() < _GUESTS else who()

    def who() -> Customer:
        if share and random() < share:
            return hot
        return customers[int(random() * len(customers))]

    total = sum(options.streams.values())

    def under_way(stream: str, seconds: float) -> int:
        """As many as let the mean gap between two events of a journey be so long."""
        return int(min(5000, max(8, options.rate * seconds * options.streams.get(stream, 0) / total)))

    to_pay, to_deliver = Checkouts(rng, shop, who), Checkouts(rng, shop, who)
    browsing = under_way("clickstream", 6.0)
    crowds = {
        "clickstream": Crowd(rng, shoppers(rng, shop, visitor), browsing, _JITTER_APP, midway=True),
        "payments": Crowd(rng, payments(rng, to_pay), under_way("payments", 3.0), _JITTER_BACKEND),
        "orders": Crowd(rng, orders(rng, to_deliver), under_way("orders", 3.0), _JITTER_BACKEND),
        "logins": Crowd(rng, logins(rng, shop, who), under_way("logins", 4.0), _JITTER_BACKEND),
    }
    crowds["clickstream"].late = options.late
    spiking = Crowd(rng, shoppers(rng, shop, visitor, options.spike_campaign), browsing, _JITTER_APP)
    waiting = [c for name, c in (("payments", to_pay), ("orders", to_deliver)) if options.streams.get(name)]
    return crowds, spiking, waiting


def _lanes(options: Traffic) -> list[str]:
    total = sum(options.streams.values())
    lanes = []
    for stream, weight in options.streams.items():
        lanes += [stream] * (max(1, round(weight / total * _LANES)) if weight else 0)
    return lanes
