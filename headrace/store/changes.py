"""Telling those who watch the store that something was committed."""

from __future__ import annotations

import json

from headrace.store.connection import Connection

CHANNEL = "headrace"


def announce(connection: Connection, query: str) -> None:
    """Postgres delivers it when, and only if, the transaction commits."""
    connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, json.dumps({"query": query})))
