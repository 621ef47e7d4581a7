"""What the store remembers about a rule: its meaning, and how far it has been looked at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from headrace.metrics import Metric
from headrace.store.alert_runs import Span
from headrace.store.connection import Connection
from headrace.store.times import to_micros, to_time
from headrace.views.alert_rule import AlertRule
from headrace.windows import MICROSECOND


@dataclass(frozen=True)
class Progress:
    """Ends of windows, in microseconds. `now` is the time of the transaction."""

    since: int | None
    frozen: int | None
    settled: int | None
    now: datetime


def definition(rule: AlertRule) -> dict[str, Any]:
    """What gives an alert another meaning when it changes; what it only says and tells may change."""
    return {
        "on": rule.alert.metric,
        "window": str(rule.metric.window),
        "by": rule.grouping,
        "when": rule.condition,
        "windows": rule.alert.windows,
        "state": rule.alert.state,
    }


def settled_by(rule: AlertRule, watermark: int) -> int:
    """The end of the last window whose row has the state that the rule asks for, if there is a row."""
    metric = rule.metric
    after = metric.final_after if rule.alert.state == "final" else metric.preliminary_after
    return _floor(metric, watermark - after // MICROSECOND)


def frozen_by(rule: AlertRule, watermark: int) -> int:
    """The end of the last window that is final."""
    return _floor(rule.metric, watermark - rule.metric.final_us)


def progress_of(connection: Connection, app: str, rule: AlertRule) -> Progress:
    """Locks the rule, so that nobody else looks at it until the transaction ends."""
    found = connection.execute(
        "SELECT since, frozen, settled, now() FROM headrace.alert_rules"
        " WHERE app = %s AND alert = %s FOR UPDATE",
        (app, rule.alert.name),
    ).fetchone()
    assert found is not None
    since, frozen, settled, now = found
    return Progress(to_micros(since), to_micros(frozen), to_micros(settled), now)


def span_of(rule: AlertRule, progress: Progress, settled: int) -> Span:
    """What to read: as many frozen windows as an alert needs to open, and all that came after them."""
    back = rule.alert.windows * rule.metric.window.hop_us
    starts = [progress.since, None if progress.frozen is None else progress.frozen - back]
    return Span(max((s for s in starts if s is not None), default=None), progress.frozen, settled)


def note_progress(connection: Connection, app: str, rule: AlertRule, frozen: int, settled: int) -> None:
    connection.execute(
        "UPDATE headrace.alert_rules SET frozen = greatest(frozen, %s), settled = %s"
        " WHERE app = %s AND alert = %s",
        (to_time(frozen), to_time(settled), app, rule.alert.name),
    )


def begin(connection: Connection, app: str, query: str, rule: AlertRule, watermark: int | None) -> None:
    """Look only at what settles from now on: a new rule raises nothing for the past."""
    since = None if watermark is None else to_time(settled_by(rule, watermark))
    connection.execute(
        "INSERT INTO headrace.alert_rules VALUES (%s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (app, alert) DO UPDATE SET query = excluded.query, definition = excluded.definition,"
        " since = excluded.since, frozen = excluded.frozen, settled = excluded.settled",
        (app, rule.alert.name, query, Jsonb(definition(rule)), since, since, since),
    )


def known_rules(connection: Connection, app: str, query: str) -> dict[str, dict[str, Any]]:
    """The definitions that the store has, by alert: those of the query."""
    rows = connection.execute(
        "SELECT alert, definition FROM headrace.alert_rules WHERE app = %s AND query = %s", (app, query)
    )
    return dict(rows)


def _floor(metric: Metric, micros: int) -> int:
    hop = metric.window.hop_us
    return micros // hop * hop
