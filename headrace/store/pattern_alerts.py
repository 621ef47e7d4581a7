"""The alerts of a pattern: raised once for a match, quiet for a while, resolved when that is over."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from headrace.alerts import written_message
from headrace.flows.pattern_rule import PatternRule
from headrace.flows.search import Moment
from headrace.store.alert_changes import INSERT_EVENT, UPSERT_ALERT, iso
from headrace.store.alert_endings import end_alerts
from headrace.store.connection import Connection
from headrace.store.times import to_time


@dataclass(frozen=True)
class Match:
    """Events of a key that fulfil a pattern, in the order of their times; `end` is when it was fulfilled."""

    key: str
    events: Sequence[Moment]
    end: int

    @property
    def last(self) -> int:
        """The time that the quiet time is counted from."""
        return self.events[-1].at


@dataclass
class _Quiet:
    """The alerts of a key that are still remembered, by the time of their last event."""

    alerts: list[tuple[int, str]] = field(default_factory=list)

    def covering(self, at: int, quiet: int) -> str | None:
        """The alert that a match at this time belongs to: the nearest."""
        near = min(self.alerts, key=lambda alert: (abs(alert[0] - at), alert), default=None)
        return near[1] if near is not None and abs(near[0] - at) < quiet else None


class PatternAlerts:
    def __init__(self, app: str, query: str, rule: PatternRule, pattern_id: int) -> None:
        self._app, self._query, self._rule, self._id = app, query, rule, pattern_id

    def tell(self, connection: Connection, matches: Sequence[Match]) -> int:
        """Raise alerts for the matches, in their order; returns how many are new.

        A match in the quiet time of an alert of its key, before or after it, only counts there.
        """
        if not matches:
            return 0
        quiet = self._quiet(connection, {match.key for match in matches})
        raised: dict[str, Match] = {}
        counted: Counter[str] = Counter()
        for match in matches:
            known = quiet.setdefault(match.key, _Quiet())
            covering = known.covering(match.last, self._rule.quiet)
            if covering is None:
                id_ = self._alert_id(match)
                raised[id_] = match
                known.alerts.append((match.last, id_))
            else:
                counted[covering] += 1
        new = self._write(connection, raised)
        self._count(connection, counted)
        return new

    def end_quiet(self, connection: Connection, watermark: int) -> None:
        """Resolve the alerts whose quiet time the watermark has passed."""
        found = connection.execute(
            "UPDATE headrace.pattern_alerts SET open = false"
            " WHERE pattern::bigint = %s AND open AND last <= %s RETURNING id",
            (self._id, watermark - self._rule.quiet),
        ).fetchall()
        end_alerts(connection, [id_ for (id_,) in found], "recovered")

    def forget(self, connection: Connection, watermark: int) -> None:
        """No match can come any more that these alerts would keep quiet."""
        connection.execute(
            "DELETE FROM headrace.pattern_alerts WHERE pattern::bigint = %s AND NOT open AND last <= %s",
            (self._id, watermark - self._rule.slack - self._rule.quiet),
        )

    def _quiet(self, connection: Connection, keys: Iterable[str]) -> dict[str, _Quiet]:
        found: dict[str, _Quiet] = {}
        for key, last, id_ in connection.execute(
            "SELECT mine.* FROM unnest(%s::text[]) AS wanted (key) CROSS JOIN LATERAL (SELECT key, last, id"
            " FROM headrace.pattern_alerts a WHERE a.pattern = %s AND a.key = wanted.key OFFSET 0) AS mine",
            (list(keys), self._id),
        ):
            found.setdefault(key, _Quiet()).alerts.append((last, id_))
        return found

    def _alert_id(self, match: Match) -> str:
        about = [self._app, self._rule.pattern.name, match.key, *(event.event_id for event in match.events)]
        return hashlib.sha256(json.dumps(about, ensure_ascii=False).encode()).hexdigest()[:32]

    def _write(self, connection: Connection, raised: dict[str, Match]) -> int:
        """Returns how many were not there before: a log that is read again raises nothing anew."""
        if not raised:
            return 0
        there = connection.execute("SELECT id FROM headrace.alerts WHERE id = ANY(%s)", (list(raised),))
        told = {id_ for (id_,) in there}
        [now] = connection.execute("SELECT now()").fetchone() or (None,)
        assert now is not None
        ordered = sorted(raised.items(), key=lambda item: (item[1].end, item[0]))
        rows = [self._row(id_, match, now) for id_, match in ordered if id_ not in told]
        with connection.cursor() as cursor:
            cursor.executemany(UPSERT_ALERT, rows)
            cursor.executemany(INSERT_EVENT, [self._event(row, now) for row in rows])
            cursor.executemany(
                "INSERT INTO headrace.pattern_alerts (pattern, key, last, id) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING",
                [(self._id, match.key, match.last, id_) for id_, match in ordered],
            )
        return len(rows)

    def _count(self, connection: Connection, counted: Counter[str]) -> None:
        """The table says how many matches an alert stands for; there is no event."""
        if not counted:
            return
        connection.execute(
            'UPDATE headrace.alerts SET updated_at = now(), "values" = "values" || jsonb_build_object('
            "'matches', (\"values\" ->> 'matches')::bigint + (%(counts)s::jsonb ->> id)::bigint)"
            " WHERE id = ANY(%(ids)s)",
            {"counts": json.dumps(counted), "ids": list(counted)},
        )

    def _row(self, id_: str, match: Match, now: datetime) -> dict[str, Any]:
        alert, events = self._rule.pattern.alert, match.events
        labels = self._rule.labels_of(match.key)
        shown = json.loads(events[-1].shown or "{}")
        values = {"events": len(events), "matches": 1, **shown, "matched": [self._told(e) for e in events]}
        start, end = to_time(events[0].at), to_time(match.end)
        about = {
            "alert": alert.name,
            "severity": alert.severity,
            "window_start": iso(start),
            "window_end": iso(end),
        }
        return {
            "id": id_,
            "app": self._app,
            "alert": alert.name,
            "metric": alert.metric,
            "severity": alert.severity,
            "state": "open",
            "resolution": "",
            "seq": 1,
            "grouping": ",".join(self._rule.pattern.key),
            "dimensions": json.dumps(labels),
            "window_start": start,
            "window_end": end,
            "windows": 1,
            "values": json.dumps(values),
            "message": written_message(alert, values | labels | about),
            "runbook": alert.runbook,
            "now": now,
            "resolved_at": None,
        }

    def _event(self, row: dict[str, Any], now: datetime) -> dict[str, Any]:
        alert = self._rule.pattern.alert
        payload = {
            "event_id": f"{row['id']}-1",
            "id": row["id"],
            "seq": 1,
            "kind": "opened",
            **{name: row[name] for name in ("app", "alert", "metric", "severity", "state")},
            "resolution": None,
            "grouping": row["grouping"],
            "dimensions": orjson.Fragment(row["dimensions"]),
            "window_start": iso(row["window_start"]),
            "window_end": iso(row["window_end"]),
            "windows": 1,
            "values": orjson.Fragment(row["values"]),
            "message": row["message"],
            "runbook": alert.runbook,
            "at": iso(now),
        }
        return {
            "query": self._query,
            "app": self._app,
            "alert": alert.name,
            "id": row["id"],
            "seq": 1,
            "kind": "opened",
            "payload": orjson.dumps(payload).decode(),
            "topic": alert.topic,
            "webhook": alert.webhook,
            "delivery": "waiting" if alert.webhook else "",
        }

    def _told(self, event: Moment) -> dict[str, Any]:
        at = to_time(event.at)
        symbols = [symbol for symbol, bit in self._rule.pattern.bits.items() if bit & event.mask]
        return {
            "event_id": event.event_id,
            "event_time": iso(at),
            "symbols": symbols,
            "partition": event.partition,
            "offset": event.offset,
        }
