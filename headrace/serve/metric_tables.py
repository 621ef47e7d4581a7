"""The tables of metrics as the API shows them: their columns and types, and one row as JSON."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from psycopg import sql

from headrace.metrics import Metric
from headrace.serve.database import Database, Row

TOTAL = "all"  # the grouping of the rows without dimensions
FRESH_SECONDS = 10.0
SHOWN_TYPES = {
    "bigint": "integer",
    "numeric": "decimal",
    "double precision": "number",
    "text": "string",
    "boolean": "boolean",
    "timestamp with time zone": "timestamp",
    "date": "date",
    "jsonb": "list",
}
_COLUMNS = """
    SELECT attname AS name, format_type(atttypid, NULL) AS type FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""


@dataclass(frozen=True)
class MetricTable:
    """One metric's table. `types` are those of the visible columns that it has: none without a table."""

    metric: Metric
    name: sql.Identifier
    types: Mapping[str, str]

    @property
    def exists(self) -> bool:
        return bool(self.types)

    @property
    def columns(self) -> sql.Composed:
        """What is selected; columns that hold partial results are not among them."""
        names = (
            *("window_start", "window_end", "grouping", *self.metric.dimensions),
            *("state", "revision", "events", "late_events", *self.types, "watermark", "updated_at"),
        )
        return sql.SQL(", ").join(map(sql.Identifier, names))

    def shown(self, row: Row) -> dict[str, Any]:
        return {
            "window_start": row["window_start"],
            "window_end": row["window_end"],
            "grouping": row["grouping"],
            "dimensions": self.dimensions(row["grouping"], row),
            "state": row["state"],
            "revision": row["revision"],
            "events": row["events"],
            "late_events": row["late_events"],
            "values": {name: _finite(row[name]) for name in self.types},
            "watermark": row["watermark"],
            "updated_at": row["updated_at"],
        }

    def dimensions(self, grouping: str, labels: Mapping[str, str]) -> dict[str, str]:
        names = () if grouping == TOTAL else grouping.split(",")
        return {name: labels[name] for name in names if name in labels}

    def values(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a revision, which are kept as JSON, in the types of their columns."""
        return {name: typed(kept.get(name), self.types[name]) for name in self.types}


class MetricTables:
    """Looks up tables in the database's own catalogue, now and then."""

    def __init__(self, database: Database, app: str) -> None:
        self._database, self._app = database, app
        self._known: dict[str, tuple[float, MetricTable]] = {}

    async def table(self, metric: Metric) -> MetricTable:
        known = self._known.get(metric.name)
        if known and known[0] > time.monotonic() and known[1].metric is metric:
            return known[1]
        name = sql.Identifier(self._app, metric.name)
        types = await column_types(self._database, name)
        table = MetricTable(metric, name, {n: types[n] for n in metric.visible if n in types})
        # A table that is not there yet may be made at any moment.
        self._known[metric.name] = (time.monotonic() + (FRESH_SECONDS if table.exists else 1.0), table)
        return table

    def forget(self, metric: Metric) -> None:
        self._known.pop(metric.name, None)


async def column_types(database: Database, table: sql.Identifier) -> dict[str, str]:
    """As Postgres names them; empty without a table."""
    found = await database.rows(_COLUMNS, (table.as_string(),))
    return {row["name"]: row["type"] for row in found}


def grouping_names(metric: Metric) -> list[str]:
    """Every grouping as the table's column `grouping` has it."""
    return [",".join(grouping) or TOTAL for grouping in metric.groupings]


def labels_of(dimensions: Iterable[str], row: Row) -> list[str]:
    return [row[name] for name in dimensions]


def typed(value: Any, type_: str) -> Any:
    """A value that was kept as JSON, as a column of that type has it."""
    if value is None:
        return None
    if type_ == "numeric":
        return value if isinstance(value, Decimal) else Decimal(str(value))
    if type_ == "double precision":
        return _finite(float(value))
    return value


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
