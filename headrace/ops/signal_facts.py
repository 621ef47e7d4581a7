"""What signals and enrichment have counted, for those who watch."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from headrace.store.connection import Connection


class TableFacts(NamedTuple):
    rows: int
    loaded_at: datetime
    checked_at: datetime
    problem: str


@dataclass(frozen=True)
class SignalFacts:
    decisions: dict[tuple[str, str], int] = field(default_factory=dict)  # by signals and decision
    outcomes: dict[tuple[str, str], int] = field(default_factory=dict)  # by enrichment and outcome
    tables: dict[str, TableFacts] = field(default_factory=dict)


def signal_facts(connection: Connection, app: str) -> SignalFacts:
    decisions = connection.execute(
        "SELECT signals, decision, count FROM headrace.signal_totals WHERE app = %s ORDER BY 1, 2", (app,)
    )
    outcomes = connection.execute(
        "SELECT enrich, outcome, count FROM headrace.enrich_totals WHERE app = %s ORDER BY 1, 2", (app,)
    )
    tables = connection.execute(
        "SELECT name, rows, loaded_at, checked_at, problem FROM headrace.dimensions WHERE app = %s", (app,)
    )
    return SignalFacts(
        {(name, decision): count for name, decision, count in decisions},
        {(name, outcome): count for name, outcome, count in outcomes},
        {name: TableFacts(*rest) for name, *rest in tables},
    )
