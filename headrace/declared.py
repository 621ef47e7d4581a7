"""What an app derives from one of its streams, and from it with others."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from headrace.alerts import Alert
from headrace.enrich import Enrich
from headrace.metrics import Metric
from headrace.signals import Signals


@dataclass(frozen=True)
class Declared:
    """The declarations that ride on the gate of one stream."""

    metrics: tuple[Metric, ...] = ()
    alerts: tuple[Alert, ...] = ()
    keep_alerts: timedelta = timedelta(days=90)
    signals: tuple[Signals, ...] = ()
    enrich: tuple[Enrich, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is derived at all."""
        return bool(self.metrics or self.signals or self.enrich)
