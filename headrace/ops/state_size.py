"""How many ids Spark remembers for duplicates, and how many it was a day ago."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

DAY, KEPT = 24, 26  # hours
BY_HOUR = "state_by_hour"  # in a report's progress: the rows at the first look of each hour, by its number


def rows_in_state(fates: Mapping[str, int], progress: Mapping[str, Any]) -> int | None:
    """Ids that came in, less those that were removed again."""
    if "removed" not in progress:
        return None
    added = fates.get("received", 0) - fates.get("duplicate", 0)
    return max(0, added - int(progress["removed"]))


def by_hour(known: Mapping[str, int], rows: int | None, at: datetime) -> dict[str, int]:
    """What is known, with this hour; the oldest hours are forgotten."""
    if rows is None:
        return dict(known)
    hour = _hour(at)
    kept = {number: known[number] for number in known if int(number) > hour - KEPT}
    kept.setdefault(str(hour), rows)
    return kept


def a_day_ago(progress: Mapping[str, Any], now: datetime) -> int | None:
    """None where nobody looked then."""
    known: Mapping[str, int] = progress.get(BY_HOUR, {})
    old = [int(number) for number in known if int(number) <= _hour(now) - DAY]
    return known[str(max(old))] if old else None


def _hour(at: datetime) -> int:
    return int(at.timestamp()) // 3600
