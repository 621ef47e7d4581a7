"""When something is too much: one set of limits, for the alert rules of Prometheus and for the dashboard."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta

from headrace.contracts.model import Contract

# For contracts that promise nothing.
FRESHNESS, LATENCY, ERROR_RATE = timedelta(minutes=2), timedelta(seconds=30), 0.05
SPARE_SECONDS = 60.0  # for a watermark, beyond what silence and old events explain
LATE, DUPLICATE, LATE_FOR_METRIC = 0.05, 0.1, 0.02  # of the records
CHECKPOINT_STEPS = ("walCommit", "commitOffsets", "stateCommit")
CHECKPOINT_SECONDS = 5.0
LARGE_STATE, STATE_GROWTH = 256 * 2**20, 1.5  # bytes; times what it was a day ago
UNKNOWN_KEYS = 0.1  # of the events with a key


@dataclass(frozen=True)
class Limits:
    """Of one source. Ratios are of the records received."""

    freshness_seconds: float
    latency_seconds: float
    rejected_ratio: float
    watermark_seconds: float
    late_ratio: float = LATE
    late_for_metric_ratio: float = LATE_FOR_METRIC
    duplicate_ratio: float = DUPLICATE
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    state_bytes: int = LARGE_STATE
    state_growth: float = STATE_GROWTH
    unknown_keys_ratio: float = UNKNOWN_KEYS  # of the events with a key

    def as_object(self) -> dict[str, float]:
        return asdict(self)


def limits_of(contract: Contract) -> Limits:
    """In silence the watermark is `idleAfter` behind, and events may be up to `lateness` old."""
    return Limits(
        freshness_seconds=(contract.freshness or FRESHNESS).total_seconds(),
        latency_seconds=(contract.latency or LATENCY).total_seconds(),
        rejected_ratio=contract.error_rate if contract.error_rate is not None else ERROR_RATE,
        watermark_seconds=(contract.idle_after + contract.lateness).total_seconds() + SPARE_SECONDS,
    )
