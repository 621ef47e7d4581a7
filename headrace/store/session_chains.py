"""From pieces to sessions, for all keys that a batch touches at once."""

from __future__ import annotations

from psycopg import sql

from headrace.store.connection import Connection
from headrace.store.metric_shape import column_list, make_scratch
from headrace.store.session_shape import TEXT, SessionShape
from headrace.views.session_seals import OPEN

IN_TIME = sql.SQL("'epoch'::timestamptz + {} * interval '1 microsecond'")


def find_sessions(connection: Connection, shape: SessionShape) -> None:
    """The sessions of all touched keys: chains of pieces, cut where they are longer than allowed.

    Only a chain that is too long is walked from piece to piece.
    """
    times = [("session_start", "timestamptz"), ("last_event", "timestamptz")]
    parts = [(part.column, part.type) for part in shape.resolved.parts]
    make_scratch(
        connection, shape.found, [("key", TEXT), ("seal", "int"), *times, ("events", "bigint"), *parts]
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
            pieces=shape.pieces,
            staged=shape.staged,
            seals=shape.seals,
            found=shape.found,
            open=sql.Literal(OPEN),
            gap=sql.Literal(shape.sessions.gap_us),
            longest=sql.Literal(shape.sessions.max_us),
            start=IN_TIME.format(sql.SQL("min(first_event)")),
            last=IN_TIME.format(sql.SQL("max(last_event)")),
            sums=shape.sums(),
        )
    )


def replace_rows(connection: Connection, shape: SessionShape) -> None:
    """The rows of the touched keys that can change make room for the sessions that were found.

    A session takes over from the rows whose first events it holds. If it is none of them, and one was
    published, it is a correction. A row's first event lies in one open session at most, and if it was
    sealed in this batch, in the first seal that covers it: later ones may overlap.
    """
    parts = [part.column for part in shape.resolved.parts]
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
            table=shape.table,
            found=shape.found,
            key=shape.key,
            open=sql.Literal(OPEN),
            columns=column_list([shape.sessions.key, "session_start", "last_event", "events", *parts]),
            parts=sql.SQL("").join(sql.SQL(", n.{}").format(sql.Identifier(p)) for p in parts),
            gap=sql.Literal(shape.sessions.gap),
        )
    )
