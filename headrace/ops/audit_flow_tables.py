"""The tables of flows against what was counted with the batches: rows that are missing, rows too many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from psycopg import sql

from headrace.ops.pipeline_flows import FlowFacts, FlowKind
from headrace.store.connection import Connection
from headrace.store.join_names import letter_table, pending_table, result_table

Differences = dict[str, int]  # what is wrong, and by how much
_JOIN = "SELECT matches - old_matches, letters - old_letters FROM headrace.joins WHERE app = %s AND name = %s"
_PATTERN = """
    SELECT (SELECT count(*) FROM headrace.pattern_events e WHERE e.pattern = p.id),
        alerts - old_alerts,
        (SELECT count(*) FROM headrace.alerts a WHERE a.app = p.app AND a.alert = p.pattern),
        alerts - old_events,
        (SELECT count(*) FROM headrace.alert_events e
            WHERE e.app = p.app AND e.alert = p.pattern AND e.kind = 'opened')
    FROM headrace.patterns p WHERE query = %s AND pattern = %s
"""


def table_differences(connection: Connection, facts: FlowFacts) -> tuple[dict[str, int], Differences]:
    """The outcomes, with what waits counted in its table; and what the tables have too much or too little."""
    return _LOOKS[facts.kind](connection, facts)


def _join(connection: Connection, facts: FlowFacts) -> tuple[dict[str, int], Differences]:
    """Both sides share the tables of results: they are counted with the left one."""
    waits = pending_table(facts.app, facts.flow, "left" if facts.side == "left" else "right")
    [pending] = _row(connection, waits, "count(*) FILTER (WHERE NOT matched)")
    off: Differences = {}
    written = connection.execute(_JOIN, (facts.app, facts.flow)).fetchone()
    if facts.side == "left" and written is not None:
        [matches] = _row(connection, result_table(facts.app, facts.flow), "count(*)")
        [letters] = _row(connection, letter_table(facts.app, facts.flow), "count(*)")
        off |= _compared("matches", written[0], matches)
        off |= _compared("dead letters", written[1], letters)
    return {**facts.outcomes, "pending": pending}, off


def _pattern(connection: Connection, facts: FlowFacts) -> tuple[dict[str, int], Differences]:
    """An alert is a row, and has an event that told of it: to its topic, and to its webhook."""
    found = connection.execute(_PATTERN, (facts.query, facts.flow)).fetchone()
    remembered, raised, rows, told, events = found or (0, 0, 0, 0, 0)
    off: Differences = {}
    if raised is not None:
        off |= _compared("alerts", raised, rows)
        off |= _compared("events that raised alerts", told, events)
    return {**facts.outcomes, "remembered": remembered}, off


def _sessions(connection: Connection, facts: FlowFacts) -> tuple[dict[str, int], Differences]:
    """What can still change is there twice: as rows, and as the pieces that they are made of."""
    table = sql.Identifier(facts.app, facts.flow)
    changing = "WHERE state <> 'final'"
    events, open_, loose = _row(
        *(connection, table, "coalesce(sum(events), 0)::bigint", f"count(*) FILTER ({changing})"),
        f"coalesce(sum(events) FILTER ({changing} AND NOT sealed), 0)::bigint",
    )
    kept = sql.Identifier(facts.app, f"{facts.flow}__pieces")
    [pieces] = _row(connection, kept, "coalesce(sum(__events), 0)::bigint")
    counts = facts.counts
    wanted = counts.get("before", 0) + counts.get("counted", 0) - counts.get("forgotten", 0)
    off = _compared("events in sessions", wanted, events)
    off |= _compared("sessions that can change", counts.get("open", 0), open_)
    off |= _compared("events of these in pieces", loose, pieces)
    return dict(facts.outcomes), off


def _signals(connection: Connection, facts: FlowFacts) -> tuple[dict[str, int], Differences]:
    counts, name = facts.counts, facts.flow
    [rows] = _row(connection, sql.Identifier(facts.app, name), "count(*)")
    [memory] = _row(connection, sql.Identifier(facts.app, f"{name}__memory"), "count(*)")
    activity = sql.Identifier(facts.app, f"{name}__activity")
    [suspicious] = _row(connection, activity, "coalesce(sum(suspicious), 0)::bigint")
    scored = sum(count for outcome, count in facts.outcomes.items() if outcome != "again")
    off = _compared("scored events", scored - counts.get("forgotten", 0), rows)
    off |= _compared("remembered events", counts.get("remembered", 0), memory)
    off |= _compared("suspicious events of somebody", counts.get("suspicious", 0), suspicious)
    return dict(facts.outcomes), off


def _enrichment(connection: Connection, facts: FlowFacts) -> tuple[dict[str, int], Differences]:
    """What waits is in a table; the rest is in its topics, which a recount reads."""
    waits = sql.Identifier(facts.app, f"{facts.flow}__waiting")
    [pending] = _row(connection, waits, "count(*)")
    return dict(facts.outcomes), _compared("waiting events", facts.outcomes.get("pending", 0), pending)


_LOOKS: Mapping[FlowKind, Callable[[Connection, FlowFacts], tuple[dict[str, int], Differences]]] = {
    "join": _join,
    "pattern": _pattern,
    "sessions": _sessions,
    "signals": _signals,
    "enrichment": _enrichment,
}


def _compared(what: str, counted: int, there: int) -> Differences:
    return {f"{counted} {what} written, {there} there": abs(counted - there)}


def _row(connection: Connection, table: sql.Identifier, *columns: str) -> tuple[Any, ...]:
    """Sums and counts over a table; of one that is gone, nothing is there."""
    exists = connection.execute("SELECT to_regclass(%s)", (table.as_string(connection),)).fetchone()
    if exists is None or exists[0] is None:
        return (0,) * len(columns)
    shown = sql.SQL(", ").join(map(sql.SQL, columns))
    return connection.execute(sql.SQL("SELECT {} FROM {}").format(shown, table)).fetchone() or ()
