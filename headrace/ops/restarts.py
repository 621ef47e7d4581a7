"""When a query that died is started again: after 1 s, 2 s, 4 s and so on, and not for ever."""

from __future__ import annotations

from dataclasses import dataclass

FAILURES_ALLOWED = 10
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds


@dataclass
class Restarts:
    """The recent luck of one query. Times are seconds of one clock; batches are numbered as Spark does.

    A batch that was finished since the last failure is progress: then the count begins anew.
    """

    failures: int = 0
    start_at: float | None = None  # None: it runs
    reached: int = -1  # the last batch that was finished before the last failure

    def fail(self, now: float, finished: int) -> float | None:
        """The pause until it is started again, or None where it has failed too often without progress."""
        self.failures = 1 if finished > self.reached else self.failures + 1
        self.reached = max(self.reached, finished)
        if self.failures > FAILURES_ALLOWED:
            return None
        pause = min(FIRST_PAUSE * 2.0 ** (self.failures - 1), LONGEST_PAUSE)
        self.start_at = now + pause
        return pause

    def is_due(self, now: float) -> bool:
        return self.start_at is not None and now >= self.start_at

    def start(self) -> None:
        self.start_at = None
