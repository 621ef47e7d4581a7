"""Merging a batch's pieces into sessions, and moving the sessions through their states. Never key by key.

Only keys that the batch touches are looked at. They are given as arrays, which Postgres always answers from
an index: it knows nothing about the size of a temporary table, and a join with one might read all sessions.
"""

from __future__ import annotations

from typing import NamedTuple

from psycopg import sql

from headrace.store.connection import Connection
from headrace.store.metric_parts import with_row
from headrace.store.metric_shape import column_list, make_scratch
from headrace.store.session_chains import find_sessions, replace_rows
from headrace.store.session_shape import TEXT, SessionShape
from headrace.store.session_tables import piece_columns
from headrace.store.times import to_end, to_time
from headrace.views.session_pieces import Pieces, ResolvedSessions
from headrace.views.session_seals import OPEN, Sealed, Span, seal
from headrace.windows import MICROSECOND

MICROS = "(extract(epoch FROM {}) * 1000000)::bigint"


class Merged(NamedTuple):
    """What became of the suspects, and by how much the sessions that can change have become more."""

    sealed: Sealed
    opened: int


class Closed(NamedTuple):
    """Sessions that have become final, and the events of those that are beyond their retention."""

    sessions: int
    forgotten: int


class SessionStore:
    """The tables of one declaration, inside the transaction of a batch."""

    def __init__(self, app: str, resolved: ResolvedSessions) -> None:
        self._shape = SessionShape(app, resolved)
        self._resolved, self._sessions = resolved, resolved.sessions

    def there(self, connection: Connection) -> dict[str, int]:
        """The events in the table, and the sessions that can still change."""
        found = connection.execute(
            sql.SQL(
                "SELECT coalesce(sum(events), 0)::bigint, count(*) FILTER (WHERE state <> 'final') FROM {}"
            ).format(self._shape.table)
        ).fetchone() or (0, 0)
        return {"before": found[0], "open": found[1]}

    def merge(self, connection: Connection, pieces: Pieces) -> Merged:
        """All events are taken, except for some of the suspects."""
        make_scratch(connection, self._shape.staged, piece_columns(self._resolved))
        make_scratch(
            connection, self._shape.seals, [("__key", TEXT), ("__cell", "bigint"), ("__seal", "int")]
        )
        sealed, opened = Sealed(), 0
        if pieces.suspects:
            sealed = self._sealed(connection, pieces)
        if pieces.lines or sealed.taken or sealed.pieces:
            self._stage(connection, pieces, sealed)
            self._upsert(connection)
            find_sessions(connection, self._shape)
            opened = replace_rows(connection, self._shape)
            if any(number != OPEN for _, number in sealed.taken) or sealed.pieces:
                self._drop_sealed(connection)
        return Merged(sealed, opened)

    def advance(self, connection: Connection, watermark: int | None) -> Closed:
        """Rows that the watermark has passed become preliminary, then final; final ones need no pieces."""
        if watermark is None:
            return Closed(0, 0)
        at, sessions = to_time(watermark), self._sessions
        publish = sql.SQL(
            "UPDATE {} SET state = {}, revision = greatest(revision, 1), watermark = %s,"
            " published_at = coalesce(published_at, now()), updated_at = now()"
            " WHERE state = ANY(%s) AND session_end <= %s"
        )
        closed = connection.execute(
            sql.SQL(
                "WITH done AS ({} RETURNING {key} AS __key, {start} AS first, {last} AS last, sealed)"
                ", used AS (DELETE FROM {pieces} p USING done d"
                " WHERE p.__key = ANY(ARRAY(SELECT __key FROM done))"
                " AND p.__key = d.__key AND NOT d.sealed AND p.__first BETWEEN d.first AND d.last)"
                " SELECT count(*) FROM done"
            ).format(
                publish.format(self._shape.table, sql.Literal("final")),
                key=self._shape.key,
                pieces=self._shape.pieces,
                start=sql.SQL(MICROS.format("session_start")),
                last=sql.SQL(MICROS.format("last_event")),
            ),
            (at, ["open", "preliminary", "corrected"], to_end(watermark - sessions.final_us)),
        ).fetchone()
        connection.execute(
            publish.format(self._shape.table, sql.Literal("preliminary")),
            (at, ["open"], to_end(watermark - sessions.preliminary_after // MICROSECOND)),
        )
        gone = connection.execute(
            sql.SQL(
                "WITH gone AS (DELETE FROM {} WHERE state = 'final' AND session_end < %s RETURNING events)"
                " SELECT coalesce(sum(events), 0)::bigint FROM gone"
            ).format(self._shape.table),
            (to_time(watermark - sessions.retain // MICROSECOND),),
        ).fetchone()
        return Closed(closed[0] if closed else 0, gone[0] if gone else 0)

    def forget_late(self, connection: Connection, query: str) -> None:
        """Late events last as long as the rows that they missed would have."""
        connection.execute(
            "DELETE FROM headrace.late_events WHERE app = %s AND metric = %s AND window_end <"
            " (SELECT watermark FROM headrace.watermarks WHERE query = %s AND time = 'event') - %s",
            (self._shape.app, self._sessions.name, query, self._sessions.retain),
        )

    def _sealed(self, connection: Connection, pieces: Pieces) -> Sealed:
        """The suspects against the pieces that are there: one query, then in order of their offsets."""
        stored: dict[str, dict[int, Span]] = {}
        rows = connection.execute(
            sql.SQL("SELECT __key, __cell, __first, __last FROM {} WHERE __key = ANY(%s)").format(
                self._shape.pieces
            ),
            (list({event.key for event in pieces.suspects}),),
        )
        for key, cell, first, last in rows:
            stored.setdefault(key, {})[cell] = Span(first, last)
        return seal(self._sessions, pieces.suspects, stored)

    def _stage(self, connection: Connection, pieces: Pieces, sealed: Sealed) -> None:
        with (
            connection.cursor() as cursor,
            cursor.copy(sql.SQL("COPY {} FROM STDIN").format(self._shape.staged)) as copy,
        ):
            if pieces.lines:
                copy.write(f"{OPEN}\t" + f"\n{OPEN}\t".join(pieces.lines) + "\n")
            copy.write("".join(f"{number}\t{event.line}\n" for event, number in sealed.taken))
        if not sealed.pieces:
            return
        with (
            connection.cursor() as cursor,
            cursor.copy(sql.SQL("COPY {} FROM STDIN").format(self._shape.seals)) as copy,
        ):
            for row in sealed.pieces:
                copy.write_row(row)
        connection.execute(
            sql.SQL(
                "UPDATE {} p SET __seal = s.__seal FROM {seals} s"
                " WHERE p.__key = ANY(ARRAY(SELECT __key FROM {seals}))"
                " AND p.__key = s.__key AND p.__cell = s.__cell"
            ).format(self._shape.pieces, seals=self._shape.seals)
        )

    def _upsert(self, connection: Connection) -> None:
        parts = self._resolved.parts
        connection.execute(
            sql.SQL(
                "INSERT INTO {pieces} AS t ({columns}) SELECT __seal, __key, __cell, min(__first),"
                " max(__last), sum(__events)::bigint{sums} FROM {staged} GROUP BY __seal, __key, __cell"
                " ON CONFLICT (__key, __cell, __seal) DO UPDATE SET"
                " __first = least(t.__first, excluded.__first),"
                " __last = greatest(t.__last, excluded.__last),"
                " __events = t.__events + excluded.__events{merged}"
            ).format(
                pieces=self._shape.pieces,
                staged=self._shape.staged,
                columns=column_list([name for name, _ in piece_columns(self._resolved)]),
                sums=self._shape.sums(),
                merged=sql.SQL("").join(with_row(part) for part in parts),
            )
        )

    def _drop_sealed(self, connection: Connection) -> None:
        connection.execute(
            sql.SQL(
                "DELETE FROM {} WHERE __key = ANY(ARRAY(SELECT __key FROM {} WHERE __seal <> {}))"
                " AND __seal <> {}"
            ).format(self._shape.pieces, self._shape.found, sql.Literal(OPEN), sql.Literal(OPEN))
        )
