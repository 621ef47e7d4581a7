"""The events that a pattern remembers, inside the transaction of a batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import groupby
from typing import NamedTuple

from headrace.flows.pattern_rule import PatternRule
from headrace.flows.search import Moment
from headrace.store.connection import Connection


class Arrival(NamedTuple):
    """A taken event that came in time; `clock` is its partition's before it, where it was old."""

    key: str
    moment: Moment
    clock: int | None
    log_time: int | None = None


class PatternMemory:
    def __init__(self, rule: PatternRule, pattern_id: int) -> None:
        self._rule, self._id = rule, pattern_id

    def add(self, connection: Connection, arrivals: Iterable[Arrival]) -> int:
        """Remember events; returns how many of them are new. Repeats come only long after the first."""
        connection.execute(_STAGE)
        memory = self._rule.memory
        with (
            connection.cursor() as cursor,
            cursor.copy(
                "COPY pattern_stage (pattern, key, at, event_id, mask,"
                ' partition, "offset", clock, until, shown) FROM STDIN'
            ) as copy,
        ):
            for key, moment, clock, _ in arrivals:
                copy.write_row(
                    (
                        *(self._id, key, moment.at, moment.event_id, moment.mask),
                        *(moment.partition, moment.offset, clock, moment.at + memory, moment.shown),
                    )
                )
        return connection.execute(_KEEP, (self._id,)).rowcount

    def candidates(
        self, connection: Connection, keys: Collection[str], oldest: int, newest: int
    ) -> dict[str, list[Moment]]:
        """What is remembered of the keys that could have a match, in the order of a timeline.

        Only events that lie within reach of the given times.
        """
        rule = self._rule
        rows = connection.execute(
            CANDIDATES,
            {
                "pattern": self._id,
                "keys": list(keys),
                "oldest": oldest - rule.within,
                "newest": newest + rule.within,
                "elements": rule.elements,
                "shortest": rule.shortest,
                "needed": rule.needed,
            },
        ).fetchall()
        rows.sort(key=lambda row: (row[0], row[1], row[2]))
        return {key: [Moment(*row[1:]) for row in mine] for key, mine in groupby(rows, lambda row: row[0])}

    def use(self, connection: Connection, used: Iterable[tuple[str, Moment]]) -> None:
        """Mark the events of matches."""
        keys, times, ids = [], [], []
        for key, moment in used:
            keys.append(key)
            times.append(moment.at)
            ids.append(moment.event_id)
        connection.execute(_USE, (keys, times, ids, self._id))

    def take_due(self, connection: Connection, watermark: int) -> list[Arrival]:
        """Forget the events whose time is over, and hand them over."""
        rows = connection.execute(
            "DELETE FROM headrace.pattern_events WHERE pattern::bigint = %s AND until < %s"
            ' RETURNING key, clock, at, event_id, mask, used, partition, "offset", shown',
            (self._id, watermark),
        )
        return [Arrival(key, Moment(*moment), clock) for key, clock, *moment in rows]

    def of_keys(self, connection: Connection, keys: Collection[str], symbols: int) -> list[Arrival]:
        """What is remembered of some keys and fulfils one of the symbols."""
        rows = connection.execute(_OF_KEYS, (list(keys), self._id, symbols))
        return [Arrival(key, Moment(*moment), clock) for key, clock, *moment in rows]

    def forget(self, connection: Connection, watermark: int) -> int:
        """Forget the events whose time is over; returns how many."""
        return connection.execute(
            "DELETE FROM headrace.pattern_events WHERE pattern::bigint = %s AND until < %s",
            (self._id, watermark),
        ).rowcount


_STAGE = """
    CREATE TEMPORARY TABLE IF NOT EXISTS pattern_stage (
        pattern int, key text, at bigint, event_id text, mask int, partition int, "offset" bigint,
        clock bigint, until bigint, shown text
    ) ON COMMIT DELETE ROWS
"""
_KEEP = """
    INSERT INTO headrace.pattern_events
        (pattern, key, at, event_id, mask, partition, "offset", clock, until, shown)
    SELECT pattern, key, at, event_id, mask, partition, "offset", clock, until, shown
    FROM pattern_stage WHERE pattern = %s ON CONFLICT DO NOTHING
"""
# OFFSET 0: one look into the primary key for each key of the batch, whatever the planner thinks of the sizes.
# It would read all that the pattern remembers, and compare each row with each key.
CANDIDATES = """
    SELECT key, at, event_id, mask, used, partition, "offset", shown FROM (
        SELECT mine.*, bit_or(mask) OVER of_key AS seen,
            count(*) FILTER (WHERE mask & %(elements)s <> 0 AND NOT used) OVER of_key AS unused
        FROM unnest(%(keys)s::text[]) AS touched (key) CROSS JOIN LATERAL (
            SELECT * FROM headrace.pattern_events e
            WHERE e.pattern = %(pattern)s AND e.key = touched.key AND at BETWEEN %(oldest)s AND %(newest)s
            OFFSET 0
        ) AS mine
        WINDOW of_key AS (PARTITION BY mine.key)
    ) AS remembered
    WHERE unused >= %(shortest)s AND seen & %(needed)s = %(needed)s
"""
_OF_KEYS = """
    SELECT mine.* FROM unnest(%s::text[]) AS wanted (key) CROSS JOIN LATERAL (
        SELECT key, clock, at, event_id, mask, used, partition, "offset", shown
        FROM headrace.pattern_events e
        WHERE e.pattern = %s AND e.key = wanted.key AND mask & %s <> 0 OFFSET 0
    ) AS mine
"""
_USE = """
    UPDATE headrace.pattern_events SET used = true WHERE ctid = ANY (ARRAY(
        SELECT mine.place
        FROM unnest(%s::text[], %s::bigint[], %s::text[]) AS matched (key, at, event_id) CROSS JOIN LATERAL (
            SELECT e.ctid AS place FROM headrace.pattern_events e
            WHERE e.pattern = %s AND e.key = matched.key AND e.at = matched.at
                AND e.event_id = matched.event_id OFFSET 0
        ) AS mine
    ))
"""
