"""Signals as they are in the store: scored events, suspicious activity, the shadow beside the live scorer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from psycopg import sql

from headrace.enrich import Enrich
from headrace.ops.load import LoadedApp
from headrace.ops.signal_facts import TableFacts, hit_rate
from headrace.serve.database import Database, Row
from headrace.serve.parameters import Page
from headrace.signals import Signals

_SCORED = ("score", "decision", "version")
_SHADOW = ("shadow_score", "shadow_decision", "shadow_version")
_KEYS = ("event_time", "id")


class SignalPages:
    """Of one app. Without their tables there are none: the engine makes them when it starts."""

    def __init__(self, loaded: LoadedApp, database: Database) -> None:
        self._loaded, self._database = loaded, database

    async def declared(self, signals: list[Signals]) -> list[dict[str, Any]]:
        totals = await self._totals("signal_totals", "signals", "decision")
        return [
            {
                "name": each.name,
                "source": each.of,
                "key": each.key,
                "where": each.where,
                "features": {name: feature.kind for name, feature in each.features.items()},
                "decisions": dict(each.decisions),
                "version": each.scorer.version,
                "shadow_version": each.shadow.version if each.shadow else None,
                "topic": each.topic,
                "lane": each.lane,
                "counts": totals.get(each.name, {}),
            }
            for each in signals
        ]

    async def page(
        self,
        signals: Signals,
        page: Page,
        *,
        key: str | None,
        decision: str | None,
        since: datetime | None,
        until: datetime | None,
    ) -> dict[str, Any]:
        after = page.after([datetime, str]) or ["infinity", ""]
        found = await self._database.rows_if_there(
            sql.SQL(
                "SELECT * FROM {table} WHERE (event_time, id) < (%(event_time)s::timestamptz, %(id)s)"
                " AND (%(key)s::text IS NULL OR {key} = %(key)s)"
                " AND (%(decision)s::text IS NULL OR decision = %(decision)s)"
                " AND (%(since)s::timestamptz IS NULL OR event_time >= %(since)s)"
                " AND (%(until)s::timestamptz IS NULL OR event_time < %(until)s)"
                " ORDER BY event_time DESC, id DESC LIMIT %(limit)s"
            ).format(table=self._table(signals), key=sql.Identifier(signals.key)),
            {
                **dict(zip(_KEYS, after, strict=True)),
                "key": key,
                "decision": decision,
                "since": since,
                "until": until,
                "limit": page.limit + 1,
            },
        )
        found, following = page.cut(found, _KEYS)
        return {"items": [_shown(signals, row) for row in found], "next": following}

    async def one(self, signals: Signals, event_id: str) -> dict[str, Any] | None:
        row = await self._database.one(
            sql.SQL("SELECT * FROM {} WHERE id = %s").format(self._table(signals)),
            (f"{signals.name}:{event_id}",),
        )
        return _shown(signals, row) if row is not None else None

    async def activity(self, signals: Signals, page: Page) -> dict[str, Any]:
        """Those with the most suspicious events first."""
        who = sql.Identifier(signals.activity_by)
        after = page.after([int, str]) or [2**62, ""]
        found = await self._database.rows_if_there(
            sql.SQL(
                "SELECT {who} AS key, suspicious, first_time, last_time FROM {table}"
                " WHERE (-suspicious, {who}) > (-%(n)s::bigint, %(key)s)"
                " ORDER BY -suspicious, {who} LIMIT %(limit)s"
            ).format(who=who, table=sql.Identifier(self._loaded.name, f"{signals.name}__activity")),
            {"n": after[0], "key": after[1], "limit": page.limit + 1},
        )
        found, following = page.cut(found, ("suspicious", "key"))
        return {"items": found, "next": following, "by": signals.activity_by}

    async def comparison(self, signals: Signals, since: datetime) -> list[Row]:
        """By pair of decisions, of the events since then."""
        return await self._database.rows_if_there(
            sql.SQL(
                "SELECT version, shadow_version, decision, shadow_decision, count(*) AS events,"
                " avg(shadow_score - score) AS mean_difference,"
                " max(abs(shadow_score - score)) AS largest_difference"
                " FROM {} WHERE shadow_version IS NOT NULL AND event_time >= %s"
                " GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
            ).format(self._table(signals)),
            (since,),
        )

    async def enrichments(self, declared: list[Enrich]) -> list[dict[str, Any]]:
        totals = await self._totals("enrich_totals", "enrich", "outcome")
        rows = await self._database.rows_if_there(
            "SELECT name, place, rows, loaded_at, checked_at, problem, sound_at"
            " FROM headrace.dimensions WHERE app = %s",
            (self._loaded.name,),
        )
        tables = {row["name"]: _table(row) for row in rows}
        return [
            {
                "name": each.name,
                "source": each.of,
                "topic": each.topic,
                "unknown": each.unknown,
                "columns": {name: ".".join(place) for name, place in each.columns.items()},
                "counts": (counts := totals.get(each.name, {})),
                "hit_rate": hit_rate(counts),
                "tables": [tables[t.name] for t in each.tables if t.name in tables],
            }
            for each in declared
        ]

    async def _totals(self, table: str, name: str, label: str) -> dict[str, dict[str, int]]:
        rows = await self._database.rows_if_there(
            sql.SQL("SELECT {} AS name, {} AS label, count FROM {} WHERE app = %s ORDER BY 1, 2").format(
                sql.Identifier(name), sql.Identifier(label), sql.Identifier("headrace", table)
            ),
            (self._loaded.name,),
        )
        found: dict[str, dict[str, int]] = {}
        for row in rows:
            found.setdefault(row["name"], {})[row["label"]] = row["count"]
        return found

    def _table(self, signals: Signals) -> sql.Identifier:
        return sql.Identifier(self._loaded.name, signals.name)


def _table(row: Row) -> Row:
    facts = TableFacts(*(row[name] for name in TableFacts._fields))
    return {
        **{name: row[name] for name in ("name", "place", "rows", "loaded_at", "checked_at", "problem")},
        "stale_seconds": facts.stale_seconds(datetime.now(UTC)),
    }


def _shown(signals: Signals, row: Row) -> dict[str, Any]:
    shown = {name: row[name] for name in ("id", "event_id", "partition", "offset", "event_time", "log_time")}
    shown |= {"labels": {name: row[name] for name in signals.labels}}
    shown |= {"features": {name: row.get(name) for name in signals.features}}
    return shown | {name: row[name] for name in (*_SCORED, *_SHADOW, "complete", "scored_at")}
