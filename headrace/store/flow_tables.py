"""The tables that all flows share: the outbox of their topics, and their accounts."""

from __future__ import annotations

from headrace.store.columns import add_column

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
    # A record that must be what the gate would have published, to the byte; key and value are empty then.
    add_column("outbox", "exact_partition", "int"),
    add_column("outbox", "exact_key", "bytea"),
    add_column("outbox", "exact_value", "bytea"),
    add_column("outbox", "exact_headers", "bytea"),
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
    # How many results have left the outbox of a lane, and how many were put into it. These are two rows, as
    # they are written by two: a publisher must not wait for the end of a batch.
    add_column("outbox_lanes", "sent", "bigint"),
    """
    CREATE TABLE IF NOT EXISTS headrace.outbox_handed (
        query text NOT NULL,
        topic text NOT NULL,
        handed bigint NOT NULL,
        PRIMARY KEY (query, topic)
    ) WITH (fillfactor = 50)
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
    # What became of the events that a side took, since its first batch; `pending_in` names the table in which
    # those wait that have no outcome yet (rows that are not `matched`).
    """
    CREATE TABLE IF NOT EXISTS headrace.flow_sides (
        query text NOT NULL,
        flow text NOT NULL,
        side text NOT NULL,
        first_batch bigint NOT NULL,
        taken bigint NOT NULL DEFAULT 0,
        matched bigint NOT NULL DEFAULT 0,
        unmatched bigint NOT NULL DEFAULT 0,
        late bigint NOT NULL DEFAULT 0,
        pending_in text[],
        PRIMARY KEY (query, flow, side)
    )
    """,
    add_column("flow_sides", "accepted", "bigint"),
    # The same for sessions, signals and enrichment: a row for each outcome.
    """
    CREATE TABLE IF NOT EXISTS headrace.flow_totals (
        app text NOT NULL,
        query text NOT NULL,
        flow text NOT NULL,
        outcome text NOT NULL,
        count bigint NOT NULL,
        first_batch bigint,
        PRIMARY KEY (query, flow, outcome)
    ) WITH (fillfactor = 50)
    """,
    # Events that came too late for a flow: what they would have met was decided without them.
    """
    CREATE TABLE IF NOT EXISTS headrace.flow_late (
        app text NOT NULL,
        flow text NOT NULL,
        side text NOT NULL,
        event_id text NOT NULL,
        partition int NOT NULL,
        "offset" bigint NOT NULL,
        event_time timestamptz NOT NULL,
        bound timestamptz NOT NULL,
        late_by interval NOT NULL,
        reason text NOT NULL DEFAULT 'idle_wake',
        seen_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (app, flow, side, partition, "offset")
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS headrace.joins (
        app text NOT NULL,
        name text NOT NULL,
        definition jsonb NOT NULL,
        left_bound timestamptz,
        right_bound timestamptz,
        since timestamptz NOT NULL DEFAULT now(),
        matches bigint NOT NULL DEFAULT 0,
        letters bigint NOT NULL DEFAULT 0,
        old_matches bigint NOT NULL DEFAULT 0,
        old_letters bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (app, name)
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
    # When a look last found that the versions in use are the newest.
    add_column("dimensions", "sound_at", "timestamptz"),
)
