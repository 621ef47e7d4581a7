"""Events that wait for a table to know their keys, in a table of their own for each enrichment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from psycopg import sql

from headrace.enrich import Enrich
from headrace.enricher import PENDING
from headrace.log.waiting import WaitingEvent
from headrace.store.connection import Connection
from headrace.store.outbox import headers_of_bytes, headers_to_bytes
from headrace.windows import MICROSECOND

_COLUMNS = sql.SQL('partition, "offset", event_time, log_time, keys, key, value, headers')
# Postgres keeps no NUL in a text, and a key may have one: keys are bytes.
_TABLE = """
    CREATE TABLE IF NOT EXISTS {} (
        partition int NOT NULL,
        "offset" bigint NOT NULL,
        event_time bigint NOT NULL,
        log_time bigint,
        keys bytea[] NOT NULL,
        key bytea,
        value bytea NOT NULL,
        headers bytea NOT NULL,
        clock text NOT NULL,
        until bigint NOT NULL,
        since timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (partition, "offset")
    )
"""


class Asked(NamedTuple):
    """What decides about an event that waits."""

    partition: int
    offset: int
    event_time: int
    keys: list[str | None]


class Waiting:
    """What waits for one enrichment, and how many that are."""

    def __init__(self, app: str, enrich: Enrich) -> None:
        self._app, self._enrich = app, enrich
        self._table = sql.Identifier(app, f"{enrich.name}__waiting")

    def define(self, connection: Connection) -> None:
        index = sql.Identifier(f"{self._enrich.name}__waiting_until")
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self._app)))
        connection.execute(sql.SQL(_TABLE).format(self._table))
        connection.execute(
            sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} (clock, until)").format(index, self._table)
        )
        connection.execute(
            "INSERT INTO headrace.enrich_waits (app, enrich) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            (self._app, self._enrich.name),
        )

    def state(self, connection: Connection) -> tuple[int, str] | None:
        """How many wait, and the editions that all of them were looked up in; None if nothing ever could."""
        found = connection.execute(
            "SELECT coalesce(t.count, 0), looked_up FROM headrace.enrich_waits w"
            " LEFT JOIN headrace.enrich_totals t ON t.app = w.app AND t.enrich = w.enrich AND t.outcome = %s"
            " WHERE w.app = %s AND w.enrich = %s",
            (PENDING, self._app, self._enrich.name),
        ).fetchone()
        return None if found is None else (found[0], found[1])

    def add(self, connection: Connection, events: Iterable[WaitingEvent]) -> None:
        """From their arrival in the log on; files without log times have only the times of events."""
        assert self._enrich.retry is not None
        horizon = self._enrich.retry.horizon // MICROSECOND
        copying = sql.SQL("COPY {} ({}, clock, until) FROM STDIN").format(self._table, _COLUMNS)
        with connection.cursor() as cursor, cursor.copy(copying) as copy:
            for event in events:
                clock = "event" if event.log_time is None else "ingestion"
                start = event.event_time if event.log_time is None else event.log_time
                copy.write_row(
                    (
                        *event[:4],
                        [None if key is None else key.encode() for key in event.keys],
                        *(event.key, event.value, headers_to_bytes(event.headers), clock, start + horizon),
                    )
                )

    def asked(self, connection: Connection) -> list[Asked]:
        rows = connection.execute(
            sql.SQL('SELECT partition, "offset", event_time, keys FROM {}').format(self._table)
        )
        return [Asked._make((*row[:3], _texts(row[3]))) for row in rows]

    def take(self, connection: Connection, chosen: Sequence[Asked]) -> list[WaitingEvent]:
        """These events leave."""
        return self._taken(
            connection,
            sql.SQL(
                "WITH gone AS (DELETE FROM {} w USING unnest(%s::int[], %s::bigint[]) AS g(p, o)"
                ' WHERE w.partition = g.p AND w."offset" = g.o RETURNING w.*)'
            ),
            ([event.partition for event in chosen], [event.offset for event in chosen]),
        )

    def take_until(self, connection: Connection, clock: str, watermark: int) -> list[WaitingEvent]:
        """Those whose time is over leave."""
        return self._taken(
            connection,
            sql.SQL("WITH gone AS (DELETE FROM {} WHERE clock = %s AND until <= %s RETURNING *)"),
            (clock, watermark),
        )

    def take_all(self, connection: Connection) -> list[WaitingEvent]:
        return self._taken(connection, sql.SQL("WITH gone AS (DELETE FROM {} RETURNING *)"), ())

    def note(self, connection: Connection, looked_up: str | None = None) -> None:
        """How many wait now, and what all of them were looked up in if that is new."""
        connection.execute(
            sql.SQL(
                "INSERT INTO headrace.enrich_totals SELECT %s, %s, %s, count(*) FROM {}"
                " ON CONFLICT (app, enrich, outcome) DO UPDATE SET count = excluded.count"
            ).format(self._table),
            (self._app, self._enrich.name, PENDING),
        )
        if looked_up is not None:
            connection.execute(
                "UPDATE headrace.enrich_waits SET looked_up = %s WHERE app = %s AND enrich = %s",
                (looked_up, self._app, self._enrich.name),
            )

    def _taken(self, connection: Connection, leaving: sql.SQL, values: tuple[Any, ...]) -> list[WaitingEvent]:
        rows = connection.execute(
            leaving.format(self._table)
            + sql.SQL(' SELECT {} FROM gone ORDER BY partition, "offset"').format(_COLUMNS),
            values,
        )
        return [
            WaitingEvent._make((*row[:4], _texts(row[4]), *row[5:7], headers_of_bytes(row[7])))
            for row in rows
        ]


def _texts(keys: list[bytes | None]) -> list[str | None]:
    return [None if key is None else bytes(key).decode() for key in keys]
