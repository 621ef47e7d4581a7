"""The tables of enrichment: what it has counted, what its batches used, where it looks things up."""

from __future__ import annotations

ENRICH_TABLES = (
    # How many of each outcome there have been, for counters; of `pending`, how many wait now.
    """
    CREATE TABLE IF NOT EXISTS headrace.enrich_totals (
        app text NOT NULL,
        enrich text NOT NULL,
        outcome text NOT NULL,
        count bigint NOT NULL,
        PRIMARY KEY (app, enrich, outcome)
    )
    """,
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
    # The tables that events are looked up in, as the engine last read them.
    """
    CREATE TABLE IF NOT EXISTS headrace.dimensions (
        app text NOT NULL,
        name text NOT NULL,
        place text NOT NULL,
        rows bigint NOT NULL,
        loaded_at timestamptz NOT NULL,
        checked_at timestamptz NOT NULL,
        problem text NOT NULL,
        PRIMARY KEY (app, name)
    )
    """,
)
