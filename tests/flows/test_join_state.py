"""What waits is as large as the interval makes it, however long the join runs."""

from __future__ import annotations

from benchmarks.joins import soak
from headrace.local.services import Services
from tests.ops.books import own_database


def test_state_is_flat(services: Services) -> None:
    url = own_database(services, "join_state").store_url
    states = [state for _, state, _ in soak(url, keys=5_000, hours=6, per_minute=60)]
    later = states[2:]
    assert max(s["left"] + s["right"] for s in later) < 1.3 * min(s["left"] + s["right"] for s in later)
    assert later[-1]["left"] + later[-1]["right"] < 3 * 60 * 100
    assert later[-1]["waiting_bytes"] < 2 * later[0]["waiting_bytes"]
