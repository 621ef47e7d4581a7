"""Telling those who watch the store that something was committed."""

from __future__ import annotations

from headrace.store.connection import Connection

CHANNEL = "headrace"


def announce(connection: Connection, query: str) -> None:
    """Postgres delivers it when, and only if, the transaction commits.

    `at` is the time of the transaction: the `updated_at` of every row that it has changed.
    """
    connection.execute(
        "SELECT pg_notify(%s, json_build_object('query', %s::text, 'at', now())::text)", (CHANNEL, query)
    )
