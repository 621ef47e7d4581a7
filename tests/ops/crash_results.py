"""What the app that is killed must have come to: each table and topic against plain Python.

The oracles get the accepted events from the validated topics, in the batches of the ledger. They share no
code with the engine.
"""

from __future__ import annotations

from tests.ops.crash_flows import check_joins, check_patterns, check_signals
from tests.ops.crash_history import history_of
from tests.ops.crash_shop import STREAMS, Shop
from tests.ops.crash_views import (
    check_alerts,
    check_enriched,
    check_gate,
    check_metrics,
    check_running,
    check_sessions,
)


def check(shop: Shop) -> None:
    """Everything that was sent has come to what plain Python says, once."""
    for stream in STREAMS:
        check_gate(shop, stream)
    history = history_of(shop)
    check_metrics(shop, history)
    check_running(shop, history)
    check_alerts(shop, history)
    check_sessions(shop, history)
    check_joins(shop, history)
    check_patterns(shop, history)
    check_signals(shop, history)
    check_enriched(shop)
    accepted = {f"crash.{stream}": len(events) for stream, events in history.events.items()}
    for query, flow, side, count in shop.rows(
        "SELECT query, flow, side, sum(accepted)::bigint FROM headrace.flow_ledger GROUP BY 1, 2, 3"
    ):
        assert count == accepted[query], (flow, side)
