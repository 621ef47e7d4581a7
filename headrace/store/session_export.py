"""Sessions and the events that came too late for them as CSV files."""

from __future__ import annotations

from pathlib import Path

from psycopg import sql

from headrace.sessions import Sessions
from headrace.store.connection import Connection
from headrace.store.metric_export import export_late, write_csv
from headrace.store.session_tables import table_name


def shown_columns(sessions: Sessions) -> tuple[str, ...]:
    return (
        *(sessions.key, "session_start", "session_end", "last_event", "duration"),
        *("state", "revision", "events", *sessions.visible),
    )


def export(connection: Connection, app: str, sessions: Sessions, folder: Path) -> int:
    """Write `SESSIONS.csv` and `SESSIONS.late.csv`; returns the number of rows."""
    columns = shown_columns(sessions)
    rows = connection.execute(
        sql.SQL("SELECT {} FROM {} ORDER BY {}, session_start, last_event").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            table_name(app, sessions),
            sql.Identifier(sessions.key),
        )
    ).fetchall()
    write_csv(folder / f"{sessions.name}.csv", columns, rows)
    export_late(connection, app, sessions.name, folder)
    return len(rows)
