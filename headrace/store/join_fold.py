"""One side of a join in the store. Two folds, often of two queries, share a join: one at a time holds it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from hashlib import md5
from pathlib import Path
from typing import Any

from psycopg import sql

from headrace.flows.join_resolve import ResolvedJoin
from headrace.flows.taken import Taken, TakenRow
from headrace.gate.ledger import Batch
from headrace.joins import SIDES, Side, other
from headrace.store.connection import Connection
from headrace.store.join_export import export_join
from headrace.store.join_outcome import Outcome
from headrace.store.join_pairs import Pairs, lookups
from headrace.store.join_tables import Bounds, JoinShape, define, locked, make_scratch
from headrace.store.outbox import account, count
from headrace.store.source_accounts import Watermarks
from headrace.store.times import moved, to_micros, to_time

LONGEST_KEY = 500  # characters; an index holds no key of any length


class JoinFold:
    """`queries` are those of the two sources: their watermarks say what can still come."""

    def __init__(self, app: str, queries: dict[Side, str], resolved: ResolvedJoin, side: Side) -> None:
        self._shape = JoinShape(app, resolved)
        self._join, self._side, self._queries = resolved.join, side, queries
        self._keys = {s: (queries[s], self._join.name, s) for s in SIDES}
        self._pairs, self._outcome = Pairs(self._shape), Outcome(self._shape)
        # Every pair counts, or the log has an order: then a pair is decided when its second event comes.
        self._at_once = self._join.kind == "one_to_many" or resolved.order == "log"

    def prepare(self, connection: Connection, watermarks: Watermarks) -> None:
        define(connection, self._shape)
        self._outcome.prepare(connection)

    def merge(
        self, connection: Connection, batch: Batch, part: Taken, before: Watermarks, after: Watermarks
    ) -> None:
        bounds = locked(connection, self._shape.app, self._join)
        late, rows = _split(part.rows, bounds.of(self._side))
        keyless = matched = 0
        if late:
            self._write_late(connection, late, bounds.of(self._side))
        if rows:
            make_scratch(connection, self._shape)
            self._load(connection, rows)
            if any(row.values[0] is None for row in rows):
                keyless = self._outcome.write_keyless(connection, self._side)
            if self._at_once:
                self._pairs.with_fresh(connection, self._side)
                self._outcome.write_pairs(connection)
                matched = self._keep(connection)
                self._tell_partners(connection, other(self._side))
            else:
                self._keep_all(connection)
        key = self._keys[self._side]
        taken, accepted = len(part.rows), batch.accepted
        account(
            *(connection, key[0], batch.batch_id, key[1], key[2]),
            (accepted, taken, len(late)),
        )
        totals = {"taken": taken, "matched": matched, "unmatched": keyless, "late": len(late)}
        count(
            connection,
            key,
            batch.batch_id,
            pending_in=[self._shape.app, f"{self._join.name}__{self._side}"],
            accepted=accepted,
            **totals,
        )

    def advance(
        self, connection: Connection, before: Watermarks, after: Watermarks, part: Taken | None
    ) -> None:
        """Decide what is certain now, and let go what can meet nobody any more."""
        old = locked(connection, self._shape.app, self._join)
        new = self._bounds(connection, old)
        if new == old:
            return
        if not self._at_once:
            make_scratch(connection, self._shape)
            self._pairs.settled(connection, old, new)
            self._outcome.write_pairs(connection)
            for side in SIDES:
                self._tell_partners(connection, side)
        for side in SIDES:
            below = self._over(new, side)
            if below is not None:
                gone = self._outcome.dismiss(connection, side, below)
                count(connection, self._keys[side], unmatched=gone)
        connection.execute(
            "UPDATE headrace.joins SET left_bound = %s, right_bound = %s WHERE app = %s AND name = %s",
            (*new, self._shape.app, self._join.name),
        )

    def forget_old(self, connection: Connection) -> None:
        bounds = [bound for bound in locked(connection, self._shape.app, self._join) if bound is not None]
        if bounds:
            oldest = moved(min(bounds), -self._join.retain)
            self._outcome.forget_old(connection, oldest)
            connection.execute(
                "DELETE FROM headrace.flow_late WHERE app = %s AND flow = %s AND event_time < %s",
                (self._shape.app, self._join.name, oldest),
            )

    def export(self, connection: Connection, folder: Path) -> dict[str, Any]:
        return export_join(connection, self._shape, self._keys[self._side], folder)

    def _bounds(self, connection: Connection, old: Bounds) -> Bounds:
        """The watermark of a source less its lateness: what is older comes only from a partition that slept.

        A source that never had an event gets as long as its events could take, by the wall clock; then the
        other side goes on without it, and its first events may be late.
        """
        rows = connection.execute(
            "SELECT query, watermark FROM headrace.watermarks WHERE time = 'event' AND query = ANY(%s)",
            (list(self._queries.values()),),
        )
        watermarks: dict[str, datetime] = dict(rows.fetchall())
        found: dict[Side, datetime | None] = {}
        for side in SIDES:
            contract = self._shape.resolved.contract(side)
            watermark = watermarks.get(self._queries[side])
            theirs = watermarks.get(self._queries[other(side)])
            if watermark is None and theirs is not None and self._has_waited(connection, side):
                watermark = moved(theirs, -contract.idle_after)
            bound = None if watermark is None else moved(watermark, -contract.lateness)
            known = old.of(side)
            found[side] = known if bound is None or (known is not None and known > bound) else bound
        return Bounds(found["left"], found["right"])

    def _has_waited(self, connection: Connection, side: Side) -> bool:
        contract = self._shape.resolved.contract(side)
        found = connection.execute(
            "SELECT clock_timestamp() - since > %s FROM headrace.joins WHERE app = %s AND name = %s",
            (
                self._join.within + contract.lateness + contract.idle_after,
                *(self._shape.app, self._join.name),
            ),
        ).fetchone()
        return found is not None and bool(found[0])

    def _over(self, bounds: Bounds, side: Side) -> datetime | None:
        """Before which time an event of the side can meet nobody any more."""
        mine, theirs = bounds.of(side), bounds.of(other(side))
        if theirs is None:
            return None
        over = moved(theirs, -self._join.within)
        if self._at_once:
            return over
        return None if mine is None else min(mine, over)

    def _load(self, connection: Connection, rows: list[TakenRow]) -> None:
        fresh, types = self._shape.fresh[self._side], list(self._shape.taken(self._side).values())
        times = [n for n, type_ in enumerate(types, 1) if type_ == "timestamptz"]
        connection.execute(sql.SQL("TRUNCATE {}").format(fresh))
        copying = sql.SQL("COPY {} ({}) FROM STDIN").format(fresh, self._shape.held(self._side))
        with connection.cursor() as cursor, cursor.copy(copying) as copy:
            for row in rows:
                values = [_storable(value) for value in row.values]
                for n in times:
                    values[n] = None if values[n] is None else str(to_time(int(values[n] or 0)))
                copy.write_row(
                    (
                        *(_short(values[0]), _storable(row.event_id), to_time(row.event_time)),
                        *(row.partition, row.offset, *values[1:]),
                    )
                )

    def _keep(self, connection: Connection) -> int:
        """New events wait with what has become of them; returns how many have a match already."""
        mine = self._side[0]
        # A match of a one-to-one join, and the left one of a first match, need nobody else.
        leaves = self._leaves(self._side)
        found = connection.execute(
            sql.SQL(
                "WITH met AS (SELECT {0}_partition AS p, {0}_offset AS o, bool_or(reason IS NULL) AS matched,"
                " bool_or(reason IS NOT NULL) AS failed FROM {1} GROUP BY 1, 2), kept AS ("
                " INSERT INTO {2} ({3}, matched, failed) SELECT {3}, coalesce(m.matched, false),"
                " coalesce(m.failed, false) FROM {4} f"
                ' LEFT JOIN met m ON m.p = f.partition AND m.o = f."offset"'
                " WHERE f.key IS NOT NULL AND NOT ({5} AND coalesce(m.matched, false)))"
                " SELECT count(*) FROM met WHERE matched"
            ).format(
                sql.SQL(mine),
                self._shape.pairs,
                self._shape.pending[self._side],
                self._shape.held(self._side),
                self._shape.fresh[self._side],
                sql.Literal(leaves),
            )
        ).fetchone()
        return int(found[0]) if found else 0

    def _keep_all(self, connection: Connection) -> None:
        connection.execute(
            sql.SQL("INSERT INTO {0} ({1}, matched, failed) SELECT {1}, false, false FROM {2}").format(
                self._shape.pending[self._side], self._shape.held(self._side), self._shape.fresh[self._side]
            )
            + sql.SQL(" WHERE key IS NOT NULL")
        )

    def _leaves(self, side: Side) -> bool:
        return self._join.kind == "one_to_one" or (self._join.kind == "first_match" and side == "left")

    def _tell_partners(self, connection: Connection, side: Side) -> None:
        """Events that waited on a side: those that have met one leave, or know it."""
        met = sql.SQL(
            "w.key = p.key AND w.event_time = p.{0}_time AND w.partition = p.{1}_partition"
            ' AND w."offset" = p.{1}_offset'
        ).format(sql.SQL(side), sql.SQL(side[0]))
        table, pairs = self._shape.pending[side], self._shape.pairs
        if self._leaves(side):
            change = sql.SQL("DELETE FROM {} w USING {} p WHERE {} AND p.reason IS NULL").format(
                table, pairs, met
            )
        else:
            change = sql.SQL(
                "UPDATE {} w SET matched = true FROM {} p WHERE {} AND p.reason IS NULL AND NOT w.matched"
            ).format(table, pairs, met)
        with lookups(connection):
            count(connection, self._keys[side], matched=connection.execute(change).rowcount)
            if self._join.checks:
                connection.execute(
                    sql.SQL(
                        "UPDATE {} w SET failed = true FROM {} p"
                        " WHERE {} AND p.reason IS NOT NULL AND NOT w.failed"
                    ).format(table, pairs, met)
                )

    def _write_late(self, connection: Connection, rows: list[TakenRow], bound: datetime | None) -> None:
        assert bound is not None
        with (
            connection.cursor() as cursor,
            cursor.copy(
                'COPY headrace.flow_late (app, flow, side, event_id, partition, "offset", event_time,'
                " bound, late_by) FROM STDIN"
            ) as copy,
        ):
            for row in rows:
                time = to_time(row.event_time)
                copy.write_row(
                    (
                        *(self._shape.app, self._join.name, self._side, _storable(row.event_id)),
                        *(row.partition, row.offset, time, bound, bound - time),
                    )
                )


def _split(rows: Iterable[TakenRow], bound: datetime | None) -> tuple[list[TakenRow], list[TakenRow]]:
    """Late ones, and the rest: before the bound everything was decided already."""
    late: list[TakenRow] = []
    rest: list[TakenRow] = []
    first = to_micros(bound)
    for row in rows:
        (late if first is not None and row.event_time < first else rest).append(row)
    return late, rest


def _storable(text: str | None) -> str | None:
    """Postgres keeps no NUL in a text."""
    return text.replace("\0", "\ufffd") if text is not None and "\0" in text else text


def _short(key: str | None) -> str | None:
    if key is None or len(key) <= LONGEST_KEY:
        return key
    return f"md5:{md5(key.encode()).hexdigest()}"
