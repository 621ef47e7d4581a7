"""What became of the events that the flows of an app took, and what they keep for those to come.

All of it was counted with the batches, so that asking costs a handful of rows, whatever the tables hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.store.connection import Connection

FlowKind = Literal["join", "sessions", "pattern", "signals", "enrichment"]
_PREFIXES: dict[str, FlowKind] = {"sessions": "sessions", "signals": "signals", "enrich": "enrichment"}
_STATE = {"sessions": "__pieces", "signals": "__memory"}  # the tables of what is kept

STILL_WAITING = ("pending", "remembered")  # what has these outcomes will have another one

_SIDES = """
    SELECT query, flow, side, first_batch, accepted, taken, matched, unmatched, late,
           CASE WHEN pending_in IS NULL THEN NULL
                ELSE pg_total_relation_size(to_regclass(format('%%I.%%I', pending_in[1], pending_in[2]))) END
    FROM headrace.flow_sides WHERE query = ANY(%s) ORDER BY flow, side
"""
_PATTERNS = """
    SELECT query, pattern, first_batch, accepted, taken, late, again, forgotten, matches, alerts
    FROM headrace.patterns WHERE query = ANY(%s) ORDER BY pattern
"""
_TOTALS = """
    SELECT app, query, flow, min(first_batch), jsonb_object_agg(outcome, count)
    FROM headrace.flow_totals WHERE query = ANY(%s) GROUP BY app, query, flow ORDER BY flow
"""
_OUTCOMES = """
    SELECT app, 'signals', signals, decision, count FROM headrace.signal_totals WHERE app = ANY(%(apps)s)
    UNION ALL
    SELECT app, 'enrich', enrich, outcome, count FROM headrace.enrich_totals WHERE app = ANY(%(apps)s)
    ORDER BY 4
"""


@dataclass(frozen=True)
class FlowFacts:
    """One flow, or one side of a join.

    Accepted events are taken or filtered; each that is taken has one of the `outcomes`. `waiting` is what is
    kept for later events, and `bytes` the size of the table that keeps it. `account` is its name in the
    ledger of flows.
    """

    query: str
    app: str
    flow: str
    kind: FlowKind
    taken: int
    outcomes: Mapping[str, int]
    side: str = ""
    account: str = ""
    accepted: int | None = None
    first_batch: int | None = None
    waiting: int = 0
    bytes: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)  # more that was counted, by name

    @property
    def late(self) -> int:
        """Too late for it; signals score such events with what they still remember."""
        return self.outcomes.get("late", 0) + self.counts.get("late", 0)

    @property
    def filtered(self) -> int | None:
        return None if self.accepted is None else self.accepted - self.taken


def flow_facts(connection: Connection, queries: list[str]) -> list[FlowFacts]:
    """Of the flows that take events of these queries."""
    joins = [_join(*row) for row in connection.execute(_SIDES, (queries,))]
    patterns = [_pattern(*row) for row in connection.execute(_PATTERNS, (queries,))]
    rows = connection.execute(_TOTALS, (queries,)).fetchall()
    outcomes: dict[tuple[str, str], dict[str, int]] = {}
    apps = list({app for app, *_ in rows})
    for app, prefix, name, outcome, count in connection.execute(_OUTCOMES, {"apps": apps}):
        outcomes.setdefault((app, f"{prefix}.{name}"), {})[outcome] = count
    counted = [
        _counted(
            *(app, query, account, first, totals),
            outcomes.get((app, account), {}),
            _bytes(connection, app, account),
        )
        for app, query, account, first, totals in rows
    ]
    return sorted([*joins, *patterns, *counted], key=lambda facts: (facts.kind, facts.flow, facts.side))


def flow_object(facts: FlowFacts, sources: Mapping[str, str]) -> dict[str, Any]:
    """`sources` are the names of the sources by query."""
    plain = ("flow", "kind", "side", "accepted", "filtered", "taken", "late", "waiting", "bytes")
    return {
        **{name: getattr(facts, name) for name in plain},
        "source": sources[facts.query],
        "outcomes": dict(facts.outcomes),
        "alerts": facts.counts.get("alerts"),
    }


def _join(
    query: str,
    flow: str,
    side: str,
    first_batch: int,
    accepted: int | None,
    taken: int,
    matched: int,
    unmatched: int,
    late: int,
    size: int | None,
) -> FlowFacts:
    pending = taken - matched - unmatched - late
    return FlowFacts(
        *(query, query.rpartition(".")[0], flow, "join", taken),
        {"matched": matched, "unmatched": unmatched, "pending": pending, "late": late},
        side=side,
        account=flow,
        accepted=accepted,
        first_batch=first_batch,
        waiting=pending,
        bytes=size,
    )


def _pattern(
    query: str,
    pattern: str,
    first_batch: int | None,
    accepted: int | None,
    taken: int,
    late: int,
    again: int,
    forgotten: int,
    matches: int,
    alerts: int,
) -> FlowFacts:
    remembered = taken - late - again - forgotten
    return FlowFacts(
        *(query, query.rpartition(".")[0], pattern, "pattern", taken),
        {"remembered": remembered, "forgotten": forgotten, "again": again, "late": late},
        account=pattern,
        accepted=accepted,
        first_batch=first_batch,
        waiting=remembered,
        counts={"matches": matches, "alerts": alerts},
    )


def _counted(
    app: str,
    query: str,
    account: str,
    first_batch: int | None,
    totals: dict[str, int],
    outcomes: dict[str, int],
    size: int | None,
) -> FlowFacts:
    """`before`: events of the outcomes that were there before anything was counted here."""
    prefix, _, name = account.partition(".")
    kind, before = _PREFIXES[prefix], totals.get("before", 0)
    taken, counts = totals.get("taken", 0) + before, totals
    waiting = totals.get("remembered", 0)
    if kind == "sessions":
        before = 0  # they are sessions already, and their events need no outcome any more
        outcomes = {"in_sessions": totals.get("counted", 0), "late": totals.get("late", 0)}
        taken = totals.get("accepted", 0) - totals.get("filtered", 0)
        waiting = totals.get("open", 0)
        counts = {name: count for name, count in totals.items() if name != "late"}
    elif kind == "signals":
        outcomes = {**outcomes, "again": totals.get("again", 0)}
    return FlowFacts(
        *(query, app, name, kind, taken, outcomes),
        account=account,
        accepted=totals.get("accepted", 0) + before,
        first_batch=first_batch,
        waiting=waiting,
        bytes=size,
        counts=counts,
    )


def _bytes(connection: Connection, app: str, account: str) -> int | None:
    prefix, _, name = account.partition(".")
    if prefix not in _STATE:
        return None
    found = connection.execute(
        "SELECT pg_total_relation_size(to_regclass(format('%%I.%%I', %s::text, %s::text)))",
        (app, name + _STATE[prefix]),
    ).fetchone()
    return found[0] if found else None
