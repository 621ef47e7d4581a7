"""How the tables of one declaration of sessions are named, and how their pieces add up."""

from __future__ import annotations

from psycopg import sql

from headrace.store.metric_parts import within_batch
from headrace.store.session_tables import pieces_name, table_name
from headrace.views.session_pieces import ResolvedSessions

TEXT = 'text COLLATE "C"'


class SessionShape:
    """`staged`, `seals` and `found` are emptied with every transaction."""

    def __init__(self, app: str, resolved: ResolvedSessions) -> None:
        self.app, self.resolved, self.sessions = app, resolved, resolved.sessions
        self.table, self.pieces = table_name(app, self.sessions), pieces_name(app, self.sessions)
        self.staged, self.seals, self.found = (self._scratch(n) for n in ("staged", "seals", "found"))
        self.key = sql.Identifier(self.sessions.key)

    def sums(self) -> sql.Composed:
        """The parts of several pieces together, each with a comma before it."""
        return sql.SQL("").join(sql.SQL(", ") + within_batch(part) for part in self.resolved.parts)

    def _scratch(self, what: str) -> sql.Identifier:
        return sql.Identifier("pg_temp", f"{what}_{self.sessions.name}")
