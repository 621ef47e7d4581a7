"""Signals as records of a topic and as CSV files."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
from psycopg import sql

from headrace.flows.signals import ResolvedSignals
from headrace.signals import Signals
from headrace.store.connection import Connection
from headrace.store.metric_export import write_csv
from headrace.store.signal_tables import activity_name, comparison_name, shown_columns, table_name

COMPARED = (
    *("version", "shadow_version", "decision", "shadow_decision"),
    *("events", "mean_difference", "largest_difference", "agree"),
)


def record_of(signals: Signals, row: dict[str, Any]) -> str:
    """What the topic says about an event: its score, and what it was made of."""
    plain = {
        "id": row["id"],
        "signals": signals.name,
        "event_id": row["event_id"],
        "source": {"stream": signals.of, "partition": row["partition"], "offset": row["offset"]},
        "event_time": row["event_time"],
        **{name: row[name] for name in signals.labels},
        "features": {name: row[name] for name in signals.features},
        "complete": row["complete"],
        **{name: row[name] for name in ("score", "decision", "version")},
    }
    if row["shadow_version"] is not None:
        plain |= {name: row[name] for name in ("shadow_score", "shadow_decision", "shadow_version")}
    return orjson.dumps(plain, default=_plain, option=orjson.OPT_UTC_Z).decode()


def export(
    connection: Connection, app: str, query: str, resolved: ResolvedSignals, folder: Path
) -> dict[str, Any]:
    """Write `SIGNALS.csv`, `SIGNALS.activity.csv` and, with a shadow, `SIGNALS.comparison.csv`."""
    signals = resolved.signals
    columns = shown_columns(signals)
    activity = (signals.activity_by, "suspicious", "first_time", "last_time")
    tables = [
        (table_name(app, signals), columns, ("partition", "offset"), f"{signals.name}.csv"),
        (activity_name(app, signals), activity, activity[:1], f"{signals.name}.activity.csv"),
    ]
    if signals.shadow is not None:
        compared = (comparison_name(app, signals), COMPARED, COMPARED[:4], f"{signals.name}.comparison.csv")
        tables.append(compared)
    for table, shown, order, file in tables:
        statement = sql.SQL("SELECT {} FROM {} ORDER BY {}").format(
            sql.SQL(", ").join(map(sql.Identifier, shown)),
            table,
            sql.SQL(", ").join(map(sql.Identifier, order)),
        )
        write_csv(folder / file, shown, connection.execute(statement).fetchall())
    taken = connection.execute(
        "SELECT sum(accepted)::bigint, sum(taken)::bigint, sum(late)::bigint FROM headrace.flow_ledger"
        " WHERE query = %s AND flow = %s",
        (query, resolved.fold),
    ).fetchone() or (0, 0, 0)
    decided = connection.execute(
        "SELECT decision, count FROM headrace.signal_totals WHERE app = %s AND signals = %s ORDER BY 1",
        (app, signals.name),
    )
    counts = dict(zip(("accepted", "taken", "incomplete"), (n or 0 for n in taken), strict=True))
    return {**counts, "decisions": dict(decided.fetchall())}


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError(type(value).__name__)
