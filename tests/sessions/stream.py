"""Accepted events through sessions and the store; rows and late events as the oracle has them."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg import sql
from pyspark.sql import SparkSession

from headrace.contracts import load_contract
from headrace.declared import Declared
from headrace.ops.derive import derive
from headrace.sessions import Sessions
from headrace.store.connection import Store
from headrace.store.source_accounts import SourceAccounts
from tests.oracle.sessions_oracle import LateEvent, SessionRow
from tests.views.stream import CONTRACT, Stream

EPOCH = datetime.fromtimestamp(0, UTC)
_numbers = itertools.count()


class SessionStream(Stream):
    """One source with sessions on a real store."""

    def __init__(self, spark: SparkSession, store_url: str, *sessions: Sessions) -> None:
        self.app = f"sessions_{next(_numbers)}_{datetime.now(UTC):%H%M%S%f}"
        self.contract = load_contract(CONTRACT)
        self._spark, self._url = spark, store_url
        self.store = Store(store_url)
        self.store.prepare()
        derived = derive(spark, self.app, self.app, self.contract, Declared(sessions=sessions))
        assert derived is not None
        self.views = derived.views
        self.accounts = SourceAccounts(self.store, self.app, self.contract, derived.folds)
        self.accounts.prepare()
        self._clocks: dict[int, int | None] = {}
        self._batches = 0

    def sessions(self, sessions: Sessions) -> list[SessionRow]:
        names = (sessions.key, "session_start", "last_event", "events", "state", "revision")
        columns = sql.SQL(", ").join(map(sql.Identifier, (*names, *sessions.visible)))
        table = sql.Identifier(self.app, sessions.name)
        with psycopg.connect(self._url) as connection:
            found = connection.execute(sql.SQL("SELECT {} FROM {}").format(columns, table)).fetchall()
        return [
            SessionRow(key, _micros(start), _micros(last), *rest, tuple(values))
            for key, start, last, *rest, values in ((*row[:6], row[6:]) for row in found)
        ]

    def pieces(self, sessions: Sessions) -> int:
        [(count,)] = self.query(f'SELECT count(*) FROM "{self.app}"."{sessions.name}__pieces"')
        return int(count)

    def late(self, sessions: Sessions) -> list[LateEvent]:
        found = self.query(
            'SELECT event_id, partition, "offset", event_time, window_end, clock, late_by, reason'
            f" FROM headrace.late_events WHERE app = %(app)s AND metric = '{sessions.name}'"
        )
        return sorted(
            LateEvent(
                *(event_id, partition, offset, _micros(at), _micros(end), _micros(clock)),
                *(late_by // timedelta(microseconds=1), reason),
            )
            for event_id, partition, offset, at, end, clock, late_by, reason in found
        )

    def counts(self, sessions: Sessions) -> list[tuple[Any, ...]]:
        return self.query(
            "SELECT accepted, counted, filtered, late FROM headrace.metric_ledger WHERE query = %(app)s"
            f" AND metric = '{sessions.name}' ORDER BY batch_id"
        )


def _micros(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)
