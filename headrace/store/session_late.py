"""Events that came too late for any session, in the late ledger."""

from __future__ import annotations

from headrace.sessions import Sessions
from headrace.store.connection import Connection
from headrace.store.times import to_time
from headrace.views.session_pieces import SuspectEvent
from headrace.windows import MICROSECOND


def write_late(connection: Connection, app: str, sessions: Sessions, late: list[SuspectEvent]) -> None:
    with (
        connection.cursor() as cursor,
        cursor.copy(
            'COPY headrace.late_events (app, metric, event_id, partition, "offset", event_time,'
            " window_start, window_end, clock, late_by, reason) FROM STDIN"
        ) as copy,
    ):
        for event in late:
            assert event.clock is not None
            at, end = to_time(event.event_time), event.event_time + sessions.gap_us
            over = end + sessions.final_us
            by_itself = event.own_clock is not None and over <= event.own_clock
            copy.write_row(
                (
                    *(app, sessions.name, event.event_id, event.partition, event.offset, at),
                    *(at, to_time(end), to_time(event.clock), (event.clock - over) * MICROSECOND),
                    "late" if by_itself else "idle_wake",
                )
            )
