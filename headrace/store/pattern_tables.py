"""The tables of patterns: what they are, what they remember, and which alerts keep a key quiet."""

from __future__ import annotations

from headrace.store.columns import add_column

PATTERN_TABLES = (
    # Since the pattern has this meaning: taken = remembered + forgotten + late + again.
    """
    CREATE TABLE IF NOT EXISTS headrace.patterns (
        id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        app text NOT NULL,
        pattern text NOT NULL,
        query text NOT NULL,
        meaning jsonb NOT NULL,
        taken bigint NOT NULL DEFAULT 0,
        late bigint NOT NULL DEFAULT 0,
        again bigint NOT NULL DEFAULT 0,
        forgotten bigint NOT NULL DEFAULT 0,
        matches bigint NOT NULL DEFAULT 0,
        alerts bigint NOT NULL DEFAULT 0,
        UNIQUE (app, pattern)
    )
    """,
    # Of the alerts that were raised, how many have been forgotten since, and of how many the first event has;
    # less those that were there before.
    add_column("patterns", "accepted", "bigint"),
    add_column("patterns", "first_batch", "bigint"),
    add_column("patterns", "old_alerts", "bigint"),
    add_column("patterns", "old_events", "bigint"),
    # Times are microseconds since 1970. A used event is part of a match; the watermark that passes `until`
    # takes it away. The indexes by time are over pattern::bigint, so that the planner, which knows nothing of
    # a new pattern, cannot take one of them for a look by key: it would read all of the pattern for each key.
    """
    CREATE TABLE IF NOT EXISTS headrace.pattern_events (
        pattern int NOT NULL,
        key text NOT NULL,
        at bigint NOT NULL,
        event_id text NOT NULL,
        mask int NOT NULL,
        used boolean NOT NULL DEFAULT false,
        partition int NOT NULL,
        "offset" bigint NOT NULL,
        clock bigint,
        until bigint NOT NULL,
        shown text,
        PRIMARY KEY (pattern, key, at, event_id)
    )
    """,
    "CREATE INDEX IF NOT EXISTS pattern_events_over ON headrace.pattern_events ((pattern::bigint), until)",
    """
    CREATE TABLE IF NOT EXISTS headrace.pattern_alerts (
        pattern int NOT NULL,
        key text NOT NULL,
        last bigint NOT NULL,
        id text NOT NULL,
        open boolean NOT NULL DEFAULT true,
        PRIMARY KEY (pattern, key, last, id)
    )
    """,
    "CREATE INDEX IF NOT EXISTS pattern_alerts_over ON headrace.pattern_alerts ((pattern::bigint), last)",
    "CREATE INDEX IF NOT EXISTS pattern_alerts_opened ON headrace.pattern_alerts ((pattern::bigint), last)"
    " WHERE open",
    "DROP INDEX IF EXISTS headrace.pattern_events_until, headrace.pattern_alerts_by_time,"
    " headrace.pattern_alerts_open",
)
