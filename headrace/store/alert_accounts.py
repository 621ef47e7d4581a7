"""The alerts of one query in the store: looked at in the transaction that moved the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

import psycopg
from psycopg import sql

from headrace.errors import AppError
from headrace.store.alert_changes import Changes
from headrace.store.alert_endings import withdraw
from headrace.store.alert_rules import (
    begin,
    definition,
    frozen_by,
    known_rules,
    note_progress,
    progress_of,
    settled_by,
    span_of,
)
from headrace.store.alert_runs import differences
from headrace.store.connection import Connection
from headrace.store.metric_tables import table_name
from headrace.views.alert_rule import AlertRule

KEEP = timedelta(days=90)


class AlertAccounts:
    """Rules, alerts and outbox of one query. One process works on them at a time."""

    def __init__(self, app: str, query: str, rules: Iterable[AlertRule] = (), keep: timedelta = KEEP) -> None:
        self._app, self._query, self._keep = app, query, keep
        self._rules = list(rules)

    def prepare(self, connection: Connection, watermarks: Mapping[str, int | None]) -> None:
        """Begin with what is new; alerts of a rule that is gone or has changed its meaning are withdrawn."""
        known = known_rules(connection, self._app, self._query)
        for name in known.keys() - {rule.alert.name for rule in self._rules}:
            withdraw(connection, self._app, name)
            connection.execute(
                "DELETE FROM headrace.alert_rules WHERE app = %s AND alert = %s", (self._app, name)
            )
        for rule in self._rules:
            self._try(connection, rule)
            if known.get(rule.alert.name) != definition(rule):
                withdraw(connection, self._app, rule.alert.name)
                begin(connection, self._app, self._query, rule, watermarks.get(rule.metric.window.time))
            if rule.alert.topic:
                connection.execute(
                    "INSERT INTO headrace.alert_lanes (query, topic, sent) VALUES (%s, %s, 0)"
                    " ON CONFLICT DO NOTHING",
                    (self._query, rule.alert.topic),
                )

    def evaluate(self, connection: Connection, metric: str, watermark: int | None) -> None:
        """Bring the alerts on a metric in line with its rows; looking again changes nothing."""
        if watermark is None:
            return
        for rule in self._rules:
            if rule.alert.metric == metric:
                self._evaluate(connection, rule, watermark)

    def _evaluate(self, connection: Connection, rule: AlertRule, watermark: int) -> None:
        progress = progress_of(connection, self._app, rule)
        settled, frozen = settled_by(rule, watermark), frozen_by(rule, watermark)
        if progress.settled is not None and settled < progress.settled:
            return  # the log is read again from further back: what was seen then is not raised anew
        found = differences(connection, self._app, rule, span_of(rule, progress, settled))
        Changes(self._app, self._query, rule).write(connection, found, progress.now)
        if (frozen, settled) != (progress.frozen, progress.settled):
            note_progress(connection, self._app, rule, frozen, settled)

    def forget_old(self, connection: Connection) -> None:
        """Resolved alerts whose windows are final, and events that have been told to everybody.

        Patterns look after their own.
        """
        connection.execute(
            "DELETE FROM headrace.alerts a WHERE app = %s AND state = 'resolved' AND updated_at < now() - %s"
            " AND NOT EXISTS (SELECT 1 FROM headrace.alert_rules r WHERE r.app = a.app AND r.alert = a.alert"
            " AND (r.query <> %s OR r.frozen IS NULL OR r.frozen <= a.window_end))"
            " AND NOT EXISTS (SELECT 1 FROM headrace.patterns p WHERE p.app = a.app AND p.pattern = a.alert)",
            (self._app, self._keep, self._query),
        )
        forget_told(connection, self._query, self._keep)

    def _try(self, connection: Connection, rule: AlertRule) -> None:
        """A condition that Spark understands and Postgres does not is found here, before the first batch."""
        try:
            with connection.transaction():
                connection.execute(
                    sql.SQL("SELECT 1 FROM {} WHERE ({}) IS TRUE LIMIT 0").format(
                        table_name(self._app, rule.metric), sql.SQL(rule.condition)
                    )
                )
        except (psycopg.ProgrammingError, psycopg.DataError) as error:
            raise AppError(
                f"alert '{rule.alert.name}', when: Postgres cannot compute it: {str(error).splitlines()[0]}",
                where=rule.alert.declared_at,
            ) from error


def forget_told(connection: Connection, query: str, keep: timedelta) -> None:
    """Events of a query that have been told to everybody; the books of its patterns say how many."""
    gone = connection.execute(
        "DELETE FROM headrace.alert_events e WHERE query = %s AND at < now() - %s"
        " AND delivery <> 'waiting' AND (topic = '' OR position <= (SELECT published"
        " FROM headrace.alert_lanes l WHERE l.query = e.query AND l.topic = e.topic))"
        " RETURNING alert, kind",
        (query, keep),
    ).fetchall()
    alerts = [alert for alert, kind in gone if kind == "opened"]
    if alerts:
        connection.execute(
            "UPDATE headrace.patterns p SET old_events = old_events + g.n FROM (SELECT alert, count(*) AS n"
            " FROM unnest(%s::text[]) AS gone (alert) GROUP BY alert) g"
            " WHERE p.query = %s AND p.pattern = g.alert",
            (alerts, query),
        )
