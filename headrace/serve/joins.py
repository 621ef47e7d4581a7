"""Joins as the API shows them: matches and dead letters, without the fields that the caller may not see."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import sql

from headrace.contracts.durations import format_duration
from headrace.joins import SIDES, Join, Side
from headrace.ops.load import LoadedApp
from headrace.serve.access import Access, Caller, classified_names
from headrace.serve.database import Database, Row
from headrace.serve.metric_tables import column_types, typed
from headrace.serve.parameters import Page
from headrace.store.join_names import letter_table, result_table

OWN = ("id", "key", "left_id", "right_id", "left_time", "right_time", "event_time")
_KEYS = ("event_time", "id")
_FIELD = re.compile(r"\b(left|right)\s*\.\s*`?(\w+)")
_SIDES = "SELECT flow, side, taken, matched, unmatched, late FROM headrace.flow_sides WHERE query = ANY(%s)"


@dataclass(frozen=True)
class Wanted:
    """Which rows; `reason` and `side` are of dead letters."""

    start: datetime | None = None
    end: datetime | None = None
    key: str | None = None
    reason: str | None = None
    side: str | None = None

    def conditions(self) -> tuple[list[sql.Composable], list[Any]]:
        given = {
            "event_time >= %s": self.start,
            "event_time < %s": self.end,
            "key = %s": self.key,
            "reason = %s": self.reason,
            "side = %s": self.side,
        }
        asked = {text: value for text, value in given.items() if value is not None}
        return [sql.SQL(text) for text in asked], list(asked.values())


class Joins:
    def __init__(self, loaded: LoadedApp, database: Database, access: Access) -> None:
        self._loaded, self._database, self._access = loaded, database, access

    def visible(self, caller: Caller) -> list[Join]:
        return [join for join in self._loaded.app.joins.values() if self.refused(caller, join) is None]

    def refused(self, caller: Caller, join: Join) -> str | None:
        """The stream that the caller may not see."""
        streams = (join.left, join.right)
        return next((s for s in streams if not self._access.sees_stream(caller, s)), None)

    async def catalogue(self, caller: Caller) -> list[dict[str, Any]]:
        joins = self.visible(caller)
        queries = [f"{self._loaded.name}.{join.stream(side)}" for join in joins for side in SIDES]
        found = await self._database.rows_if_there(_SIDES, (queries,))
        counts = {(row.pop("flow"), row.pop("side")): row for row in found}
        return [self._described(join, counts) for join in joins]

    async def matches(self, caller: Caller, join: Join, wanted: Wanted, page: Page) -> dict[str, Any]:
        hidden = self._hidden(caller, join, wanted)
        shown = [name for name in join.columns if name not in hidden]
        columns = [*OWN, "matched_at", *shown]
        found, following = await self._read(result_table(self._loaded.name, join.name), columns, wanted, page)
        items = [
            {**self._own(row, hidden), "values": {name: row[name] for name in shown}, "matched_at": at}
            for row in found
            for at in (row["matched_at"],)
        ]
        return {"items": items, "next": following}

    async def unmatched(self, caller: Caller, join: Join, wanted: Wanted, page: Page) -> dict[str, Any]:
        hidden = self._hidden(caller, join, wanted)
        columns = [*OWN, "reason", "side", "values", "at"]
        found, following = await self._read(letter_table(self._loaded.name, join.name), columns, wanted, page)
        # The values of a dead letter are JSON: the types are those of the same columns of a match.
        types = await column_types(self._database, result_table(self._loaded.name, join.name))
        items = [
            {
                **self._own(row, hidden),
                **{name: row[name] for name in ("reason", "side", "at")},
                "values": {
                    name: typed(value, types.get(name, ""))
                    for name, value in row["values"].items()
                    if name not in hidden
                },
            }
            for row in found
        ]
        return {"items": items, "next": following}

    async def _read(
        self, table: sql.Identifier, columns: list[str], wanted: Wanted, page: Page
    ) -> tuple[list[Row], str | None]:
        conditions, values = wanted.conditions()
        after = page.after([datetime, str])
        if after is not None:
            conditions.append(sql.SQL("(event_time, id) < (%s::timestamptz, %s)"))
            values += after
        text = sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY event_time DESC, id DESC LIMIT %s").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            table,
            sql.SQL(" AND ").join([sql.SQL("true"), *conditions]),
        )
        return page.cut(await self._database.rows_if_there(text, [*values, page.limit + 1]), _KEYS)

    def _own(self, row: Row, hidden: set[str]) -> dict[str, Any]:
        return {name: None if name in hidden else row[name] for name in OWN}

    def _hidden(self, caller: Caller, join: Join, wanted: Wanted) -> set[str]:
        """Columns that show a classified field of a stream whose fields the caller may not see.

        Who may not see a key may not ask for one either: the answer would tell.
        """
        secret: dict[str, set[str]] = {}
        for side in SIDES:
            contract = self._loaded.contract(join.stream(side))
            sees = self._access.sees_fields(caller, contract.name)
            secret[side] = set() if sees else classified_names(contract)
        hidden = {
            name
            for name, text in join.columns.items()
            if any(field in secret[side] for side, field in _FIELD.findall(text))
        }
        for side, names in _keys(join).items():
            if not self._access.sees_ids(caller, join.stream(side)):
                hidden.add(f"{side}_id")
            if names & secret[side]:
                hidden.add("key")
                if wanted.key is not None:
                    raise self._access.refusal(join.stream(side))
        return hidden

    def _described(self, join: Join, counts: dict[tuple[str, str], Row]) -> dict[str, Any]:
        sides = {}
        for side in SIDES:
            known = counts.get((join.name, side), {})
            numbers = {name: known.get(name, 0) for name in ("taken", "matched", "unmatched", "late")}
            pending = numbers["taken"] - numbers["matched"] - numbers["unmatched"] - numbers["late"]
            sides[side] = {"source": join.stream(side), **numbers, "pending": pending}
        return {
            "name": join.name,
            "kind": join.kind,
            "on": [list(pair) for pair in join.on],
            "within": format_duration(join.within),
            "checks": list(join.checks),
            "columns": list(join.columns),
            "topic": join.topic or None,
            "dead_letters": join.dead_letters or None,
            "retain": format_duration(join.retain),
            "sides": sides,
        }


def _keys(join: Join) -> dict[Side, set[str]]:
    return {side: {pair[n] for pair in join.on} for n, side in enumerate(SIDES)}
