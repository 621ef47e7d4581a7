"""People who log in, some who mistype, and a few machines that guess passwords."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .journey import Journey, Waiting, uuid
from .shop import Customer, Shop

BRUTE_FORCE = 0.004  # of all login journeys; each is long, so they make about one login in ten
_MISTYPED = 0.09
_SLIPS = ("wrong_password", "wrong_password", "wrong_password", "second_factor_failed", "unknown_account")
_AGENTS = {
    "ios": ("TuranMart/5.2 (iPhone; iOS 19.1)", "TuranMart/5.1 (iPhone; iOS 18.6)"),
    "android": ("TuranMart/5.2 (Android 16; Pixel 9)", "TuranMart/5.0 (Android 14; SM-A155F)"),
    "web": (
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Firefox/142.0",
        "Mozilla/5.0 (X11; Linux x86_64) Chrome/141.0",
    ),
    "mobile_web": (
        "Mozilla/5.0 (Linux; Android 15) Chrome/141.0 Mobile",
        "Mozilla/5.0 (iPhone) Safari/605.1",
    ),
}
_GUESSER = "python-requests/2.32"


def logins(rng: Random, shop: Shop, who: Callable[[], Customer]) -> Callable[[], Journey]:
    def begin() -> Journey:
        customer = who()
        if rng.random() < BRUTE_FORCE:
            return Journey(_guesses(rng, customer), hasty=True)
        device = rng.choice(shop.devices)
        network = f"{rng.choice((31, 37, 84, 89, 95, 178, 213))}.{rng.randrange(256)}"
        address = f"{network}.{rng.randrange(256)}.{rng.randrange(1, 255)}"
        agent = rng.choice(_AGENTS[device])
        steps = [_login(rng, customer, address, agent, device, None)]
        while rng.random() < _MISTYPED:
            steps.append(_login(rng, customer, address, agent, device, rng.choice(_SLIPS)))
        return Journey(steps)

    return begin


def _guesses(rng: Random, customer: Customer) -> list[Waiting]:
    address = f"185.220.{rng.randrange(100, 104)}.{rng.randrange(1, 255)}"
    guesses = [
        _login(rng, customer, address, _GUESSER, "web", "wrong_password")
        for _ in range(rng.randrange(15, 60))
    ]
    if rng.random() < 0.1:
        guesses.insert(0, _login(rng, customer, address, _GUESSER, "web", None))
    else:
        guesses.insert(0, _login(rng, customer, address, _GUESSER, "web", "account_locked"))
    return guesses


def _login(
    rng: Random, customer: Customer, address: str, agent: str, device: str, failure: str | None
) -> Waiting:
    event_type = "login_failed" if failure else "login_succeeded"
    reason = f',"failure_reason":"{failure}"' if failure else ""
    return Waiting(
        customer.key,
        f'{{"event_id":"{uuid(rng)}","event_type":"{event_type}","event_time":"',
        f'","customer_id":"{customer.id}","ip_address":"{address}","user_agent":"{agent}","device_type":"{device}"'
        f'{reason},"region":"{customer.region.name}","schema_version":"1.0.0","producer":"identity-service",'
        f'"trace_id":"{rng.getrandbits(128):032x}"}}',
    )
