"""Signals in the real-time lane as an auditor reads them: the rows that must be in their topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from psycopg import sql

from headrace.connections import lane_query_name
from headrace.log.scan import Range
from headrace.ops.audit_report import Finding, LaneAudit
from headrace.ops.pipeline_lanes import LaneNotes, lane_notes
from headrace.ops.recount_lanes import LaneRecount, Row
from headrace.signals import ALLOW, Signals
from headrace.store.connection import Connection, Store

_AT_ONCE = 10_000
_ROWS = """
    SELECT id, partition, "offset", log_time, scored_at, version FROM {}
    JOIN unnest(%s::int[], %s::bigint[], %s::bigint[]) AS span (place, first, after)
        ON partition = place AND "offset" >= first AND "offset" < after
    WHERE %s OR decision <> %s ORDER BY partition, "offset"
"""


class LaneReader:
    """The lane of one source in the store."""

    def __init__(self, store: Store, app: str, stream: str) -> None:
        self._store, self._app, self._query = store, app, lane_query_name(app, stream)

    def notes(self) -> LaneNotes:
        return self._store.transact(lambda connection: lane_notes(connection, self._query))

    def audit(
        self, recount: LaneRecount, signals: Signals, ranges: Mapping[int, Range]
    ) -> tuple[LaneAudit, list[Finding]]:
        return self._store.transact(
            lambda connection: recount.audit(signals.name, self._rows(connection, signals, ranges))
        )

    def _rows(self, connection: Connection, signals: Signals, ranges: Mapping[int, Range]) -> Iterator[Row]:
        table = sql.Identifier(self._app, signals.name)
        exists = connection.execute("SELECT to_regclass(%s)", (table.as_string(connection),)).fetchone()
        if exists is None or exists[0] is None:
            return
        spans = [(partition, *span) for partition, span in ranges.items()]
        place, first, after = (list(column) for column in zip(*spans, strict=True)) if spans else ([],) * 3
        with connection.cursor(name="rows_of_lane") as cursor:
            cursor.itersize = _AT_ONCE
            cursor.execute(
                sql.SQL(_ROWS).format(table), (place, first, after, signals.publish == "all", ALLOW)
            )
            yield from (Row(*row) for row in cursor)
