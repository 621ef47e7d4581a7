"""Which events meet: the pairs of a batch, found and chosen set-wise.

Events of a key form a grid, lefts down and rights across, each side in its order. A cell is decided by the
cells before it in its row and its column alone: it is a match if the pair fits, passes the checks, and
neither of the two has a match already. So the grid can be filled in any order that keeps each side's own, and
the matches are the same, whichever side came first and however the streams were cut into batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from psycopg import sql

from headrace.joins import SIDES, Kind, Side, other
from headrace.store.connection import Connection
from headrace.store.join_tables import Bounds, JoinShape

_SWITCHES = ("enable_nestloop", "enable_hashjoin", "enable_mergejoin", "enable_seqscan")
_LOOKUPS = ("on", "off", "off", "off")
Place = tuple[int, int]  # partition and offset
Cell = tuple[int, Place, Place, bool]  # number of the pair, left, right, whether it passes


@contextmanager
def lookups(connection: Connection) -> Iterator[None]:
    """Few rows are looked up among many that wait: by the index, however little is known of the tables."""
    found = connection.execute(
        b"SELECT " + b", ".join(b"current_setting('%s')" % name.encode() for name in _SWITCHES)
    ).fetchone()
    _switch(connection, _LOOKUPS)
    yield
    _switch(connection, found or _LOOKUPS)


class Pairs:
    """The temporary table of pairs of one join."""

    def __init__(self, shape: JoinShape) -> None:
        self._shape = shape
        join = shape.join
        self._chooses = join.kind != "one_to_many"
        self._insert = sql.SQL(
            "INSERT INTO {} (key, left_id, right_id, left_time, right_time, l_partition, l_offset,"
            " r_partition, r_offset, reason{}) SELECT l.key, l.event_id, r.event_id, l.event_time,"
            ' r.event_time, l.partition, l."offset", r.partition, r."offset", {}{}'
        ).format(
            shape.pairs,
            sql.SQL("").join(sql.SQL(", {}").format(sql.Identifier(f"c_{name}")) for name in shape.columns),
            _reason(shape),
            sql.SQL("").join(sql.SQL(", " + text) for text, _, _ in shape.resolved.columns.values()),
        )
        meets = (
            '(l.partition, l."offset") <> (r.partition, r."offset")' if join.left == join.right else "true"
        )
        self._meets = sql.SQL(
            "l.key = r.key AND r.event_time BETWEEN l.event_time - {0} AND l.event_time + {0}"
            " AND l.event_time BETWEEN r.event_time - {0} AND r.event_time + {0} AND {1}"
        ).format(sql.Literal(join.within), sql.SQL(meets))

    def with_fresh(self, connection: Connection, side: Side) -> None:
        """New events of a side, with those of the other side that wait."""
        tables = {side: self._shape.fresh[side], other(side): self._shape.pending[other(side)]}
        self._begin(connection)
        with lookups(connection):
            connection.execute(
                sql.SQL("{} FROM {} l JOIN {} r ON {}").format(
                    self._insert, tables["left"], tables["right"], self._meets
                )
            )
        self._choose(connection)

    def settled(self, connection: Connection, before: Bounds, after: Bounds) -> None:
        """Events whose place in the order is certain now, with those of the other side whose is too."""
        self._begin(connection)
        lefts, rights = self._shape.pending["left"], self._shape.pending["right"]
        newly = {s: _between(s, before.of(s), after.of(s)) for s in SIDES}
        for conditions in (
            (newly["left"], _between("right", None, after.right)),
            (_between("left", None, before.left), newly["right"]),
        ):
            with lookups(connection):
                connection.execute(
                    sql.SQL("{} FROM {} l JOIN {} r ON {} WHERE {}").format(
                        self._insert, lefts, rights, self._meets, sql.SQL(" AND ").join(conditions)
                    )
                )
        self._choose(connection)

    def _begin(self, connection: Connection) -> None:
        connection.execute(sql.SQL("TRUNCATE {}").format(self._shape.pairs))

    def _choose(self, connection: Connection) -> None:
        """Leave the pairs that meet: the matches, and those that fail a check on the way."""
        if not self._chooses:
            return
        in_order = {
            "log": "{0}_partition, {0}_offset",
            "event_time": '{1}_time, {1}_id COLLATE "C", {0}_partition, {0}_offset',
        }[self._shape.resolved.order]
        rows = connection.execute(
            sql.SQL(
                "SELECT n, l_partition, l_offset, r_partition, r_offset, reason IS NULL FROM {}"
                " ORDER BY {}, {}"
            ).format(
                self._shape.pairs,
                *(sql.SQL(in_order.format(side[0], side)) for side in SIDES),
            )
        ).fetchall()
        cells = [(n, (lp, lo), (rp, ro), passes) for n, lp, lo, rp, ro, passes in rows]
        never_met = list(unmet(cells, self._shape.join.kind))
        if never_met:
            connection.execute(
                sql.SQL("DELETE FROM {} WHERE n = ANY(%s)").format(self._shape.pairs), (never_met,)
            )


def unmet(cells: Iterable[Cell], kind: Kind) -> Iterator[int]:
    """The numbers of the pairs that are not looked at: one of the two has its match already."""
    taken: tuple[set[Place], set[Place]] = (set(), set())
    for number, left, right, passes in cells:
        if left in taken[0] or right in taken[1]:
            yield number
        elif passes:
            taken[0].add(left)
            if kind == "one_to_one":
                taken[1].add(right)


def _between(side: Side, first: datetime | None, end: datetime | None) -> sql.Composed:
    """Literals, and no parameters: a percent sign in a user's condition stays one."""
    column = sql.SQL(f"{side[0]}.event_time")
    return sql.SQL("{0} >= {1}::timestamptz AND {0} < {2}::timestamptz").format(
        column, sql.Literal(first or "-infinity"), sql.Literal(end or "-infinity")
    )


def _reason(shape: JoinShape) -> sql.Composable:
    """The first check that a pair fails; a check that cannot be answered fails."""
    checks = shape.resolved.checks
    if not checks:
        return sql.SQL("NULL")
    cases = [
        sql.SQL("WHEN ({}) IS NOT TRUE THEN {}").format(sql.SQL(condition), sql.Literal(reason))
        for reason, condition in checks.items()
    ]
    return sql.SQL("CASE {} END").format(sql.SQL(" ").join(cases))


def _switch(connection: Connection, values: Sequence[str]) -> None:
    texts = ", ".join("set_config(%s, %s, true)" for _ in _SWITCHES)
    pairs = [text for pair in zip(_SWITCHES, values, strict=True) for text in pair]
    connection.execute(f"SELECT {texts}".encode(), pairs)
