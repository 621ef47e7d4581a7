"""Comparing two versions of a contract: what changed, whom it breaks, which version it asks for.

The gate reads with the new contract, so *backward* is the promise that must hold within one major version:
everything valid before stays valid. A change that only loosens a rule breaks no stored event; it is a minor
change that tells old readers what they may now meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from headrace.contracts.changes import Change, Comparison
from headrace.contracts.durations import format_duration
from headrace.contracts.field_changes import fields_changes
from headrace.contracts.model import Contract

__all__ = ["Change", "Comparison", "compare"]


def compare(old: Contract, new: Contract) -> Comparison:
    """Every difference that matters, the structural ones first."""
    changes = (
        *_identity_changes(old, new),
        *fields_changes(old.fields, new.fields),
        *_topic_changes(old, new),
        *_time_changes(old, new),
        *_promise_changes(old, new),
        *_people_changes(old, new),
    )
    return Comparison(old.version, new.version, changes)


def _identity_changes(old: Contract, new: Contract) -> Iterator[Change]:
    if old.name != new.name:
        why = "topics, tables and checkpoints carry the name: this is another stream"
        yield Change("name", f"{old.name} → {new.name}", why, "major", ("identity",))
    if old.event_id != new.event_id:
        why = "a repeat of an old event would no longer be recognised"
        yield Change("event id", f"{old.event_id} → {new.event_id}", why, "major", ("identity",))
    if old.event_time != new.event_time:
        why = "windows, lateness and clocks of stored events would mean something else"
        yield Change("event time", f"{old.event_time} → {new.event_time}", why, "major", ("identity",))
    if old.key != new.key:
        why = "events of one key would be spread over other partitions than before"
        yield Change("key", f"{old.key} → {new.key}", why, "major", ("key order",))


def _topic_changes(old: Contract, new: Contract) -> Iterator[Change]:
    if old.partitions != new.partitions:
        why = "keys move to other partitions: a key's old and new events are no longer in order"
        yield Change("partitions", f"{old.partitions} → {new.partitions}", why, "major", ("key order",))
    if new.compacted and not old.compacted:
        why = "the broker deletes all but the last event of a key: replays lose the rest"
        yield Change("compacted", "false → true", why, "major", ("history",))
    if old.compacted and not new.compacted:
        why = "old keys now expire with the retention"
        yield Change("compacted", "true → false", why, "minor")
    if old.retention != new.retention:
        longer = new.retention > old.retention
        why = "events stay longer" if longer else "events that a replay could still reach today are deleted"
        yield Change("retention", _step(old.retention, new.retention), why, "minor")


def _time_changes(old: Contract, new: Contract) -> Iterator[Change]:
    notes = (
        ("lateness", old.lateness, new.lateness, "other events than before are late"),
        ("maxFutureSkew", old.max_future_skew, new.max_future_skew, "other events are rejected as too early"),
        ("dedupeHorizon", old.dedupe_horizon, new.dedupe_horizon, "repeats are recognised for another time"),
        ("idleAfter", old.idle_after, new.idle_after, "silent partitions hold windows open for another time"),
    )
    for name, before, after, why in notes:
        if before != after:
            yield Change(name, _step(before, after), f"operational: {why}", "minor")


def _promise_changes(old: Contract, new: Contract) -> Iterator[Change]:
    promises = (
        ("freshness", _promised(old.freshness), _promised(new.freshness)),
        ("latency", _promised(old.latency), _promised(new.latency)),
        ("errorRate", _percent(old.error_rate), _percent(new.error_rate)),
    )
    for name, before, after in promises:
        if before != after:
            yield Change(name, f"{before} → {after}", "operational: alerts follow the new promise", "minor")


def _people_changes(old: Contract, new: Contract) -> Iterator[Change]:
    if old.status != new.status:
        ending = new.status in ("deprecated", "retired")
        why = "readers should look for a successor" if ending else "says how far the stream can be relied on"
        yield Change("status", f"{old.status} → {new.status}", why, "minor")
    for role in sorted(set(old.roles) - set(new.roles), key=str):
        why = "operational: whoever reads or writes by this role loses access"
        yield Change("roles", f"{role.name} ({role.access}) removed", why, "minor")
    for role in sorted(set(new.roles) - set(old.roles), key=str):
        yield Change(
            "roles", f"{role.name} ({role.access}) added", "operational: more people have access", "minor"
        )
    if old.owner != new.owner:
        yield Change("owner", f"{old.owner or 'nobody'} → {new.owner or 'nobody'}", "documentation", "patch")
    if old.description != new.description:
        yield Change("description", "reworded", "documentation", "patch")


def _promised(duration: timedelta | None) -> str:
    return "none" if duration is None else format_duration(duration)


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{share * 100:g} percent"


def _step(before: timedelta, after: timedelta) -> str:
    return f"{format_duration(before)} → {format_duration(after)}"
