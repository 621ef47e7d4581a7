"""What the store knows about a pattern: its meaning, its counts, and what came too late for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from psycopg.types.json import Jsonb

from headrace.flows.pattern_rule import PatternRule, storable
from headrace.flows.taken import TakenRow
from headrace.gate.ledger import Batch
from headrace.store.alert_accounts import forget_told
from headrace.store.alert_endings import withdraw
from headrace.store.connection import Connection
from headrace.store.metric_tables import STATEMENTS
from headrace.store.outbox import account
from headrace.store.times import to_time
from headrace.windows import MICROSECOND

COUNTS = ("taken", "late", "again", "forgotten", "matches", "alerts")
_BEGIN = """
    INSERT INTO headrace.patterns (app, pattern, query, meaning, accepted, old_alerts, old_events)
    SELECT %(app)s, %(pattern)s, %(query)s, %(meaning)s, 0,
        -(SELECT count(*) FROM headrace.alerts WHERE app = %(app)s AND alert = %(pattern)s),
        -(SELECT count(*) FROM headrace.alert_events
            WHERE app = %(app)s AND alert = %(pattern)s AND kind = 'opened')
    ON CONFLICT (app, pattern) DO NOTHING
"""


class TooLate(NamedTuple):
    """An event, and the clock or the watermark that had left it behind."""

    row: TakenRow
    clock: int
    reason: str  # late, or idle_wake


class PatternBooks:
    """One pattern of one query."""

    def __init__(self, app: str, query: str, rule: PatternRule, keep: timedelta) -> None:
        self._app, self._query, self._rule, self._keep = app, query, rule, keep
        self._name = rule.pattern.name
        self.id = 0

    def open(self, connection: Connection, declared: Collection[str]) -> None:
        """Begin with what is new; forget patterns of the query that are gone or mean something else now."""
        for statement in STATEMENTS:
            connection.execute(statement)
        known = connection.execute(
            "SELECT pattern, meaning FROM headrace.patterns WHERE app = %s AND (query = %s OR pattern = %s)",
            (self._app, self._query, self._name),
        )
        meaning = self._rule.pattern.meaning
        for name, meant in known.fetchall():
            if name not in declared or (name == self._name and meant != meaning):
                self._close(connection, name)
        connection.execute(
            _BEGIN,
            {"app": self._app, "pattern": self._name, "query": self._query, "meaning": Jsonb(meaning)},
        )
        [self.id] = (
            connection.execute(
                "SELECT id FROM headrace.patterns WHERE app = %s AND pattern = %s", (self._app, self._name)
            ).fetchone()
            or ()
        )
        if self._rule.pattern.alert.topic:
            connection.execute(
                "INSERT INTO headrace.alert_lanes (query, topic, sent) VALUES (%s, %s, 0)"
                " ON CONFLICT DO NOTHING",
                (self._query, self._rule.pattern.alert.topic),
            )

    def record(self, connection: Connection, batch: Batch, taken: int, late: Sequence[TooLate]) -> None:
        """What a batch has brought."""
        accepted = batch.accepted
        account(connection, self._query, batch.batch_id, self._name, "", (accepted, taken, len(late)))
        connection.execute(
            "UPDATE headrace.patterns SET accepted = accepted + %s, taken = taken + %s, late = late + %s,"
            " first_batch = CASE WHEN accepted = 0 THEN coalesce(first_batch, %s) ELSE first_batch END"
            " WHERE id = %s",
            (accepted, taken, len(late), batch.batch_id, self.id),
        )
        if late:
            self._write_late(connection, late)

    def count(self, connection: Connection, **counts: int) -> None:
        found = {name: count for name, count in counts.items() if count}
        if found:
            connection.execute(
                "UPDATE headrace.patterns SET taken = taken + %(taken)s, late = late + %(late)s,"
                " again = again + %(again)s, forgotten = forgotten + %(forgotten)s,"
                " matches = matches + %(matches)s, alerts = alerts + %(alerts)s WHERE id = %(id)s",
                {**dict.fromkeys(COUNTS, 0), **found, "id": self.id},
            )

    def forget_old(self, connection: Connection) -> None:
        """Alerts, and notes of late events, from longer ago than they are kept."""
        gone = connection.execute(
            "DELETE FROM headrace.alerts WHERE app = %s AND alert = %s AND state = 'resolved'"
            " AND updated_at < now() - %s",
            (self._app, self._name, self._keep),
        )
        connection.execute(
            "UPDATE headrace.patterns SET old_alerts = old_alerts + %s WHERE id = %s",
            (gone.rowcount, self.id),
        )
        forget_told(connection, self._query, self._keep)
        connection.execute(
            "DELETE FROM headrace.late_events WHERE app = %s AND metric = %s AND seen_at < now() - %s",
            (self._app, self._name, self._keep),
        )

    def totals(self, connection: Connection) -> dict[str, Any]:
        names = ", ".join(COUNTS)
        row = connection.execute(
            f"SELECT {names}, (SELECT count(*) FROM headrace.pattern_events WHERE pattern = id)"
            " FROM headrace.patterns WHERE id = %s",
            (self.id,),
        ).fetchone()
        return dict(zip((*COUNTS, "remembered"), row or (), strict=True))

    def _close(self, connection: Connection, name: str) -> None:
        withdraw(connection, self._app, name)
        found = connection.execute(
            "DELETE FROM headrace.patterns WHERE app = %s AND pattern = %s RETURNING id", (self._app, name)
        ).fetchall()
        ids = [id_ for (id_,) in found]
        connection.execute("DELETE FROM headrace.pattern_events WHERE pattern = ANY(%s)", (ids,))
        connection.execute("DELETE FROM headrace.pattern_alerts WHERE pattern = ANY(%s)", (ids,))

    def _write_late(self, connection: Connection, late: Sequence[TooLate]) -> None:
        """In the ledger of late events; the window that each missed is the time in which it would count."""
        with (
            connection.cursor() as cursor,
            cursor.copy(
                'COPY headrace.late_events (app, metric, event_id, partition, "offset", event_time,'
                " window_start, window_end, clock, late_by, reason) FROM STDIN"
            ) as copy,
        ):
            for row, clock, reason in late:
                at, over = to_time(row.event_time), row.event_time + self._rule.slack
                copy.write_row(
                    (
                        *(self._app, self._name, storable(row.event_id), row.partition, row.offset, at),
                        *(at, to_time(over), to_time(clock), (clock - over) * MICROSECOND, reason),
                    )
                )
