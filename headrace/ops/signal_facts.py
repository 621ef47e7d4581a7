"""What signals and enrichment have counted, for those who watch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from headrace.store.connection import Connection


class TableFacts(NamedTuple):
    rows: int
    loaded_at: datetime
    checked_at: datetime
    problem: str
    sound_at: datetime | None = None

    def stale_seconds(self, now: datetime) -> float:
        """For how long a change of the table could not be read; 0 while the versions in use are new."""
        if not self.problem:
            return 0.0
        return max(0.0, (now - (self.sound_at or self.loaded_at)).total_seconds())


@dataclass(frozen=True)
class SignalFacts:
    decisions: dict[tuple[str, str], int] = field(default_factory=dict)  # by signals and decision
    outcomes: dict[tuple[str, str], int] = field(default_factory=dict)  # by enrichment and outcome
    tables: dict[str, TableFacts] = field(default_factory=dict)

    def outcomes_of(self, enrich: str) -> dict[str, int]:
        return {outcome: count for (name, outcome), count in self.outcomes.items() if name == enrich}


def hit_rate(counts: Mapping[str, int]) -> float | None:
    """Of the events that named a key and do not wait any more, which share the tables knew."""
    asked = sum(count for outcome, count in counts.items() if outcome not in ("no_key", "pending"))
    return (counts.get("found", 0) + counts.get("retried", 0)) / asked if asked else None


def signal_facts(connection: Connection, app: str) -> SignalFacts:
    decisions = connection.execute(
        "SELECT signals, decision, count FROM headrace.signal_totals WHERE app = %s ORDER BY 1, 2", (app,)
    )
    outcomes = connection.execute(
        "SELECT enrich, outcome, count FROM headrace.enrich_totals WHERE app = %s ORDER BY 1, 2", (app,)
    )
    tables = connection.execute(
        "SELECT name, rows, loaded_at, checked_at, problem, sound_at FROM headrace.dimensions WHERE app = %s",
        (app,),
    )
    return SignalFacts(
        {(name, decision): count for name, decision, count in decisions},
        {(name, outcome): count for name, outcome, count in outcomes},
        {name: TableFacts(*rest) for name, *rest in tables},
    )
