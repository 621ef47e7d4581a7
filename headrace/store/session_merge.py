"""Merging a batch's pieces into sessions, and moving the sessions through their states. Never key by key.

Only keys that the batch touches are looked at. They are given as arrays, which Postgres always answers from
an index: it knows nothing about the size of a temporary table, and a join with one might read all sessions.
"""

from __future__ import annotations

from psycopg import sql

from headrace.store.connection import Connection
from headrace.store.metric_parts import with_row, within_batch
from headrace.store.metric_shape import column_list, make_scratch
from headrace.store.session_tables import piece_columns, pieces_name, table_name
from headrace.store.times import EPOCH, to_time
from headrace.views.session_pieces import Pieces, ResolvedSessions
from headrace.views.session_seals import OPEN, Sealed, Span, seal
from headrace.windows import MICROSECOND

TEXT = 'text COLLATE "C"'
IN_TIME = sql.SQL("'epoch'::timestamptz + {} * interval '1 microsecond'")
MICROS = "(extract(epoch FROM {}) * 1000000)::bigint"


class SessionStore:
    """The tables of one declaration, inside the transaction of a batch."""

    def __init__(self, app: str, resolved: ResolvedSessions) -> None:
        self._app, self._resolved, self._sessions = app, resolved, resolved.sessions
        self._table, self._pieces = table_name(app, self._sessions), pieces_name(app, self._sessions)
        self._staged, self._seals, self._found = (self._scratch(n) for n in ("staged", "seals", "found"))
        self._key = sql.Identifier(self._sessions.key)
        self._parts = [part.column for part in resolved.parts]

    def merge(self, connection: Connection, pieces: Pieces) -> Sealed:
        """Returns what became of the suspects; all other events are taken."""
        make_scratch(connection, self._staged, piece_columns(self._resolved))
        make_scratch(connection, self._seals, [("key", TEXT), ("cell", "bigint"), ("seal", "int")])
        sealed = Sealed()
        if pieces.suspects:
            sealed = self._sealed(connection, pieces)
        if pieces.lines or sealed.taken or sealed.pieces:
            self._stage(connection, pieces, sealed)
            self._upsert(connection)
            self._find(connection)
            self._replace(connection)
            if any(number != OPEN for _, number in sealed.taken) or sealed.pieces:
                self._drop_sealed(connection)
        return sealed

    def advance(self, connection: Connection, watermark: int | None) -> None:
        """Rows that the watermark has passed become preliminary, then final; final ones need no pieces."""
        if watermark is None:
            return
        at = EPOCH + watermark * MICROSECOND
        publish = sql.SQL(
            "UPDATE {} SET state = {}, revision = greatest(revision, 1), watermark = %s,"
            " published_at = coalesce(published_at, now()), updated_at = now()"
            " WHERE state = ANY(%s) AND session_end <= %s"
        )
        connection.execute(
            sql.SQL(
                "WITH done AS ({} RETURNING {key} AS key, {start} AS first, {last} AS last, sealed)"
                " DELETE FROM {pieces} p USING done d WHERE p.key = ANY(ARRAY(SELECT key FROM done))"
                " AND p.key = d.key AND NOT d.sealed AND p.first_event BETWEEN d.first AND d.last"
            ).format(
                publish.format(self._table, sql.Literal("final")),
                key=self._key,
                pieces=self._pieces,
                start=sql.SQL(MICROS.format("session_start")),
                last=sql.SQL(MICROS.format("last_event")),
            ),
            (at, ["open", "preliminary", "corrected"], at - self._sessions.final_after),
        )
        connection.execute(
            publish.format(self._table, sql.Literal("preliminary")),
            (at, ["open"], at - self._sessions.preliminary_after),
        )
        connection.execute(
            sql.SQL("DELETE FROM {} WHERE state = 'final' AND session_end < %s").format(self._table),
            (at - self._sessions.retain,),
        )

    def forget_old(self, connection: Connection) -> None:
        """Late events last as long as the rows that they missed."""
        connection.execute(
            sql.SQL(
                "DELETE FROM headrace.late_events WHERE app = %s AND metric = %s"
                " AND window_end < (SELECT min(session_end) FROM {} WHERE state = 'final')"
            ).format(self._table),
            (self._app, self._sessions.name),
        )

    def write_late(self, connection: Connection, sealed: Sealed) -> None:
        sessions = self._sessions
        with (
            connection.cursor() as cursor,
            cursor.copy(
                'COPY headrace.late_events (app, metric, event_id, partition, "offset", event_time,'
                " window_start, window_end, clock, late_by, reason) FROM STDIN"
            ) as copy,
        ):
            for event in sealed.late:
                at, clock = to_time(event.event_time), to_time(event.clock)
                assert at is not None and clock is not None
                end = at + sessions.gap
                over = event.event_time + sessions.gap_us + sessions.final_us
                by_itself = event.own_clock is not None and over <= event.own_clock
                copy.write_row(
                    (
                        *(self._app, sessions.name, event.event_id, event.partition, event.offset, at),
                        *(at, end, clock, clock - end - sessions.final_after),
                        "late" if by_itself else "idle_wake",
                    )
                )

    def _scratch(self, what: str) -> sql.Identifier:
        return sql.Identifier("pg_temp", f"{what}_{self._sessions.name}")

    def _sealed(self, connection: Connection, pieces: Pieces) -> Sealed:
        """The suspects against the pieces that are there: one query, then in order of their offsets."""
        stored: dict[str, dict[int, Span]] = {}
        rows = connection.execute(
            sql.SQL("SELECT key, cell, first_event, last_event FROM {} WHERE key = ANY(%s)").format(
                self._pieces
            ),
            (list({event.key for event in pieces.suspects}),),
        )
        for key, cell, first, last in rows:
            stored.setdefault(key, {})[cell] = Span(first, last)
        return seal(self._sessions, pieces.suspects, stored)

    def _stage(self, connection: Connection, pieces: Pieces, sealed: Sealed) -> None:
        with (
            connection.cursor() as cursor,
            cursor.copy(sql.SQL("COPY {} FROM STDIN").format(self._staged)) as copy,
        ):
            if pieces.lines:
                copy.write(f"{OPEN}\t" + f"\n{OPEN}\t".join(pieces.lines) + "\n")
            copy.write("".join(f"{number}\t{event.line}\n" for event, number in sealed.taken))
        if not sealed.pieces:
            return
        with (
            connection.cursor() as cursor,
            cursor.copy(sql.SQL("COPY {} FROM STDIN").format(self._seals)) as copy,
        ):
            for row in sealed.pieces:
                copy.write_row(row)
        connection.execute(
            sql.SQL(
                "UPDATE {} p SET seal = s.seal FROM {seals} s"
                " WHERE p.key = ANY(ARRAY(SELECT key FROM {seals})) AND p.key = s.key AND p.cell = s.cell"
            ).format(self._pieces, seals=self._seals)
        )

    def _upsert(self, connection: Connection) -> None:
        parts = self._resolved.parts
        connection.execute(
            sql.SQL(
                "INSERT INTO {pieces} AS t ({columns}) SELECT seal, key, cell, min(first_event),"
                " max(last_event), sum(events)::bigint{sums} FROM {staged} GROUP BY seal, key, cell"
                " ON CONFLICT (key, cell, seal) DO UPDATE SET"
                " first_event = least(t.first_event, excluded.first_event),"
                " last_event = greatest(t.last_event, excluded.last_event),"
                " events = t.events + excluded.events{merged}"
            ).format(
                pieces=self._pieces,
                staged=self._staged,
                columns=column_list([name for name, _ in piece_columns(self._resolved)]),
                sums=self._sums(),
                merged=sql.SQL("").join(with_row(part) for part in parts),
            )
        )

    def _find(self, connection: Connection) -> None:
        """The sessions of all touched keys: chains of pieces, cut where they are longer than allowed.

        Only a chain that is too long is walked from piece to piece.
        """
        times = [("session_start", "timestamptz"), ("last_event", "timestamptz")]
        parts = [(part.column, part.type) for part in self._resolved.parts]
        make_scratch(
            connection, self._found, [("key", TEXT), ("seal", "int"), *times, ("events", "bigint"), *parts]
        )
        connection.execute(
            sql.SQL(
                """
                WITH RECURSIVE mine AS (
                    SELECT *, lag(last_event) OVER (PARTITION BY key, seal ORDER BY cell) AS before
                    FROM {pieces}
                    WHERE key = ANY(ARRAY(SELECT key FROM {staged} UNION SELECT key FROM {seals}))
                ), numbered AS (
                    SELECT *, count(*) FILTER (WHERE seal = {open} AND first_event - before > {gap})
                        OVER (PARTITION BY key, seal ORDER BY cell) AS chain
                    FROM mine
                ), chained AS MATERIALIZED (
                    SELECT *, min(first_event) OVER whole AS chain_start,
                        max(last_event) OVER whole AS chain_end,
                        row_number() OVER (PARTITION BY key, seal, chain ORDER BY cell) AS n
                    FROM numbered WINDOW whole AS (PARTITION BY key, seal, chain)
                ), long AS MATERIALIZED (
                    SELECT * FROM chained WHERE seal = {open} AND chain_end - chain_start > {longest}
                ), walked AS (
                    SELECT key, chain, n, cell, first_event AS start FROM long WHERE n = 1
                    UNION ALL
                    SELECT p.key, p.chain, p.n, p.cell,
                        CASE WHEN p.last_event - w.start > {longest} THEN p.first_event ELSE w.start END
                    FROM walked w JOIN long p ON p.key = w.key AND p.chain = w.chain AND p.n = w.n + 1
                ), placed AS (
                    SELECT chained.*, chain_start AS start FROM chained
                    WHERE seal <> {open} OR chain_end - chain_start <= {longest}
                    UNION ALL
                    SELECT long.*, w.start FROM long JOIN walked w ON w.key = long.key AND w.cell = long.cell
                )
                INSERT INTO {found}
                SELECT key, seal, {start}, {last}, sum(events){sums} FROM placed GROUP BY key, seal, start
                """
            ).format(
                pieces=self._pieces,
                staged=self._staged,
                seals=self._seals,
                found=self._found,
                open=sql.Literal(OPEN),
                gap=sql.Literal(self._sessions.gap_us),
                longest=sql.Literal(self._sessions.max_us),
                start=IN_TIME.format(sql.SQL("min(first_event)")),
                last=IN_TIME.format(sql.SQL("max(last_event)")),
                sums=self._sums(),
            )
        )

    def _replace(self, connection: Connection) -> None:
        """The rows of the touched keys that can change make room for the sessions that were found.

        A session takes over from the rows whose first events it holds. If it is none of them, and one was
        published, it is a correction. A row's first event lies in one open session at most, and if it was
        sealed in this batch, in the first seal that covers it: later ones may overlap.
        """
        connection.execute(
            sql.SQL(
                """
                WITH gone AS (
                    DELETE FROM {table} WHERE {key} = ANY(ARRAY(SELECT key FROM {found}))
                        AND NOT sealed AND state <> 'final'
                    RETURNING {key} AS key, session_start, last_event, events, state, revision, watermark,
                        published_at, updated_at
                ), pairs AS (
                    SELECT DISTINCT ON (o.key, o.session_start) o.*, n.seal, n.session_start AS start,
                        o.session_start = n.session_start AND o.last_event = n.last_event
                            AND o.events = n.events AS same
                    FROM gone o JOIN {found} n
                        ON n.key = o.key AND o.session_start BETWEEN n.session_start AND n.last_event
                    ORDER BY o.key, o.session_start, n.seal = {open}, n.seal
                ), heirs AS (
                    SELECT key, seal, start, bool_or(same) AS same, bool_or(state <> 'open') AS published,
                        max(state) AS state, max(revision) AS revision, max(watermark) AS watermark,
                        min(published_at) AS published_at, max(updated_at) AS updated_at
                    FROM pairs GROUP BY key, seal, start
                )
                INSERT INTO {table} ({columns}, session_end, sealed, state, revision, watermark, published_at,
                    updated_at)
                SELECT n.key, n.session_start, n.last_event, n.events{parts}, n.last_event + {gap},
                    n.seal <> {open},
                    CASE WHEN h.same THEN h.state WHEN h.published THEN 'corrected' ELSE 'open' END,
                    CASE WHEN h.same THEN h.revision WHEN h.published THEN h.revision + 1 ELSE 0 END,
                    h.watermark, h.published_at, CASE WHEN h.same THEN h.updated_at ELSE now() END
                FROM {found} n LEFT JOIN heirs h
                    ON h.key = n.key AND h.seal = n.seal AND h.start = n.session_start
                """
            ).format(
                table=self._table,
                found=self._found,
                key=self._key,
                open=sql.Literal(OPEN),
                columns=column_list(
                    [self._sessions.key, "session_start", "last_event", "events", *self._parts]
                ),
                parts=sql.SQL("").join(sql.SQL(", n.{}").format(sql.Identifier(p)) for p in self._parts),
                gap=sql.Literal(self._sessions.gap),
            )
        )

    def _drop_sealed(self, connection: Connection) -> None:
        connection.execute(
            sql.SQL(
                "DELETE FROM {} WHERE key = ANY(ARRAY(SELECT key FROM {} WHERE seal <> {})) AND seal <> {}"
            ).format(self._pieces, self._found, sql.Literal(OPEN), sql.Literal(OPEN))
        )

    def _sums(self) -> sql.Composed:
        return sql.SQL("").join(
            sql.SQL(", ") + within_batch(part, sql.SQL("")) for part in self._resolved.parts
        )
