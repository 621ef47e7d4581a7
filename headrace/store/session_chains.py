"""From pieces to sessions, for all keys that a batch touches at once."""

from __future__ import annotations

from psycopg import sql

from headrace.store.connection import Connection
from headrace.store.metric_shape import column_list, make_scratch
from headrace.store.session_shape import TEXT, SessionShape
from headrace.store.times import LAST, time_of, to_time
from headrace.views.session_seals import OPEN


def find_sessions(connection: Connection, shape: SessionShape) -> None:
    """The sessions of all touched keys: chains of pieces, cut where they are longer than allowed.

    Only a chain that is too long is walked from piece to piece.
    """
    times = [("session_start", "timestamptz"), ("last_event", "timestamptz")]
    parts = [(part.column, part.type) for part in shape.resolved.parts]
    make_scratch(
        connection, shape.found, [("__key", TEXT), ("__seal", "int"), *times, ("events", "bigint"), *parts]
    )
    connection.execute(
        sql.SQL(
            """
            WITH RECURSIVE mine AS (
                SELECT *, lag(__last) OVER (PARTITION BY __key, __seal ORDER BY __cell) AS __before
                FROM {pieces}
                WHERE __key = ANY(ARRAY(SELECT __key FROM {staged} UNION SELECT __key FROM {seals}))
            ), numbered AS (
                SELECT *, count(*) FILTER (WHERE __seal = {open} AND __first - __before > {gap})
                    OVER (PARTITION BY __key, __seal ORDER BY __cell) AS __chain
                FROM mine
            ), chained AS MATERIALIZED (
                SELECT *, min(__first) OVER whole AS __chain_start,
                    max(__last) OVER whole AS __chain_end,
                    row_number() OVER (PARTITION BY __key, __seal, __chain ORDER BY __cell) AS __n
                FROM numbered WINDOW whole AS (PARTITION BY __key, __seal, __chain)
            ), long AS MATERIALIZED (
                SELECT * FROM chained WHERE __seal = {open} AND __chain_end - __chain_start > {longest}
            ), walked AS (
                SELECT __key, __chain, __n, __cell, __first AS __start FROM long WHERE __n = 1
                UNION ALL
                SELECT p.__key, p.__chain, p.__n, p.__cell,
                    CASE WHEN p.__last - w.__start > {longest} THEN p.__first ELSE w.__start END
                FROM walked w JOIN long p ON p.__key = w.__key AND p.__chain = w.__chain AND p.__n = w.__n + 1
            ), placed AS (
                SELECT chained.*, __chain_start AS __start FROM chained
                WHERE __seal <> {open} OR __chain_end - __chain_start <= {longest}
                UNION ALL
                SELECT p.*, w.__start FROM long p JOIN walked w ON w.__key = p.__key AND w.__cell = p.__cell
            )
            INSERT INTO {found}
            SELECT __key, __seal, {start}, {last}, sum(__events){sums} FROM placed
            GROUP BY __key, __seal, __start
            """
        ).format(
            pieces=shape.pieces,
            staged=shape.staged,
            seals=shape.seals,
            found=shape.found,
            open=sql.Literal(OPEN),
            gap=sql.Literal(shape.sessions.gap_us),
            longest=sql.Literal(shape.sessions.max_us),
            start=time_of(sql.SQL("min(__first)")),
            last=time_of(sql.SQL("max(__last)")),
            sums=shape.sums(),
        )
    )


def replace_rows(connection: Connection, shape: SessionShape) -> int:
    """The rows of the touched keys that can change make room for the sessions that were found.

    A session takes over from the rows whose first events it holds. If it is none of them, and one was
    published, it is a correction. A row's first event lies in one open session at most, and if it was
    sealed in this batch, in the first seal that covers it: later ones may overlap.

    Returns by how much the sessions that can change have become more.
    """
    parts = [part.column for part in shape.resolved.parts]
    found = connection.execute(
        sql.SQL(
            """
            WITH gone AS (
                DELETE FROM {table} WHERE {key} = ANY(ARRAY(SELECT __key FROM {found}))
                    AND NOT sealed AND state <> 'final'
                RETURNING {key} AS __key, session_start, last_event, events, state, revision, watermark,
                    published_at, updated_at
            ), pairs AS (
                SELECT DISTINCT ON (o.__key, o.session_start) o.*, n.__seal, n.session_start AS start,
                    o.session_start = n.session_start AND o.last_event = n.last_event
                        AND o.events = n.events AS same
                FROM gone o JOIN {found} n
                    ON n.__key = o.__key AND o.session_start BETWEEN n.session_start AND n.last_event
                ORDER BY o.__key, o.session_start, n.__seal = {open}, n.__seal
            ), heirs AS (
                SELECT __key, __seal, start, bool_or(same) AS same, bool_or(state <> 'open') AS published,
                    max(state) AS state, max(revision) AS revision, max(watermark) AS watermark,
                    min(published_at) AS published_at, max(updated_at) AS updated_at
                FROM pairs GROUP BY __key, __seal, start
            ), put AS (
                INSERT INTO {table} ({columns}, session_end, sealed, state, revision, watermark, published_at,
                    updated_at)
                SELECT n.__key, n.session_start, n.last_event, n.events{parts},
                    least(n.last_event + {gap}, {last}), n.__seal <> {open},
                    CASE WHEN h.same THEN h.state WHEN h.published THEN 'corrected' ELSE 'open' END,
                    CASE WHEN h.same THEN h.revision WHEN h.published THEN h.revision + 1 ELSE 0 END,
                    h.watermark, h.published_at, CASE WHEN h.same THEN h.updated_at ELSE now() END
                FROM {found} n LEFT JOIN heirs h
                    ON h.__key = n.__key AND h.__seal = n.__seal AND h.start = n.session_start
                RETURNING 1
            )
            SELECT (SELECT count(*) FROM put) - (SELECT count(*) FROM gone)
            """
        ).format(
            table=shape.table,
            found=shape.found,
            key=shape.key,
            open=sql.Literal(OPEN),
            columns=column_list([shape.sessions.key, "session_start", "last_event", "events", *parts]),
            parts=sql.SQL("").join(sql.SQL(", n.{}").format(sql.Identifier(p)) for p in parts),
            gap=sql.Literal(shape.sessions.gap),
            last=sql.Literal(to_time(LAST)),
        )
    ).fetchone()
    return int(found[0]) if found else 0
