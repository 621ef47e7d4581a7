"""What comes of a join: results and dead letters, in their tables and on their way to their topics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from psycopg import sql

from headrace.joins import NO_KEY, Side, lane_name
from headrace.store.connection import Connection
from headrace.store.join_tables import JoinShape
from headrace.store.outbox import note_handed, open_lane

_OWN = "id, key, left_id, right_id, left_time, right_time, event_time"


class Outcome:
    """Writes in the transaction of the batch; whoever calls holds the join."""

    def __init__(self, shape: JoinShape) -> None:
        self._shape, self._join = shape, shape.join
        self._lane = lane_name(shape.app, shape.join.name)

    def prepare(self, connection: Connection) -> None:
        for topic in self._join.topics:
            open_lane(connection, self._lane, topic)

    def write_pairs(self, connection: Connection) -> None:
        """The pairs that met: a match, or the reason why it is none."""
        shape, columns = self._shape, self._shape.columns
        found = connection.execute(
            sql.SQL(
                "WITH written AS (INSERT INTO {} ({}{}) SELECT {}, key, left_id, right_id, left_time,"
                " right_time, greatest(left_time, right_time){} FROM {} WHERE reason IS NULL ORDER BY n"
                " ON CONFLICT (id) DO NOTHING RETURNING *){} SELECT count(*) FROM written"
            ).format(
                shape.results,
                sql.SQL(_OWN),
                sql.SQL("").join(sql.SQL(", {}").format(sql.Identifier(name)) for name in columns),
                self._id("pair"),
                sql.SQL("").join(sql.SQL(", {}").format(sql.Identifier(f"c_{name}")) for name in columns),
                shape.pairs,
                self._sent(self._join.topic, self._result_document()),
            )
        ).fetchone()
        self._count(connection, "matches", found, self._join.topic)
        if self._join.checks:
            values = [(name, sql.Identifier(f"c_{name}")) for name in columns]
            source = sql.SQL(
                "SELECT {}, key, left_id, right_id, left_time, right_time, greatest(left_time, right_time),"
                " reason, 'pair', {} FROM {} WHERE reason IS NOT NULL"
            ).format(self._id("pair"), _object(values), shape.pairs)
            self._write_letters(connection, source)

    def write_keyless(self, connection: Connection, side: Side) -> int:
        """New events without a key: nothing can be equal to it."""
        source = sql.SQL("{} FROM {} {} WHERE key IS NULL").format(
            self._alone(side, NO_KEY), self._shape.fresh[side], sql.SQL(side[0])
        )
        self._write_letters(connection, source)
        found = connection.execute(
            sql.SQL("SELECT count(*) FROM {} WHERE key IS NULL").format(self._shape.fresh[side])
        ).fetchone()
        return int(found[0]) if found else 0

    def dismiss(self, connection: Connection, side: Side, below: datetime) -> int:
        """Events that can meet nobody any more leave; returns how many of them never had a match."""
        reason = self._join.unmatched.get(side)
        gone = sql.SQL("WITH gone AS (DELETE FROM {} WHERE event_time < %(below)s RETURNING *)").format(
            self._shape.pending[side]
        )
        count = "SELECT count(*) FILTER (WHERE NOT matched), %s FROM gone"
        if reason is None:
            found = connection.execute(
                sql.SQL("{} {}").format(gone, sql.SQL(count % "0")), {"below": below}
            ).fetchone()
        else:
            # One that failed a check was reported then, with its partner.
            source = sql.SQL("{} FROM gone {} WHERE NOT matched AND NOT failed").format(
                self._alone(side, reason), sql.SQL(side[0])
            )
            found = connection.execute(
                sql.SQL("{}, {} {}").format(
                    gone, self._letters(source), sql.SQL(count % "(SELECT count(*) FROM written)")
                ),
                {"below": below},
            ).fetchone()
            self._count(connection, "letters", found and found[1:], self._join.dead_letters)
        return int(found[0]) if found else 0

    def forget_old(self, connection: Connection, before: datetime) -> None:
        for table, kind in ((self._shape.results, "matches"), (self._shape.letters, "letters")):
            found = connection.execute(
                sql.SQL("DELETE FROM {} WHERE event_time < %s").format(table), (before,)
            )
            self._count(connection, f"old_{kind}", (found.rowcount,))

    def _write_letters(self, connection: Connection, source: sql.Composed) -> None:
        found = connection.execute(
            sql.SQL("WITH {} SELECT count(*) FROM written").format(self._letters(source))
        ).fetchone()
        self._count(connection, "letters", found, self._join.dead_letters)

    def _letters(self, source: sql.Composed) -> sql.Composed:
        return sql.SQL(
            'written AS (INSERT INTO {} ({}, reason, side, "values") {} ON CONFLICT (id) DO NOTHING'
            " RETURNING *){}"
        ).format(
            self._shape.letters,
            sql.SQL(_OWN),
            source,
            self._sent(self._join.dead_letters, self._letter_document()),
        )

    def _alone(self, side: Side, reason: str) -> sql.Composed:
        """A dead letter about one event; the alias of its table is the first letter of its side."""
        me = side[0]
        own = (
            "{0}.event_id, NULL, {0}.event_time, NULL"
            if me == "l"
            else "NULL, {0}.event_id, NULL, {0}.event_time"
        )
        values = [
            (name, sql.SQL(text))
            for name, (text, _, whose) in self._shape.resolved.columns.items()
            if whose == side
        ]
        return sql.SQL("SELECT {}, {}, {}, {}, {}, {}, {}").format(
            self._id(side, sql.SQL(f"{me}.event_id")),
            sql.SQL(f"{me}.key"),
            sql.SQL(own.format(me)),
            sql.SQL(f"{me}.event_time"),
            sql.Literal(reason),
            sql.Literal(side),
            _object(values),
        )

    def _id(self, kind: str, event: sql.Composable | None = None) -> sql.Composed:
        ids = sql.SQL("left_id, right_id") if event is None else event
        name, kind_ = sql.Literal(self._join.name), sql.Literal(kind)
        return sql.SQL("md5(jsonb_build_array({}::text, {}::text, {})::text)").format(name, kind_, ids)

    def _sent(self, topic: str, document: sql.Composed) -> sql.Composable:
        if not topic:
            return sql.SQL("")
        return sql.SQL(
            ", sent AS (INSERT INTO headrace.outbox (query, topic, key, value) SELECT {}, {},"
            " coalesce(w.key, w.left_id, w.right_id), {}::text FROM written w ORDER BY w.event_time, w.id)"
        ).format(sql.Literal(self._lane), sql.Literal(topic), document)

    def _result_document(self) -> sql.Composed:
        own = {name: "timestamptz" if name.endswith("_time") else "text" for name in _OWN.split(", ")}
        return self._document({**own, **self._shape.columns})

    def _letter_document(self) -> sql.Composed:
        own = {name: "timestamptz" if name.endswith("_time") else "text" for name in _OWN.split(", ")}
        return self._document({**own, "reason": "text", "side": "text", "values": "jsonb"})

    def _document(self, columns: dict[str, str]) -> sql.Composed:
        shown = [
            sql.SQL("{} AS {}").format(_shown(sql.Identifier("w", name), type_), sql.Identifier(name))
            for name, type_ in columns.items()
        ]
        return sql.SQL('(SELECT row_to_json(d) FROM (SELECT {} AS "join", {}) d)').format(
            sql.Literal(self._join.name), sql.SQL(", ").join(shown)
        )

    def _count(
        self, connection: Connection, column: str, found: tuple[int, ...] | None, topic: str = ""
    ) -> None:
        if found and found[0]:
            if topic:
                note_handed(connection, self._lane, topic, found[0])
            connection.execute(
                sql.SQL("UPDATE headrace.joins SET {0} = {0} + %s WHERE app = %s AND name = %s").format(
                    sql.Identifier(column)
                ),
                (found[0], self._shape.app, self._join.name),
            )


def _object(values: Sequence[tuple[str, sql.Composable]]) -> sql.Composed:
    """A JSON object; a row has no limit of columns, which a function's arguments have."""
    if not values:
        return sql.Composed([sql.SQL("'{}'::jsonb")])
    shown = [sql.SQL("{} AS {}").format(value, sql.Identifier(name)) for name, value in values]
    return sql.SQL("(SELECT to_jsonb(d) FROM (SELECT {}) d)").format(sql.SQL(", ").join(shown))


def _shown(column: sql.Composable, type_: str) -> sql.Composable:
    """Times as everywhere in our documents: ISO 8601, UTC."""
    if type_ != "timestamptz":
        return column
    return sql.SQL("to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')").format(column)
