"""What a difference does: the new row of the alert, and the events that tell of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from headrace.alerts import written_message
from headrace.store.alert_runs import Difference, Recorded
from headrace.store.connection import Connection
from headrace.views.alert_rule import AlertRule


@dataclass(frozen=True)
class Standing:
    """An alert at one moment of its life."""

    kind: str  # opened, updated, resolved: how it came to be so
    state: str
    resolution: str
    window_start: datetime
    window_end: datetime
    values: str


def standings(difference: Difference, opens_after: timedelta) -> list[Standing]:
    """One for each window by which an alert grew, one for its end; none where only values were corrected.

    `opens_after` is the time from the start of the first window to the end of the one that opens it.
    """
    recorded, first, last = difference.recorded, difference.first, difference.last
    if first is None or last is None:
        assert recorded is not None
        return [ended(recorded, "retracted")]
    if recorded is None:
        grown = [step for step in difference.steps if step[0] >= first + opens_after]
    elif recorded.counts:
        grown = [step for step in difference.steps if step[0] > recorded.window_end]
    else:
        grown = [difference.steps[-1]]
    before = recorded if recorded is not None and recorded.counts else None
    closed = before is None or before.state == "resolved"
    found = []
    for number, (end, values) in enumerate(grown):
        kind = "opened" if closed and number == 0 else "updated"
        found.append(Standing(kind, "open", "", first, end, values))
    if difference.state == "resolved" and (found or not closed):
        found.append(Standing("resolved", "resolved", "recovered", first, last, difference.steps[-1][1]))
    elif before is not None and closed and before.window_end > last:
        found.append(Standing("updated", "resolved", "recovered", first, last, difference.steps[-1][1]))
    return found


def ended(recorded: Recorded, resolution: str) -> Standing:
    """An alert that no run stands behind any more."""
    kind = "resolved" if recorded.state == "open" else "updated"
    place = (recorded.window_start, recorded.window_end, recorded.values)
    return Standing(kind, "resolved", resolution, *place)


class Changes:
    """Writes what became of the alerts of one rule, inside the transaction of a batch."""

    def __init__(self, app: str, query: str, rule: AlertRule) -> None:
        self._app, self._query, self._rule = app, query, rule

    def write(self, connection: Connection, found: list[Difference], now: datetime) -> None:
        window = self._rule.metric.window
        opens_after = window.size + window.hop * (self._rule.alert.windows - 1)
        rows, events = [], []
        for difference in found:
            seq = difference.recorded.seq if difference.recorded else 0
            steps = standings(difference, opens_after)
            events += [self._event(difference, standing, seq + n, now) for n, standing in enumerate(steps, 1)]
            last = steps[-1] if steps else _corrected(difference)
            rows.append(self._row(difference, last, seq + len(steps), now))
        if not rows:
            return
        with connection.cursor() as cursor:
            cursor.executemany(UPSERT_ALERT, rows)
            cursor.executemany(INSERT_EVENT, events)

    def _row(self, difference: Difference, now_so: Standing, seq: int, now: datetime) -> dict[str, Any]:
        alert = self._rule.alert
        return {
            "id": difference.id,
            "app": self._app,
            "alert": alert.name,
            "metric": alert.metric,
            "severity": alert.severity,
            "state": now_so.state,
            "resolution": now_so.resolution,
            "grouping": self._rule.grouping,
            "dimensions": json.dumps(difference.dimensions),
            "window_start": now_so.window_start,
            "window_end": now_so.window_end,
            "windows": self._windows(now_so),
            "values": now_so.values,
            "message": self._message(difference, now_so),
            "runbook": alert.runbook,
            "seq": seq,
            "now": now,
            "resolved_at": now if now_so.state == "resolved" else None,
        }

    def _event(self, difference: Difference, standing: Standing, seq: int, now: datetime) -> dict[str, Any]:
        alert = self._rule.alert
        payload = {
            "event_id": f"{difference.id}-{seq}",
            "id": difference.id,
            "seq": seq,
            "kind": standing.kind,
            "app": self._app,
            "alert": alert.name,
            "metric": alert.metric,
            "severity": alert.severity,
            "state": standing.state,
            "resolution": standing.resolution or None,
            "grouping": self._rule.grouping,
            "dimensions": difference.dimensions,
            "window_start": iso(standing.window_start),
            "window_end": iso(standing.window_end),
            "windows": self._windows(standing),
            "values": orjson.Fragment(standing.values),
            "message": self._message(difference, standing),
            "runbook": alert.runbook,
            "at": iso(now),
        }
        return {
            "query": self._query,
            "app": self._app,
            "alert": alert.name,
            "id": difference.id,
            "seq": seq,
            "kind": standing.kind,
            "payload": orjson.dumps(payload).decode(),
            "topic": alert.topic,
            "webhook": alert.webhook,
            "delivery": "waiting" if alert.webhook else "",
        }

    def _message(self, difference: Difference, standing: Standing) -> str:
        alert = self._rule.alert
        about = {
            "alert": alert.name,
            "severity": alert.severity,
            "windows": self._windows(standing),
            "window_start": iso(standing.window_start),
            "window_end": iso(standing.window_end),
        }
        return written_message(alert, json.loads(standing.values) | difference.dimensions | about)

    def _windows(self, standing: Standing) -> int:
        window = self._rule.metric.window
        return (standing.window_end - standing.window_start - window.size) // window.hop + 1


def _corrected(difference: Difference) -> Standing:
    """The same alert, with the values that its last window has now."""
    recorded = difference.recorded
    assert recorded is not None
    same = ended(recorded, recorded.resolution)
    return replace(same, state=recorded.state, values=difference.steps[-1][1])


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


_COLUMNS = (
    *("id", "app", "alert", "metric", "severity", "state", "resolution", '"grouping"', "dimensions"),
    *("window_start", "window_end", "windows", '"values"', "message", "runbook", "seq", "opened_at"),
    *("updated_at", "resolved_at"),
)


def _changing() -> Iterator[str]:
    fixed = ("id", "app", "alert", "metric", '"grouping"', "dimensions", "opened_at")
    for column in _COLUMNS:
        if column == "resolved_at":
            yield (
                "resolved_at = CASE WHEN headrace.alerts.state = excluded.state"
                " THEN headrace.alerts.resolved_at ELSE excluded.resolved_at END"
            )
        elif column not in fixed:
            yield f"{column} = excluded.{column}"


UPSERT_ALERT = (
    f"INSERT INTO headrace.alerts ({', '.join(_COLUMNS)}) VALUES"
    " (%(id)s, %(app)s, %(alert)s, %(metric)s, %(severity)s, %(state)s, %(resolution)s, %(grouping)s,"
    " %(dimensions)s::jsonb, %(window_start)s, %(window_end)s, %(windows)s, %(values)s::jsonb, %(message)s,"
    " %(runbook)s, %(seq)s, %(now)s, %(now)s, %(resolved_at)s)"
    f" ON CONFLICT (id) DO UPDATE SET {', '.join(_changing())}"
)
INSERT_EVENT = (
    "INSERT INTO headrace.alert_events (query, app, alert, id, seq, kind, payload, topic, webhook, delivery)"
    " VALUES (%(query)s, %(app)s, %(alert)s, %(id)s, %(seq)s, %(kind)s, %(payload)s::json, %(topic)s,"
    " %(webhook)s, %(delivery)s)"
)
