"""A join's results and dead letters as CSV files."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from psycopg import sql

from headrace.store.connection import Connection
from headrace.store.join_tables import JoinShape

_OWN = ("id", "key", "left_id", "right_id", "left_time", "right_time", "event_time")
COUNTS = ("taken", "matched", "unmatched", "late")


def export_join(
    connection: Connection, shape: JoinShape, side: tuple[str, str, str], folder: Path
) -> dict[str, Any]:
    """Write `JOIN.csv` and `JOIN.unmatched.csv`; returns what became of the events of a side."""
    name = shape.join.name
    _write(connection, shape.results, (*_OWN, *shape.columns), folder / f"{name}.csv")
    _write(connection, shape.letters, (*_OWN, "reason", "side", "values"), folder / f"{name}.unmatched.csv")
    found = connection.execute(
        "SELECT taken, matched, unmatched, late FROM headrace.flow_sides"
        " WHERE query = %s AND flow = %s AND side = %s",
        side,
    ).fetchone()
    counts = dict(zip(COUNTS, found or (0, 0, 0, 0), strict=True))
    pending = connection.execute(
        sql.SQL("SELECT count(*) FROM {} WHERE NOT matched").format(
            shape.pending["left" if side[2] == "left" else "right"]
        )
    ).fetchone()
    return {**counts, "pending": pending[0] if pending else 0}


def _write(connection: Connection, table: sql.Identifier, columns: tuple[str, ...], file: Path) -> None:
    rows = connection.execute(
        sql.SQL('SELECT {} FROM {} ORDER BY event_time, id COLLATE "C"').format(
            sql.SQL(", ").join(map(sql.Identifier, columns)), table
        )
    ).fetchall()
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_text(value) for value in row] for row in rows)


def _text(value: Any) -> Any:
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
