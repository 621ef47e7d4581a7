"""What a batch is looked up in, written down before it is published.

Which events of a batch are published and which wait depends on the tables. A batch that runs again after a
crash may meet tables that have changed; with other tables it would forget an event that no attempt has
published, or keep one waiting that is published already. So it uses the tables of the first attempt.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from psycopg.types.json import Jsonb

from headrace.dimensions import Versions
from headrace.enrich import Enrich
from headrace.enricher import PENDING
from headrace.store.connection import Connection
from headrace.store.dimensions import Dimensions, LiveDimension


@dataclass(frozen=True)
class Pin:
    """The tables of a batch, the names of their editions, and the enrichments whose unknown events wait."""

    tables: Mapping[str, Versions]
    editions: Mapping[str, str]
    waits: frozenset[str]


def pin_now(live: Mapping[str, LiveDimension], waits: frozenset[str] = frozenset()) -> Pin:
    editions = {name: table.edition() for name, table in live.items()}
    return Pin(
        {name: versions for name, (versions, _) in editions.items()},
        {name: edition for name, (_, edition) in editions.items()},
        waits,
    )


class Pins:
    """The pins of one query."""

    def __init__(self, app: str, query: str, declared: Sequence[Enrich], dimensions: Dimensions) -> None:
        self._app, self._query, self._dimensions = app, query, dimensions
        self._limits = {e.name: e.retry.limit for e in declared if e.retry is not None}
        self._is_first = True
        self._kept: dict[str, str] = {}

    def of(self, batch_id: int, live: Mapping[str, LiveDimension]) -> Pin:
        """The tables as they are now; for a batch that runs again, as they were at its first attempt.

        Only the first batch of a run can be one that runs again, and what was declared may have changed
        meanwhile: it is looked for also if nothing waits any more.
        """
        current = pin_now(live)
        if not self._limits and not self._is_first:
            return current
        pin = self._dimensions.transact(lambda connection: self._pin(connection, batch_id, current))
        self._is_first = False
        self._kept = dict(pin.editions)
        return pin

    def _pin(self, connection: Connection, batch_id: int, current: Pin) -> Pin:
        found = connection.execute(
            "SELECT editions, waits FROM headrace.enrich_pins WHERE query = %s AND batch_id = %s",
            (self._query, batch_id),
        ).fetchone()
        if found is not None:
            return self._again(connection, current, *found)
        if not self._limits:
            return current
        rows = connection.execute(
            "SELECT enrich, count FROM headrace.enrich_totals WHERE app = %s AND outcome = %s",
            (self._app, PENDING),
        )
        waiting: dict[str, int] = dict(rows.fetchall())
        waits = sorted(name for name, limit in self._limits.items() if waiting.get(name, 0) < limit)
        for name, edition in current.editions.items():
            if self._kept.get(name) != edition:
                self._keep(connection, name, edition, current.tables[name])
        connection.execute(
            "INSERT INTO headrace.enrich_pins VALUES (%s, %s, %s, %s) ON CONFLICT (query) DO UPDATE SET"
            " batch_id = excluded.batch_id, editions = excluded.editions, waits = excluded.waits",
            (self._query, batch_id, Jsonb(dict(current.editions)), waits),
        )
        return Pin(current.tables, current.editions, frozenset(waits))

    def _keep(self, connection: Connection, name: str, edition: str, versions: Versions) -> None:
        connection.execute(
            "DELETE FROM headrace.enrich_editions WHERE query = %s AND name = %s", (self._query, name)
        )
        connection.execute(
            "INSERT INTO headrace.enrich_editions VALUES (%s, %s, %s, %s)",
            (self._query, name, edition, packed(versions)),
        )

    def _again(
        self, connection: Connection, current: Pin, editions: Mapping[str, str], waits: Sequence[str]
    ) -> Pin:
        rows = connection.execute(
            "SELECT name, edition, content FROM headrace.enrich_editions WHERE query = %s", (self._query,)
        )
        kept = {name: unpacked(content) for name, edition, content in rows if editions.get(name) == edition}
        # A table that is new in the declaration was not asked by the first attempt.
        known = {name: (kept[name], editions[name]) for name in current.tables if name in kept}
        return Pin(
            {**current.tables, **{name: versions for name, (versions, _) in known.items()}},
            {**current.editions, **{name: edition for name, (_, edition) in known.items()}},
            frozenset(waits),
        )


def packed(versions: Versions) -> bytes:
    """A table as bytes; numbers keep their digits."""
    keys = {
        key: [list(pair) for pair in zip(starts, versions.values[key], strict=True)]
        for key, starts in versions.starts.items()
    }
    plain = {"columns": versions.columns, "rows": versions.rows, "keys": keys}
    return zlib.compress(json.dumps(plain, default=lambda number: {"number": str(number)}).encode(), 1)


def unpacked(content: bytes) -> Versions:
    plain: dict[str, Any] = json.loads(zlib.decompress(content))
    starts: dict[str, list[int]] = {}
    values: dict[str, list[tuple[Any, ...] | None]] = {}
    for key, history in plain["keys"].items():
        starts[key] = [start for start, _ in history]
        values[key] = [None if found is None else tuple(map(_value, found)) for _, found in history]
    return Versions(tuple(plain["columns"]), starts, values, plain["rows"])


def _value(given: Any) -> Any:
    return Decimal(given["number"]) if isinstance(given, dict) else given
