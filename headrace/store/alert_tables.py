"""The tables of alerts: their rules, the alerts themselves, and the outbox of what happened to them."""

from __future__ import annotations

from headrace.store.columns import add_column

ALERT_TABLES = (
    # Until when windows have been judged (settled), and until when they can no longer change (frozen).
    """
    CREATE TABLE IF NOT EXISTS headrace.alert_rules (
        app text NOT NULL,
        alert text NOT NULL,
        query text NOT NULL,
        definition jsonb NOT NULL,
        since timestamptz,
        frozen timestamptz,
        settled timestamptz,
        PRIMARY KEY (app, alert)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS headrace.alerts (
        id text PRIMARY KEY,
        app text NOT NULL,
        alert text NOT NULL,
        metric text NOT NULL,
        severity text NOT NULL,
        state text NOT NULL CHECK (state IN ('open', 'resolved')),
        resolution text NOT NULL CHECK (resolution IN ('', 'recovered', 'retracted', 'withdrawn')),
        "grouping" text NOT NULL,
        dimensions jsonb NOT NULL,
        window_start timestamptz NOT NULL,
        window_end timestamptz NOT NULL,
        windows int NOT NULL,
        "values" jsonb NOT NULL,
        message text NOT NULL,
        runbook text NOT NULL,
        seq int NOT NULL,
        opened_at timestamptz NOT NULL,
        updated_at timestamptz NOT NULL,
        resolved_at timestamptz
    )
    """,
    "CREATE INDEX IF NOT EXISTS alerts_by_window ON headrace.alerts (app, alert, window_end)",
    "CREATE INDEX IF NOT EXISTS alerts_by_change ON headrace.alerts (app, updated_at)",
    "CREATE INDEX IF NOT EXISTS alerts_open ON headrace.alerts (app, opened_at) WHERE state = 'open'",
    """
    CREATE TABLE IF NOT EXISTS headrace.alert_events (
        position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        query text NOT NULL,
        app text NOT NULL,
        alert text NOT NULL,
        id text NOT NULL,
        seq int NOT NULL,
        kind text NOT NULL CHECK (kind IN ('opened', 'updated', 'resolved')),
        payload json NOT NULL,
        topic text NOT NULL,
        webhook text NOT NULL,
        delivery text NOT NULL CHECK (delivery IN ('', 'waiting', 'delivered', 'dead')),
        attempts int NOT NULL DEFAULT 0,
        next_attempt_at timestamptz NOT NULL DEFAULT now(),
        last_error text NOT NULL DEFAULT '',
        at timestamptz NOT NULL DEFAULT now(),
        UNIQUE (id, seq)
    )
    """,
    "CREATE INDEX IF NOT EXISTS alert_events_by_lane ON headrace.alert_events (query, topic, position)",
    "CREATE INDEX IF NOT EXISTS alert_events_waiting ON headrace.alert_events (query, next_attempt_at)"
    " WHERE delivery = 'waiting'",
    # A lane is what one query writes to one topic. The epoch tells its markers from those of a lost store.
    """
    CREATE TABLE IF NOT EXISTS headrace.alert_lanes (
        query text NOT NULL,
        topic text NOT NULL,
        epoch uuid NOT NULL DEFAULT gen_random_uuid(),
        published bigint NOT NULL DEFAULT 0,
        published_at timestamptz,
        PRIMARY KEY (query, topic)
    )
    """,
    add_column("alert_lanes", "sent", "bigint"),
)
