"""What an app derives from one of its streams, and from it with others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

from headrace.alerts import Alert
from headrace.enrich import Enrich
from headrace.joins import JoinSide
from headrace.metrics import Metric
from headrace.patterns import Pattern
from headrace.sessions import Sessions
from headrace.signals import Signals


class FlowTopic(NamedTuple):
    """A topic that flows publish to. A key keeps its order inside its partition."""

    name: str
    partitions: int
    keep: timedelta


@dataclass(frozen=True)
class Declared:
    """The declarations that ride on the gate of one stream."""

    metrics: tuple[Metric, ...] = ()
    alerts: tuple[Alert, ...] = ()
    keep_alerts: timedelta = timedelta(days=90)
    joins: tuple[JoinSide, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    sessions: tuple[Sessions, ...] = ()
    signals: tuple[Signals, ...] = ()
    enrich: tuple[Enrich, ...] = ()

    def beside_lanes(self) -> Declared:
        """For the gate of a running app: topics that the real-time lane writes are not its to write."""
        mine = tuple(replace(s, topic="") if s.lane == "realtime" else s for s in self.signals)
        return replace(self, signals=mine)

    def __bool__(self) -> bool:
        """Whether anything is derived at all."""
        flows = self.joins or self.patterns or self.signals or self.enrich
        return bool(self.metrics or self.sessions or flows)
