"""What can be asked of the shoppers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from headrace.errors import UsageError

from .shop import CAMPAIGNS

# In these proportions about as many payments and orders begin as journeys reach the checkout.
DEFAULT_STREAMS: Mapping[str, float] = MappingProxyType(
    {"clickstream": 0.86, "payments": 0.025, "orders": 0.08, "logins": 0.035}
)
_SHARES = ("duplicates", "late", "malformed", "future", "hot_key")


@dataclass(frozen=True)
class Traffic:
    """Without `seconds` and `events` the shoppers never stop; with both, whichever ends first counts."""

    seed: int = 7
    rate: float = 2000.0  # records per second of simulated time, over all streams
    seconds: float | None = None  # how long, in simulated time
    events: int | None = None  # how many records, duplicates and malformed ones included
    start: datetime | None = None  # the first arrival; now when left out
    streams: Mapping[str, float] = field(default_factory=lambda: DEFAULT_STREAMS)  # name to weight
    duplicates: float = 0.01  # share of records that are an exact redelivery of a recent one
    late: float = 0.02  # share of mobile journeys sent in one burst, 2 seconds to 30 minutes afterwards
    malformed: float = 0.01  # share of records that no contract accepts
    future: float = 0.001  # share of records stamped an hour to a year ahead
    hot_key: float = 0.0  # share of journeys that belong to one single customer
    spike: float = 0.0  # a campaign multiplies the rate by this; 0 for no spike
    spike_at: float = 10.0  # seconds after the start
    spike_for: float = 30.0
    spike_campaign: str = "navruz-2026"

    def __post_init__(self) -> None:
        for name in _SHARES:
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise UsageError(f"{name} is a share between 0 and 1, not {share:g}")
        if self.duplicates + self.malformed + self.future > 1:
            raise UsageError("duplicates, malformed and future together are more than 1")
        if not 0 < self.rate <= 10_000_000:
            raise UsageError(
                f"rate must be above 0 and at most 10,000,000 records per second, not {self.rate:g}"
            )
        for name in ("seconds", "events", "spike", "spike_at", "spike_for"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise UsageError(f"{name} cannot be {value:g}")
        if self.spike and self.spike < 1:
            raise UsageError(f"spike multiplies the rate: at least 1, or 0 for no spike, not {self.spike:g}")
        if self.spike_campaign not in CAMPAIGNS:
            raise UsageError(
                f"spike_campaign '{self.spike_campaign}' is not a campaign of the shop",
                hint=f"one of {', '.join(CAMPAIGNS)}",
            )
        if self.start is not None and self.start.tzinfo is None:
            raise UsageError("start needs a time zone", hint="2026-07-01T09:00:00Z")
        self._check_streams()

    def _check_streams(self) -> None:
        unknown = sorted(set(self.streams) - set(DEFAULT_STREAMS))
        if unknown:
            raise UsageError(
                f"TuranMart has no stream '{unknown[0]}'", hint=f"one of {', '.join(DEFAULT_STREAMS)}"
            )
        weights = list(self.streams.values())
        if not weights or min(weights) < 0 or not 0 < sum(weights) < float("inf"):
            raise UsageError("streams needs at least one stream with a weight above 0")
