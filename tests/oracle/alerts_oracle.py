"""Alerts by the book, in plain Python: from the rows of a metric to the alerts that there must be."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

Counts = tuple[int, int]  # events, bad ones
Rows = Mapping[tuple[str, int], Counts]  # by group and start of the window


@dataclass(frozen=True)
class Rule:
    app: str
    alert: str
    windows: int
    size: int
    hop: int
    after: int  # a window counts when the watermark is so far behind its end


@dataclass(frozen=True)
class Expected:
    id: str
    region: str
    first: int  # start of the first window
    last: int  # end of the last one
    state: str


def satisfied(counts: Counts) -> bool:
    events, bad = counts
    return events >= 4 and bad / events > 0.5


def alerts_of(rule: Rule, rows: Rows, watermark: int) -> list[Expected]:
    """Every longest run of satisfied windows, window by window, for each group."""
    found = []
    for region in sorted({region for region, _ in rows}):
        starts = [start for group, start in rows if group == region]
        run: list[int] = []
        for start in range(min(starts), max(starts) + 2 * rule.hop, rule.hop):
            if start + rule.size + rule.after > watermark:
                break
            if satisfied(rows.get((region, start), (0, 0))):
                run.append(start)
                continue
            found += _alert(rule, region, run, "resolved")
            run = []
        found += _alert(rule, region, run, "open")
    return sorted(found, key=lambda alert: (alert.first, alert.id))


def events_of(rule: Rule, alert: Expected) -> list[tuple[int, str, int]]:
    """What happened to an alert on final windows: seq, kind, end of the last window by then."""
    opens = alert.first + rule.size + (rule.windows - 1) * rule.hop
    ends = range(opens, alert.last + 1, rule.hop)
    told = [("opened" if n == 0 else "updated", end) for n, end in enumerate(ends)]
    if alert.state == "resolved":
        told.append(("resolved", alert.last))
    return [(n, kind, end) for n, (kind, end) in enumerate(told, 1)]


def _alert(rule: Rule, region: str, run: list[int], state: str) -> list[Expected]:
    if len(run) < rule.windows:
        return []
    begin = datetime.fromtimestamp(run[0] // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    text = json.dumps([rule.app, rule.alert, "region", region, begin], ensure_ascii=False)
    id_ = hashlib.sha256(text.encode()).hexdigest()[:32]
    return [Expected(id_, region, run[0], run[-1] + rule.size, state)]
