"""What flows remember is as large as their horizons make it, however long they run."""

from __future__ import annotations

from benchmarks.soak import SHOWN, STATE, growth, soak
from headrace.local.services import Services
from tests.ops.books import own_database


def test_state_is_flat(services: Services) -> None:
    """Nothing that is remembered or shown grows between the second hour and the seventh."""
    url = own_database(services, "soak").store_url
    hours = [sizes for sizes, _ in soak(url, keys=5_000, hours=7, per_minute=60, minutes=5)]
    for name in (table for group in (STATE, SHOWN) for tables in group.values() for table in tables):
        rows, size = growth(hours, name)
        assert rows < 1.25, f"{name}: {[h[name].rows for h in hours]} rows"
        assert size < 1.25, f"{name}: {[h[name].size for h in hours]} bytes"
        if name != "outbox":
            assert hours[-1][name].rows > 0, f"{name} is not used"
    assert hours[-1]["outbox"].rows == 0
