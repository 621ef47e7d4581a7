"""How the flows of an app are doing: what became of the events that each side took, and what still waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.store.connection import Connection

_SIDES = """
    SELECT query, flow, side, taken, matched, unmatched, late,
           CASE WHEN pending_in IS NULL THEN NULL
                ELSE pg_total_relation_size(to_regclass(format('%%I.%%I', pending_in[1], pending_in[2]))) END
    FROM headrace.flow_sides WHERE query = ANY(%s) ORDER BY flow, side
"""


class FlowFacts(NamedTuple):
    """One side of a flow; `bytes` is the size of the table in which its events wait."""

    query: str
    flow: str
    side: str
    taken: int
    matched: int
    unmatched: int
    late: int
    bytes: int | None

    @property
    def pending(self) -> int:
        return self.taken - self.matched - self.unmatched - self.late


def flow_facts(connection: Connection, queries: list[str]) -> list[FlowFacts]:
    return [FlowFacts(*row) for row in connection.execute(_SIDES, (queries,))]


def flow_object(facts: FlowFacts, sources: Mapping[str, str]) -> dict[str, Any]:
    """`sources` are the names of the sources by query."""
    return {
        "flow": facts.flow,
        "side": facts.side,
        "source": sources[facts.query],
        **{name: getattr(facts, name) for name in ("taken", "matched", "unmatched", "pending", "late")},
        "bytes": facts.bytes,
    }
