"""The tables of the store. Every statement may run again."""

from __future__ import annotations

from headrace.store.alert_tables import ALERT_TABLES
from headrace.store.columns import add_column
from headrace.store.enrich_tables import ENRICH_TABLES
from headrace.store.flow_tables import FLOW_TABLES
from headrace.store.pattern_tables import PATTERN_TABLES

STATEMENTS = (
    "CREATE SCHEMA IF NOT EXISTS headrace",
    """
    CREATE TABLE IF NOT EXISTS headrace.batches (
        query text NOT NULL,
        batch_id bigint NOT NULL,
        started_at timestamptz NOT NULL,
        finished_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        received bigint NOT NULL,
        duplicates bigint NOT NULL,
        dropped bigint NOT NULL,
        PRIMARY KEY (query, batch_id)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS headrace.ledger (
        query text NOT NULL,
        batch_id bigint NOT NULL,
        partition int NOT NULL,
        first_offset bigint NOT NULL,
        end_offset bigint NOT NULL,
        received bigint NOT NULL,
        accepted bigint NOT NULL,
        rejected bigint NOT NULL,
        late bigint NOT NULL,
        duplicate bigint NOT NULL,
        reasons jsonb NOT NULL,
        clock timestamptz,
        PRIMARY KEY (query, batch_id, partition),
        FOREIGN KEY (query, batch_id) REFERENCES headrace.batches ON DELETE CASCADE
    )
    """,
    "CREATE INDEX IF NOT EXISTS ledger_by_offset ON headrace.ledger (query, partition, first_offset)",
    "CREATE INDEX IF NOT EXISTS batches_by_time ON headrace.batches (query, finished_at)",
    """
    CREATE TABLE IF NOT EXISTS headrace.clocks (
        query text NOT NULL,
        partition int NOT NULL,
        clock timestamptz,
        next_offset bigint NOT NULL,
        log_time timestamptz,
        moved_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (query, partition)
    )
    """,
    add_column("clocks", "log_time", "timestamptz"),
    """
    CREATE TABLE IF NOT EXISTS headrace.watermarks (
        query text NOT NULL,
        time text NOT NULL,
        base timestamptz NOT NULL,
        watermark timestamptz NOT NULL,
        active_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (query, time)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS headrace.metric_ledger (
        query text NOT NULL,
        batch_id bigint NOT NULL,
        metric text NOT NULL,
        accepted bigint NOT NULL,
        counted bigint NOT NULL,
        filtered bigint NOT NULL,
        late bigint NOT NULL,
        PRIMARY KEY (query, batch_id, metric)
    )
    """,
    *ALERT_TABLES,
    *FLOW_TABLES,
    *ENRICH_TABLES,
    *PATTERN_TABLES,
    add_column("ledger", "oldest_log_time", "timestamptz"),
    """
    CREATE TABLE IF NOT EXISTS headrace.query_reports (
        query text PRIMARY KEY,
        status text NOT NULL,
        engine_started_at timestamptz NOT NULL,
        reported_at timestamptz NOT NULL,
        starts bigint NOT NULL,
        failures bigint NOT NULL,
        restarts bigint NOT NULL,
        last_failure text,
        last_failure_at timestamptz,
        progress jsonb,
        counted_batch bigint NOT NULL,
        counted_at timestamptz,
        totals jsonb NOT NULL
    )
    """,
)
