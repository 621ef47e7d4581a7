"""A process that publishes what waits in the outbox of flows, and may be killed at a named step."""

from __future__ import annotations

import sys

from headrace.ops.outbox_topics import OutboxTopics
from headrace.store.connection import Store
from headrace.store.outbox import FlowOutbox

if __name__ == "__main__":
    store_url, bootstrap, lane = sys.argv[1:]
    options = {"bootstrap.servers": bootstrap, "log_level": "2"}
    topics = OutboxTopics("flows", FlowOutbox(), Store(store_url), [lane], options)
    print(topics.publish(), flush=True)
    topics.close()
