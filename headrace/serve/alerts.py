"""Alerts: open and resolved ones, and their changes for those who follow."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from decimal import Decimal
from typing import Any

from headrace.serve.answers import to_json
from headrace.serve.database import Database, Row
from headrace.serve.live_feeds import MOST, Changes, Position
from headrace.serve.parameters import Page

_COLUMNS = (
    'id, alert, metric, severity, state, "grouping", dimensions, window_start, window_end, "values",'
    " message, runbook, opened_at, updated_at, resolved_at, resolution"
)
_KEYS = ("opened_at", "id")


class Alerts:
    """Of one app. Without the table there are none: the engine makes it when an alert is declared."""

    def __init__(self, database: Database, app: str) -> None:
        self._database, self._app = database, app

    async def page(
        self, metrics: list[str], state: str | None, alert: str | None, page: Page, unnamed: Collection[str]
    ) -> dict[str, Any]:
        """`unnamed` are patterns without the ids of their events."""
        after = page.after([datetime, str]) or ["infinity", ""]
        found = await self._database.rows_if_there(
            f"SELECT {_COLUMNS} FROM headrace.alerts WHERE app = %(app)s AND metric = ANY(%(metrics)s)"
            " AND (%(state)s::text IS NULL OR state = %(state)s)"
            " AND (%(alert)s::text IS NULL OR alert = %(alert)s)"
            " AND (opened_at, id) < (%(opened_at)s::timestamptz, %(id)s)"
            " ORDER BY opened_at DESC, id DESC LIMIT %(limit)s",
            {
                "app": self._app,
                "metrics": metrics,
                "state": state,
                "alert": alert,
                **dict(zip(_KEYS, after, strict=True)),
                "limit": page.limit + 1,
            },
        )
        found, following = page.cut(found, _KEYS)
        return {"items": [_shown(row, ids=row["metric"] not in unnamed) for row in found], "next": following}


def alerts_of(metric: str, *, ids: bool = True) -> str:
    """The name of the feed of a metric's or pattern's alerts; neither has a name with a space.

    A pattern whose event ids are classified has a second one, without them.
    """
    return f"alerts of {metric}" if ids else f"alerts of {metric} without ids"


class AlertFeed:
    """The alerts on one metric, so that a client follows only those it may see."""

    event = "alert"

    def __init__(self, app: str, metric: str, source: str, database: Database, *, ids: bool = True) -> None:
        self.key, self.source, self.subject = alerts_of(metric, ids=ids), source, {"alerts_of": metric}
        self._app, self._metric, self._database, self._ids = app, metric, database, ids

    async def newest(self) -> Position:
        found = await self._database.one(
            "SELECT max(updated_at) AS at FROM headrace.alerts WHERE app = %s AND metric = %s",
            (self._app, self._metric),
        )
        return Position(found["at"]) if found and found["at"] else Position()

    async def since(self, position: Position) -> Changes:
        found = await self._database.rows_if_there(
            f"SELECT {_COLUMNS} FROM headrace.alerts WHERE app = %s AND metric = %s AND updated_at > %s"
            " ORDER BY updated_at LIMIT %s",
            (self._app, self._metric, position.at, MOST + 1),
        )
        reached = Position(found[-1]["updated_at"]) if found else position
        if len(found) > MOST:
            return Changes([], reached, complete=False)
        return Changes([to_json(_shown(row, ids=self._ids)) for row in found], reached)


def _shown(row: Row, *, ids: bool) -> dict[str, Any]:
    """Decimals are text already: a number with a fraction is a double."""
    values: dict[str, Any] = {
        name: float(v) if isinstance(v, Decimal) else v for name, v in row["values"].items()
    }
    if not ids:
        values["matched"] = [{**event, "event_id": None} for event in values.get("matched", [])]
    empty = {name: row[name] or None for name in ("runbook", "resolution")}
    return {**row, "values": values, **empty}
