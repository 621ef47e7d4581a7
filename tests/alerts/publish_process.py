"""A process that publishes what waits in an outbox, and may be killed at a named step."""

from __future__ import annotations

import sys

from headrace.ops.outbox_topics import OutboxTopics
from headrace.store.alert_outbox import AlertOutbox
from headrace.store.connection import Store

if __name__ == "__main__":
    store_url, bootstrap, query = sys.argv[1:]
    topics = OutboxTopics(
        "alerts", AlertOutbox(), Store(store_url), [query], {"bootstrap.servers": bootstrap, "log_level": "2"}
    )
    print(topics.publish(), flush=True)
    topics.close()
