"""The limits by which the dashboard judges are those of the shipped alert rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.ops.alert_rules import alert_rules
from headrace.ops.limits import limits_of
from headrace.ops.load import load_app
from headrace.ops.state_size import BY_HOUR, KEPT, a_day_ago, by_hour, rows_in_state

TURANMART = load_app(Path(__file__).parents[2] / "apps" / "turanmart")
PER_SOURCE = {
    "HeadraceGrowingLag": "freshness_seconds",
    "HeadraceStaleMetric": "freshness_seconds",
    "HeadraceSlow": "latency_seconds",
    "HeadraceDeadLetters": "rejected_ratio",
    "HeadraceStalledWatermark": "watermark_seconds",
}
FOR_ALL = {
    "HeadraceLateRecords": "late_ratio",
    "HeadraceLateForMetric": "late_for_metric_ratio",
    "HeadraceDuplicates": "duplicate_ratio",
    "HeadraceFailingCheckpoint": "checkpoint_seconds",
    "HeadraceGrowingState": "state_bytes",
    "HeadraceUnknownKeys": "unknown_keys_ratio",
}


def test_every_rule_has_the_limit_of_the_dashboard() -> None:
    rules = alert_rules(TURANMART)
    for source, contract in TURANMART.contracts.items():
        limits = limits_of(contract).as_object()
        judged = {
            rule.name: rule.expr.rpartition("> ")[2]
            for rule in rules
            if rule.labels.get("source") in (source, None)
        }
        for name, limit in (PER_SOURCE | FOR_ALL).items():
            if name in judged:
                assert float(judged[name]) == limits[limit], name
        assert FOR_ALL.keys() <= judged.keys()
    assert {name for name in PER_SOURCE if any(rule.name == name for rule in rules)} == PER_SOURCE.keys()


def test_a_contract_without_promises_has_limits_too() -> None:
    contract = replace(
        next(iter(TURANMART.contracts.values())), freshness=None, latency=None, error_rate=None
    )
    limits = limits_of(contract)
    assert (limits.freshness_seconds, limits.latency_seconds, limits.rejected_ratio) == (120, 30, 0.05)


def test_the_size_of_the_state_a_day_ago_is_remembered() -> None:
    now = datetime(2026, 5, 2, 12, 30, tzinfo=UTC)
    known: dict[str, int] = {}
    for minutes in range(60 * 40, -1, -20):
        known = by_hour(known, 10_000 - minutes, now - timedelta(minutes=minutes))
    assert len(known) == KEPT, "older hours are forgotten"
    assert a_day_ago({BY_HOUR: known}, now) == 10_000 - (24 * 60 + 20), "the first look of that hour"
    assert a_day_ago({BY_HOUR: by_hour({}, 5, now)}, now) is None, "nobody looked then"
    assert by_hour(known, None, now + timedelta(hours=1)) == known


def test_the_state_has_what_came_in_and_was_not_removed() -> None:
    assert rows_in_state({"received": 100, "duplicate": 10}, {"removed": 30}) == 60
    assert rows_in_state({"received": 100}, {}) is None
