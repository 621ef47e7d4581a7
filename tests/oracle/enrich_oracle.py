"""What an enriched event must be: the event, and of each table the newest version that was valid at its time.

It looks through all rows of the table for every event, with datetimes, and parses the event as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class DimensionRow:
    key: str
    valid_from: datetime
    values: Mapping[str, Any]
    valid_to: datetime | None = None


def version_at(rows: Sequence[DimensionRow], key: str, at: datetime) -> DimensionRow | None:
    begun = [row for row in rows if row.key == key and row.valid_from <= at]
    newest = max(begun, key=lambda row: row.valid_from, default=None)
    if newest is not None and newest.valid_to is not None and newest.valid_to <= at:
        return None
    return newest


def enriched(
    event: bytes, rows: Sequence[DimensionRow], *, table: str, on: str, columns: Mapping[str, str], time: str
) -> dict[str, Any]:
    """The event as an object, with the columns and the two fields that say where they came from."""
    given: dict[str, Any] = json.loads(event)
    key = given.get(on)
    found = version_at(rows, key, datetime.fromisoformat(given[time])) if key is not None else None
    added: dict[str, Any] = {
        name: found.values[column] if found else None for name, column in columns.items()
    }
    since = found.valid_from.isoformat().replace("+00:00", "Z") if found else None
    added[f"{table}_valid_from"] = since
    added[f"{table}_found"] = None if key is None else found is not None
    return {**given, **added}
