"""The tables that all flows share: the outbox of their topics, and their accounts."""

from __future__ import annotations

FLOW_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS headrace.outbox (
        position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        query text NOT NULL,
        topic text NOT NULL,
        key text NOT NULL,
        value text NOT NULL,
        at timestamptz NOT NULL DEFAULT now()
    )
    """,
    "CREATE INDEX IF NOT EXISTS outbox_by_lane ON headrace.outbox (query, topic, position)",
    """
    CREATE TABLE IF NOT EXISTS headrace.outbox_lanes (
        query text NOT NULL,
        topic text NOT NULL,
        epoch uuid NOT NULL DEFAULT gen_random_uuid(),
        published bigint NOT NULL DEFAULT 0,
        published_at timestamptz,
        PRIMARY KEY (query, topic)
    )
    """,
    # Per batch: what a flow's side took of the accepted events, and how many of those came too late for it.
    """
    CREATE TABLE IF NOT EXISTS headrace.flow_ledger (
        query text NOT NULL,
        batch_id bigint NOT NULL,
        flow text NOT NULL,
        side text NOT NULL,
        accepted bigint NOT NULL,
        taken bigint NOT NULL,
        late bigint NOT NULL,
        PRIMARY KEY (query, batch_id, flow, side)
    )
    """,
    # How many of each decision and outcome there have been, for counters: the rows themselves are forgotten.
    """
    CREATE TABLE IF NOT EXISTS headrace.signal_totals (
        app text NOT NULL,
        signals text NOT NULL,
        decision text NOT NULL,
        count bigint NOT NULL,
        PRIMARY KEY (app, signals, decision)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS headrace.enrich_totals (
        app text NOT NULL,
        enrich text NOT NULL,
        outcome text NOT NULL,
        count bigint NOT NULL,
        PRIMARY KEY (app, enrich, outcome)
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
