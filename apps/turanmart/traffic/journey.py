"""A journey is what one person, order or payment does: events in order that only wait for their time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import NamedTuple

from .shop import Customer

_MILLIS = [f"{ms:03d}Z" for ms in range(1000)]
_SECONDS: dict[int, str] = {}
_SECONDS_KEPT = 20_000


class Order(NamedTuple):
    """What a checkout leaves behind: payments and orders go on from it."""

    id: str
    customer: Customer
    currency: str
    items: str  # as JSON
    cents: int
    trace_id: str


class Waiting(NamedTuple):
    """An event without its time: the JSON before and after it."""

    key: bytes
    head: str
    tail: str
    order: Order | None = None  # opened by this event


class Journey(NamedTuple):
    steps: list[Waiting]  # the next one last
    mobile: bool = False
    hasty: bool = False  # a machine: every other step of its stream is its own until it is done


class Crowd:
    """The journeys of one stream that are under way. Each step lets a random one of them go on."""

    def __init__(
        self, rng: Random, begin: Callable[[], Journey], under_way: int, jitter: float, midway: bool = False
    ) -> None:
        self._rng = rng
        self._random = rng.random
        self._begin = begin
        self._jitter = jitter
        self._midway = midway
        self._active: list[list[Waiting]] = [[] for _ in range(under_way)]
        self._entered = 0
        self._burst: list[tuple[Waiting, float]] = []
        self._size = under_way
        self._hasty: list[Waiting] = []
        self.late = 0.0

    def step(self, at: float) -> tuple[Waiting, float]:
        """The next event to arrive, and the second at which it happened."""
        if self._burst:
            return self._burst.pop()
        if self._hasty and self._random() < 0.5:
            return self._hasty.pop(), at - self._random() * self._jitter
        slot = int(self._random() * self._size)
        steps = self._active[slot]
        if not steps:
            journey = self._begin()
            steps = journey.steps
            if journey.hasty and not self._hasty:
                self._hasty = steps
                return steps.pop(), at - self._random() * self._jitter
            if journey.mobile and self._random() < self.late:
                self._burst = self._offline(steps, at)
                return self._burst.pop()
            if self._midway and self._entered < self._size:
                # The first to appear were in the shop already: a run must not open with page views only.
                self._entered += 1
                del steps[1 + int(self._random() * len(steps)) :]
            self._active[slot] = steps
        return steps.pop(), at - self._random() * self._jitter

    def _offline(self, steps: list[Waiting], at: float) -> list[tuple[Waiting, float]]:
        """The whole journey as it happened some time ago, with a few seconds between its events."""
        moment = at - 2.0 * 900.0 ** self._random()
        burst = []
        for waiting in reversed(steps):
            burst.append((waiting, moment))
            moment = min(at, moment + self._rng.expovariate(0.5))
        burst.reverse()
        return burst


def stamp(moment: float) -> str:
    """RFC 3339 in UTC, with milliseconds."""
    millis = int(moment * 1000)
    second = millis // 1000
    text = _SECONDS.get(second)
    if text is None:
        if len(_SECONDS) >= _SECONDS_KEPT:
            _SECONDS.clear()
        text = _SECONDS[second] = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S.")
    return text + _MILLIS[millis - second * 1000]


def uuid(rng: Random) -> str:
    """Random, version 4; several times cheaper than the uuid module, and seeded."""
    digits = f"{rng.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
