"""The sessions of one source in the store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from headrace.gate.ledger import Batch
from headrace.store.connection import Connection
from headrace.store.flow_totals import FlowTotals
from headrace.store.metric_export import export_counts
from headrace.store.metric_tables import STATEMENTS
from headrace.store.session_export import export
from headrace.store.session_late import write_late
from headrace.store.session_merge import SessionStore
from headrace.store.session_tables import define
from headrace.store.source_accounts import Watermarks
from headrace.views.session_pieces import Pieces, ResolvedSessions


class SessionFold:
    def __init__(self, app: str, query: str, resolved: Sequence[ResolvedSessions]) -> None:
        self._app, self._query, self._resolved = app, query, resolved
        self._stores = {r.sessions.name: SessionStore(app, r) for r in resolved}
        self._totals = {name: FlowTotals(app, query, f"sessions.{name}") for name in self._stores}

    def prepare(self, connection: Connection, watermarks: Watermarks) -> None:
        for statement in STATEMENTS:
            connection.execute(statement)
        for resolved in self._resolved:
            name, anew = resolved.sessions.name, define(connection, self._app, resolved)
            self._totals[name].begin(connection, partial(self._stores[name].there, connection), anew=anew)

    def merge(
        self, connection: Connection, batch: Batch, part: list[Pieces], before: Watermarks, after: Watermarks
    ) -> None:
        for pieces in part:
            name = pieces.resolved.sessions.name
            sealed, opened = self._stores[name].merge(connection, pieces)
            if sealed.late:
                write_late(connection, self._app, pieces.resolved.sessions, sealed.late)
            counts = {
                "accepted": pieces.accepted,
                "counted": pieces.in_lines + len(sealed.taken),
                "filtered": pieces.filtered,
                "late": len(sealed.late),
            }
            connection.execute(
                "INSERT INTO headrace.metric_ledger VALUES (%s, %s, %s, %s, %s, %s, %s)",
                (self._query, batch.batch_id, name, *counts.values()),
            )
            self._totals[name].add(connection, batch.batch_id, **counts, open=opened)

    def advance(
        self, connection: Connection, before: Watermarks, after: Watermarks, part: list[Pieces] | None
    ) -> None:
        for name, store in self._stores.items():
            closed, forgotten = store.advance(connection, after.get("event"))
            self._totals[name].move(connection, open=-closed, closed=closed, forgotten=forgotten)

    def forget_old(self, connection: Connection) -> None:
        for store in self._stores.values():
            store.forget_late(connection, self._query)

    def export(self, connection: Connection, folder: Path) -> dict[str, Any]:
        found = {}
        for resolved in self._resolved:
            name = resolved.sessions.name
            rows = export(connection, self._app, resolved.sessions, folder)
            found[name] = {"rows": rows, **export_counts(connection, self._query, name)}
        return found
