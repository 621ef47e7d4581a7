"""Running windows that show themselves now and then: rows grow in a table of their own until a trigger.

The growing table has every row with all that was counted. A trigger copies those that have changed to the
table that is read. Both happen in the transactions of batches and of silence, so nothing can be lost between.
"""

from __future__ import annotations

from psycopg import sql

from headrace.store.connection import Connection
from headrace.store.metric_merge import MetricStore
from headrace.store.metric_shape import column_list
from headrace.store.metric_tables import columns_of, create_rows, growing_name, key_columns, table_name
from headrace.store.times import to_time
from headrace.views.pane_rows import Panes
from headrace.views.resolve import ResolvedMetric
from headrace.windows import MICROSECOND

Span = tuple[int | None, int | None]  # of windows' ends, in microseconds: after the first, up to the second
# The last batch that a published row has counted, so that its events can be told from those that came since.
BATCH = "__batch"


class TriggeredStore:
    """The two tables of one metric, inside the transaction of a batch."""

    def __init__(self, app: str, query: str, resolved: ResolvedMetric) -> None:
        self._query, self._resolved, self._metric = query, resolved, resolved.metric
        self._table, self._growing = table_name(app, self._metric), growing_name(app, self._metric)
        self._shown, self._counted = MetricStore(app, resolved), MetricStore(app, resolved, self._growing)
        assert self._metric.window.trigger is not None
        self._trigger = self._metric.window.trigger // MICROSECOND
        self._keys = key_columns(self._metric)
        self._values = ("events", "late_events", *columns_of(resolved))

    def prepare(self, connection: Connection) -> None:
        """Create the growing table; rows that were shown without a trigger go on from where they are."""
        found = connection.execute("SELECT to_regclass(%s)", (self._growing.as_string(),)).fetchone()
        if found and found[0] is not None:
            return
        create_rows(connection, self._growing, self._resolved)
        connection.execute(
            sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} bigint").format(
                self._table, sql.Identifier(BATCH)
            )
        )
        connection.execute(
            sql.SQL(
                "INSERT INTO {} ({columns}, state, revision, updated_at)"
                " SELECT {columns}, 'open', 0, now() FROM {}"
            ).format(self._growing, self._table, columns=column_list([*self._keys, *self._values]))
        )
        published = sql.SQL("SELECT * FROM {} WHERE published_at IS NOT NULL").format(self._table)
        self._shown.remember(connection, published, (), made_at=sql.SQL("published_at"))

    def merge(self, connection: Connection, panes: Panes, before: int | None, after: int | None) -> None:
        """Without a watermark no row of the growing table is ever published, and so none is corrected."""
        self._counted.merge(connection, panes, before, None)

    def advance(
        self, connection: Connection, before: int | None, after: int | None, panes: Panes | None = None
    ) -> bool:
        """Show what is due, then move rows through their states; False if nothing can have changed."""
        if after is None:
            return False
        due = self._due(before, after, panes)
        if not due:
            return False
        self._publish(connection, sql.SQL(" OR ").join(map(_ends_in, due)), after)
        # A row that was not shown before may lie behind the watermark already.
        firsts = [first for first, _ in due if first is not None]
        self._shown.settle(connection, min(firsts) if len(firsts) == len(due) else None, after)
        return True

    def retire(self, connection: Connection, watermark: int | None) -> None:
        self._shown.retire(connection, watermark)
        if watermark is not None:
            # Never before its row is final: what comes then would begin at nothing.
            kept = max(self._metric.retain, self._metric.final_after) + self._metric.window.size
            connection.execute(
                sql.SQL("DELETE FROM {} WHERE window_start < %s").format(self._growing),
                (to_time(watermark - kept // MICROSECOND),),
            )

    def forget_old(self, connection: Connection) -> None:
        self._shown.forget_old(connection)

    def _due(self, before: int | None, after: int, panes: Panes | None) -> list[Span]:
        """Which windows are to be shown: all that may change once the watermark has passed a trigger,
        otherwise those whose state moves, and final ones that were missed once more."""
        window, final = self._metric.window, self._metric.final_us
        spans: list[Span] = []
        if before is None or before // self._trigger != after // self._trigger:
            spans.append((None if before is None else before - final, None))
        for wait in (self._metric.preliminary_after // MICROSECOND, final):
            last = None if before is None else before - wait
            if last is None or last // window.hop_us != (after - wait) // window.hop_us:
                spans.append((last, after - wait))
        if panes is not None and before is not None:
            ends = (panes.starts + window.hop_us).tolist()
            spans += [(end - 1, end) for end in ends if end + final <= before]
        return spans

    def _publish(self, connection: Connection, due: sql.Composable, watermark: int) -> None:
        """Copy the rows that have changed. Every event that is counted changes `events`."""
        at = to_time(watermark)
        batch = sql.SQL("(SELECT max(batch_id) FROM headrace.batches WHERE query = {})").format(
            sql.Literal(self._query)
        )
        changed = sql.SQL("(t.events <> excluded.events)")
        copy = sql.SQL(
            "INSERT INTO {table} AS t"
            " ({columns}, state, revision, watermark, published_at, updated_at, {mark})"
            " SELECT {mine}, 'open', 1, {at}, now(), now(), {batch}"
            " FROM {growing} g LEFT JOIN {table} s USING ({keys}) WHERE ({due}) AND g.state = 'open'"
            " AND (s.events, s.late_events) IS DISTINCT FROM (g.events, g.late_events)"
            " ON CONFLICT ({keys}) DO UPDATE SET {values}, {mark} = excluded.{mark}, updated_at = now(),"
            " state = CASE WHEN {changed} AND t.state = 'preliminary' THEN 'corrected' ELSE t.state END,"
            " revision = t.revision + {changed}::int, published_at = coalesce(t.published_at, now()),"
            " watermark = CASE WHEN {changed} THEN excluded.watermark ELSE t.watermark END RETURNING *"
        ).format(
            table=self._table,
            growing=self._growing,
            columns=column_list([*self._keys, *self._values]),
            mine=sql.SQL(", ").join(
                sql.SQL("g.{}").format(sql.Identifier(name)) for name in (*self._keys, *self._values)
            ),
            keys=column_list(self._keys),
            values=sql.SQL(", ").join(
                sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in self._values
            ),
            mark=sql.Identifier(BATCH),
            at=sql.Literal(at),
            batch=batch,
            due=due,
            changed=changed,
        )
        # A row whose state moves in this transaction is seen in its new state only.
        shown_open = sql.SQL("state <> 'open' OR window_end > {}").format(
            sql.Literal(to_time(watermark - self._metric.preliminary_after // MICROSECOND))
        )
        self._shown.remember(connection, copy, (), only=shown_open)


def _ends_in(span: Span) -> sql.Composable:
    after, until = (sql.Literal(to_time(end)) for end in span)
    return sql.SQL(
        "(g.window_end > coalesce({}, '-infinity'::timestamptz)"
        " AND g.window_end <= coalesce({}, 'infinity'::timestamptz))"
    ).format(after, until)
