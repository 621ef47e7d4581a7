"""The tables of enrichment with events that wait: what its batches used, and where they were looked up."""

from __future__ import annotations

ENRICH_TABLES = (
    # In which editions of the tables all events that wait have been looked up.
    """
    CREATE TABLE IF NOT EXISTS headrace.enrich_waits (
        app text NOT NULL,
        enrich text NOT NULL,
        looked_up text NOT NULL DEFAULT '',
        PRIMARY KEY (app, enrich)
    )
    """,
    # With what the last batch of a query was published: tables and their editions, and whose unknown wait.
    """
    CREATE TABLE IF NOT EXISTS headrace.enrich_pins (
        query text PRIMARY KEY,
        batch_id bigint NOT NULL,
        editions jsonb NOT NULL,
        waits text[] NOT NULL
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS headrace.enrich_editions (
        query text NOT NULL,
        name text NOT NULL,
        edition text NOT NULL,
        content bytea NOT NULL,
        PRIMARY KEY (query, name, edition)
    )
    """,
)
