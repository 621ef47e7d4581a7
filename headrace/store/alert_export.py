"""Alerts read back: as a file for a simulation, as a list for people. Needs no Spark."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.store.connection import Connection

COLUMNS = (
    *("id", "alert", "metric", "severity", "state", "grouping", "dimensions"),
    *("window_start", "window_end", "windows", "values", "message"),
)
LISTED = (*COLUMNS, "resolution", "runbook", "seq", "opened_at", "updated_at", "resolved_at")


def export_alerts(connection: Connection, app: str, folder: Path) -> int:
    """Write `alerts.csv`; returns the number of alerts.

    Without those that were retracted: whether one was raised too early depends on the batches.
    """
    rows = _read(connection, app, COLUMNS, "AND resolution <> 'retracted'", "window_start, alert, id", ())
    with (folder / "alerts.csv").open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([_text(value) for value in row] for row in rows)
    return len(rows)


def list_alerts(
    connection: Connection, app: str, *, state: str = "", alert: str = "", limit: int = 100
) -> list[dict[str, Any]]:
    """Open ones first, then the newest; empty where no alert was ever declared."""
    found = connection.execute("SELECT to_regclass('headrace.alerts')").fetchone()
    if found is None or found[0] is None:
        return []
    where = "AND (%s = '' OR state = %s) AND (%s = '' OR alert = %s)"
    order = "state = 'open' DESC, coalesce(resolved_at, opened_at) DESC, id LIMIT %s"
    rows = _read(connection, app, LISTED, where, order, (state, state, alert, alert, limit))
    return [{name: shown(value) for name, value in zip(LISTED, row, strict=True)} for row in rows]


def waiting_events(connection: Connection, app: str) -> dict[str, int]:
    """How many events are not published yet, not delivered yet, and given up."""
    found = connection.execute(
        "SELECT count(*) FILTER (WHERE e.topic <> '' AND e.position > coalesce(l.published, 0)),"
        " count(*) FILTER (WHERE e.delivery = 'waiting'), count(*) FILTER (WHERE e.delivery = 'dead')"
        " FROM headrace.alert_events e LEFT JOIN headrace.alert_lanes l USING (query, topic)"
        " WHERE e.app = %s",
        (app,),
    ).fetchone()
    return dict(zip(("unpublished", "undelivered", "dead"), found or (0, 0, 0), strict=True))


def shown(value: Any) -> Any:
    """Times as everywhere in our documents: ISO 8601, UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value


def _read(
    connection: Connection,
    app: str,
    columns: tuple[str, ...],
    where: str,
    order: str,
    values: tuple[Any, ...],
) -> list[tuple[Any, ...]]:
    names = ", ".join(f'"{name}"' for name in columns)
    text = f"SELECT {names} FROM headrace.alerts WHERE app = %s {where} ORDER BY {order}"
    return connection.execute(text.encode(), (app, *values)).fetchall()


def _text(value: Any) -> Any:
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return shown(value)
