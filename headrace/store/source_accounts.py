"""What is derived from one source, in the store: merged in the batch's transaction, moved on in silence."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from headrace.contracts.model import Contract
from headrace.fates import latest
from headrace.gate.ledger import Batch, Reach
from headrace.store.changes import announce
from headrace.store.connection import Connection, Store
from headrace.store.times import moved, to_micros, to_time
from headrace.views.watermark import arrival_watermark_of, watermark_of
from headrace.windows import MICROSECOND

Watermarks = Mapping[str, int | None]  # by kind of time


class Fold(Protocol):
    """The store's half of a derivation: it merges the part of a batch that bears its name."""

    def prepare(self, connection: Connection, watermarks: Watermarks) -> None:
        """Create what is missing; raises AppError where a declaration does not fit its table."""

    def merge(
        self, connection: Connection, batch: Batch, part: Any, before: Watermarks, after: Watermarks
    ) -> None:
        """The watermarks are those before the batch, which made final what never changes, and after it."""

    def advance(self, connection: Connection, before: Watermarks, after: Watermarks, part: Any) -> None:
        """The watermarks have moved, after a batch (whose part is given) or in silence (None)."""

    def forget_old(self, connection: Connection) -> None:
        """Remove what is beyond its retention; called now and then."""

    def export(self, connection: Connection, folder: Path) -> dict[str, Any]:
        """Write the tables as files; returns what became of the accepted events, by name."""


@runtime_checkable
class Refreshing(Protocol):
    """A fold that also depends on what changes by itself, without a batch and without the watermark."""

    def refresh(self, connection: Connection) -> bool:
        """Look at it; returns whether anything came of it."""


class SourceAccounts:
    """Watermarks and tables of one query. One process works on them at a time."""

    def __init__(
        self, store: Store, query: str, contract: Contract, folds: Mapping[str, Fold] | None = None
    ) -> None:
        self._store, self._query = store, query
        self._idle = contract.idle_after // MICROSECOND
        self.folds = dict(folds or {})
        self._reached: dict[int, Reach] = {}

    def prepare(self) -> None:
        """Create what is missing; raises AppError where a declaration does not fit its table."""

        def create(connection: Connection) -> None:
            connection.execute("SELECT pg_advisory_xact_lock(72656164)")
            watermarks = self._watermarks(connection)
            for fold in self.folds.values():
                fold.prepare(connection, watermarks)
            rows = connection.execute(
                "SELECT partition, clock, log_time FROM headrace.clocks WHERE query = %s", (self._query,)
            )
            self._reached = {p: Reach(to_micros(clock), to_micros(log)) for p, clock, log in rows}

        self._store.transact(create)

    def watermarks(self) -> dict[str, int | None]:
        return self._store.transact(self._watermarks)

    def record(self, connection: Connection, batch: Batch, parts: Mapping[str, Any]) -> None:
        """Merge a batch, then move every row as far as the new watermark says.

        Merging comes first: it needs nothing that is known only when the batch is published.
        """
        # Nobody has told Postgres how large the new and the temporary tables are: joined row by row, as it
        # does with small ones, a batch would take minutes.
        connection.execute(
            "SELECT set_config('enable_nestloop', 'off', true), set_config('enable_seqscan', 'off', true)"
        )
        before = self._watermarks(connection)
        reached = {**self._reached, **{p: self._beyond(p, reach) for p, reach in batch.reached.items()}}
        after = {
            "event": latest(before.get("event"), watermark_of(reached, self._idle)),
            "ingestion": latest(before.get("ingestion"), arrival_watermark_of(reached, self._idle)),
        }
        for name, part in parts.items():
            self.folds[name].merge(connection, batch, part, before, after)
        for name, enriched in batch.outcome.enriched.items():
            # What an attempt before a restart published may no longer be declared.
            if name in self.folds:
                self.folds[name].merge(connection, batch, enriched, before, after)
        self._move(connection, after, datetime.now(UTC))
        for name, fold in self.folds.items():
            fold.advance(connection, before, after, parts.get(name))
            if batch.batch_id % 100 == 0:
                fold.forget_old(connection)
        self._reached = reached

    def tick(self, now: datetime) -> bool:
        """When the source has been silent for long, the watermark goes on with the wall clock.

        Before that, what depends on more than events looks whether it has changed.
        """

        def move(connection: Connection) -> bool:
            rows = connection.execute(
                "SELECT time, base, watermark, active_at FROM headrace.watermarks"
                " WHERE query = %s FOR UPDATE",
                (self._query,),
            ).fetchall()
            before: dict[str, int | None] = {}
            after: dict[str, int | None] = {}
            for time, base, watermark, active_at in rows:
                silent = now - active_at - timedelta(microseconds=self._idle)
                if silent > timedelta() and moved(base, silent) > watermark:
                    before[time], after[time] = to_micros(watermark), to_micros(moved(base, silent))
            if not after:
                changed = [f.refresh(connection) for f in self.folds.values() if isinstance(f, Refreshing)]
                if any(changed):
                    announce(connection, self._query)
                return any(changed)
            for time, watermark in after.items():
                connection.execute(
                    "UPDATE headrace.watermarks SET watermark = %s WHERE query = %s AND time = %s",
                    (to_time(watermark), self._query, time),
                )
            for fold in self.folds.values():
                fold.advance(connection, before, after, None)
            announce(connection, self._query)
            return True

        return bool(self.folds) and self._store.transact(move)

    def _beyond(self, partition: int, reach: Reach) -> Reach:
        known = self._reached.get(partition, Reach(None, None))
        return Reach(latest(known.clock, reach.clock), latest(known.log_time, reach.log_time))

    def _watermarks(self, connection: Connection) -> dict[str, int | None]:
        rows = connection.execute(
            "SELECT time, watermark FROM headrace.watermarks WHERE query = %s FOR UPDATE", (self._query,)
        )
        return {time: to_micros(watermark) for time, watermark in rows}

    def _move(self, connection: Connection, after: Watermarks, now: datetime) -> None:
        for time, watermark in after.items():
            if watermark is not None:
                at = to_time(watermark)
                connection.execute(
                    "INSERT INTO headrace.watermarks (query, time, base, watermark, active_at)"
                    " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (query, time) DO UPDATE SET"
                    " base = excluded.base, watermark = excluded.watermark, active_at = excluded.active_at",
                    (self._query, time, at, at, now),
                )
