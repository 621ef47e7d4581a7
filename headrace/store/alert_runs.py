"""Which alerts there should be: windows in a row that satisfy a condition, against what is recorded.

Only windows that may have changed since the last look are read. What lies before them is known from the
table of alerts: a run that goes on from there is an alert already, or shorter than the windows looked back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import sql

from headrace.store.connection import Connection
from headrace.store.metric_tables import table_name
from headrace.store.times import to_time
from headrace.views.alert_rule import AlertRule

STATES = {"preliminary": "state <> 'open'", "final": "state = 'final'"}
SECOND_US = 1_000_000


@dataclass(frozen=True)
class Span:
    """Ends of windows, in microseconds: read after `lower` up to `upper`; up to `frozen` nothing changes."""

    lower: int | None
    frozen: int | None
    upper: int


@dataclass(frozen=True)
class Recorded:
    """An alert as the table has it."""

    state: str
    resolution: str
    window_start: datetime
    window_end: datetime
    values: str
    seq: int

    @property
    def counts(self) -> bool:
        """Whether it stands for a run; one that was retracted or withdrawn does not."""
        return self.resolution in ("", "recovered")


@dataclass(frozen=True)
class Difference:
    """An alert that should be other than it is. `steps` are its windows in the span: ends and values."""

    id: str
    dimensions: dict[str, str]
    first: datetime | None  # None: there should be none
    last: datetime | None
    state: str
    steps: tuple[tuple[datetime, str], ...]
    recorded: Recorded | None


def differences(connection: Connection, app: str, rule: AlertRule, span: Span) -> list[Difference]:
    """In the order of the windows; empty when the same rows are looked at again."""
    rows = connection.execute(_statement(app, rule, span)).fetchall()
    return [_difference(row) for row in rows]


def _difference(row: tuple[Any, ...]) -> Difference:
    id_, dimensions, first, last, state, ends, values, *recorded = row
    return Difference(
        *(id_, dimensions, first, last, state or "resolved"),
        tuple(zip(ends or (), values or (), strict=True)),
        Recorded(*recorded) if recorded[0] is not None else None,
    )


def _statement(app: str, rule: AlertRule, span: Span) -> sql.Composed:
    window = rule.metric.window
    pairs = [p for d in rule.dimensions for p in (sql.Literal(d), sql.Identifier(d))]
    names = ("events", *rule.metric.visible)
    shown = [p for n in names for p in (sql.Literal(n), sql.SQL(_VALUE).format(sql.Identifier(n)))]
    labels = [sql.SQL("dimensions ->> {}").format(sql.Literal(d)) for d in rule.dimensions]
    edge = None if span.lower is None else span.lower + window.hop_us
    return sql.SQL(_DIFFERENCES).format(
        table=table_name(app, rule.metric),
        app=sql.Literal(app),
        alert=sql.Literal(rule.alert.name),
        grouping=sql.Literal(rule.grouping),
        dimensions=sql.SQL(", ").join(pairs),
        shown=sql.SQL(", ").join(shown),
        labels=sql.SQL("").join(sql.SQL(", ") + label for label in labels),
        state=sql.SQL(STATES[rule.alert.state]),
        condition=sql.SQL(rule.condition),
        size=_seconds(window.panes * window.hop_us),
        hop=_seconds(window.hop_us),
        wait=_seconds(window.hop_us * (rule.alert.windows - 1)),
        lower=_moment(span.lower),
        frozen=_moment(span.frozen),
        edge=_moment(edge),
        upper=_moment(span.upper),
    )


def _seconds(micros: int) -> sql.Composed:
    # An interval of days would be as long as a day of the session's time zone.
    return sql.SQL("make_interval(secs => {})").format(sql.Literal(micros / SECOND_US))


def _moment(micros: int | None) -> sql.Composed:
    if micros is None:
        return sql.SQL("{}::timestamptz").format(sql.Literal("-infinity"))
    return sql.SQL("{}::timestamptz").format(sql.Literal(to_time(micros)))


# As in an answer of the API: a decimal is text, so that nobody who reads the document rounds it.
_VALUE = "CASE WHEN pg_typeof({0}) = 'numeric'::regtype THEN to_jsonb({0}::text) ELSE to_jsonb({0}) END"
# The start of an alert that reaches into the span joins the run that goes on from it through GROUP BY: the
# planner knows nothing about the sizes here, and would join row by row.
_DIFFERENCES = """
WITH satisfied AS (
    SELECT window_start, window_end, jsonb_build_object({dimensions}) AS dimensions,
        jsonb_build_object({shown}) AS "values"
    FROM {table}
    WHERE window_start > {lower} - {size} AND window_start <= {upper} - {size}
        AND "grouping" = {grouping} AND {state} AND ({condition}) IS TRUE
), numbered AS (
    SELECT dimensions, window_start - {hop} * row_number() OVER in_group AS island,
        window_start, window_end, "values"
    FROM satisfied WINDOW in_group AS (PARTITION BY dimensions ORDER BY window_start)
    UNION ALL
    SELECT dimensions, {edge} - {size} - {hop}, window_start, NULL, NULL
    FROM headrace.alerts
    WHERE app = {app} AND alert = {alert} AND resolution IN ('', 'recovered')
        AND window_start < {edge} - {size} AND window_end >= {edge}
), runs AS (
    SELECT dimensions, min(window_start) AS first, max(window_end) AS last,
        array_agg(window_end ORDER BY window_end) FILTER (WHERE window_end IS NOT NULL) AS ends,
        array_agg("values" ORDER BY window_end) FILTER (WHERE window_end IS NOT NULL) AS "values"
    FROM numbered
    GROUP BY dimensions, island
    HAVING max(window_end) >= {frozen} AND max(window_end) >= min(window_start) + {size} + {wait}
), wanted AS (
    SELECT *, left(encode(sha256(convert_to(jsonb_build_array({app}, {alert}, {grouping}{labels},
            to_char(first AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))::text, 'UTF8')), 'hex'), 32)
            AS id,
        CASE WHEN last + {hop} <= {upper} THEN 'resolved' ELSE 'open' END AS state
    FROM runs
), recorded AS (
    SELECT *, resolution IN ('', 'recovered') AS counts FROM headrace.alerts
    WHERE app = {app} AND alert = {alert} AND (window_end >= {frozen} OR id IN (SELECT id FROM wanted))
)
SELECT id, coalesce(w.dimensions, r.dimensions), w.first, w.last, w.state, w.ends, w."values"::text[],
    r.state, r.resolution, r.window_start, r.window_end, r."values"::text, r.seq
FROM wanted w FULL JOIN recorded r USING (id)
WHERE CASE
    WHEN w.id IS NULL THEN r.counts
    ELSE r.id IS NULL OR NOT r.counts OR r.state <> w.state OR r.window_end <> w.last
        OR r."values" <> w."values"[cardinality(w."values")]
END
ORDER BY coalesce(w.last, r.window_end), coalesce(w.first, r.window_start), id
"""
