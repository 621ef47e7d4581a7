"""The ledger: for every batch and partition, what was received and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from headrace.crash import crash_point
from headrace.gate.ledger import Batch, Entry
from headrace.store.changes import announce
from headrace.store.connection import Connection, Store
from headrace.store.source_accounts import SourceAccounts
from headrace.store.times import to_micros, to_time


class Ledger:
    """The ledger of one query, in the store."""

    def __init__(
        self, store: Store, query: str, keep: timedelta, derived: SourceAccounts | None = None
    ) -> None:
        self._store, self.query, self._keep, self._derived = store, query, keep, derived

    def recorded_ends(self, batch_id: int) -> dict[int, int] | None:
        """Where the batch ended in each partition it touched, or None if it is not recorded."""

        def look(connection: Connection) -> dict[int, int] | None:
            key = (self.query, batch_id)
            found = connection.execute(
                "SELECT 1 FROM headrace.batches WHERE query = %s AND batch_id = %s", key
            )
            if found.fetchone() is None:
                return None
            ends = connection.execute(
                "SELECT partition, end_offset FROM headrace.ledger WHERE query = %s AND batch_id = %s", key
            )
            return dict(ends)

        return self._store.transact(look)

    def clocks(self) -> dict[int, int | None]:
        def read(connection: Connection) -> dict[int, int | None]:
            rows = connection.execute(
                "SELECT partition, clock FROM headrace.clocks WHERE query = %s", (self.query,)
            )
            return {partition: to_micros(clock) for partition, clock in rows}

        return self._store.transact(read)

    def watermarks(self) -> dict[str, int | None]:
        return self._derived.watermarks() if self._derived else {}

    def record(self, batch: Batch, parts: Mapping[str, Any]) -> None:
        """Write the batch, merge its parts and move the clocks, once: what is recorded stays as it is."""

        def write(connection: Connection) -> None:
            if not open_batch(connection, batch):
                return
            if self._derived is not None:
                self._derived.record(connection, batch, parts)
            close_batch(connection, batch)
            self._forget_old(connection, batch.batch_id)
            announce(connection, self.query)
            crash_point("before_store_commit")

        self._store.transact(write)

    def _forget_old(self, connection: Connection, batch_id: int) -> None:
        if batch_id % 100 == 0:
            connection.execute(
                "DELETE FROM headrace.batches WHERE query = %s AND finished_at < clock_timestamp() - %s",
                (self.query, self._keep),
            )
            for accounts in ("metric_ledger", "flow_ledger") if self._derived is not None else ():
                connection.execute(
                    sql.SQL(
                        "DELETE FROM {} a WHERE query = %s AND NOT EXISTS (SELECT 1 FROM headrace.batches b"
                        " WHERE b.query = a.query AND b.batch_id = a.batch_id)"
                    ).format(sql.Identifier("headrace", accounts)),
                    (self.query,),
                )


def open_batch(connection: Connection, batch: Batch) -> bool:
    """Before anything of it is merged; False if it is recorded already."""
    new = connection.execute(
        "INSERT INTO headrace.batches (query, batch_id, started_at, received, duplicates, dropped)"
        " VALUES (%s, %s, %s, 0, 0, 0) ON CONFLICT DO NOTHING",
        (batch.query, batch.batch_id, batch.started_at),
    )
    return bool(new.rowcount)


def close_batch(connection: Connection, batch: Batch) -> None:
    """When it is known what became of it."""
    _write_entries(connection, batch)
    connection.execute(
        "UPDATE headrace.batches SET received = %s, duplicates = %s, dropped = %s,"
        " finished_at = clock_timestamp() WHERE query = %s AND batch_id = %s",
        (
            *(batch.received, batch.outcome.duplicates, batch.outcome.dropped),
            *(batch.query, batch.batch_id),
        ),
    )


def _write_entries(connection: Connection, batch: Batch) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO headrace.ledger VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [_ledger_row(batch, entry) for entry in batch.entries],
        )
        cursor.executemany(
            "INSERT INTO headrace.clocks (query, partition, clock, next_offset, log_time)"
            " VALUES (%s, %s, %s, %s, %s)"
            " ON CONFLICT (query, partition) DO UPDATE SET"
            " clock = greatest(headrace.clocks.clock, excluded.clock),"
            " log_time = greatest(headrace.clocks.log_time, excluded.log_time),"
            " next_offset = excluded.next_offset, moved_at = clock_timestamp()",
            [
                (batch.query, e.partition, to_time(e.clock), e.end_offset, to_time(e.log_time))
                for e in batch.entries
            ],
        )


def _ledger_row(batch: Batch, e: Entry) -> tuple[object, ...]:
    return (
        *(batch.query, batch.batch_id, e.partition, e.first_offset, e.end_offset),
        *(e.received, e.accepted, e.rejected, e.late, e.duplicate, Jsonb(e.reasons), to_time(e.clock)),
        to_time(e.oldest_log_time),
    )
