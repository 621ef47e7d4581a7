"""The topic of a real-time lane against table and raw topic, on hand-made logs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from headrace import App, table
from headrace.errors import ServiceError
from headrace.log.scan import LogRecord, Range, TopicReader
from headrace.ops.audit_report import LaneAudit
from headrace.ops.claims import Claims
from headrace.ops.pipeline_lanes import LaneNotes, lane_part
from headrace.ops.recount import Recount
from headrace.ops.recount_lanes import LaneRecount, Row
from headrace.signals import Signals
from tests.ops.test_recount import CONTRACT, NOON, RAW, event

FAST = App("shop").signals(
    "fast",
    of=CONTRACT.name,
    key="customer_id",
    features={"price_now": "price"},
    score="price_now",
    decision={"block": 1.0},
    topic="fast.v1",
    lane="realtime",
)
TOPIC = FAST.topic
OLD = NOON - timedelta(minutes=11)
# A duplicate, a rejected record and a late event among them; the table has the rows of a, c, d and e.
EVENTS = (event("a"), b"{", event("a"), event("b", OLD), event("c"), event("d"), event("e"))
ROWS = {"a": 0, "c": 4, "d": 5, "e": 6}
SENT = {"a": (0, 2), "b": (3,), "c": (4,), "d": (5,), "e": (6,)}
EVERYTHING = LaneNotes({0: len(EVENTS)}, {lane_part(FAST): {}})


class Log:
    """A stand-in for the broker; `cut` is how much of the lane's topic retention has removed."""

    def __init__(self, topics: Mapping[str, list[LogRecord]], cut: int = 0) -> None:
        self._topics, self._cut = topics, cut

    def ends(self, topic: str) -> dict[int, Range]:
        if topic not in self._topics:
            raise ServiceError(f"topic {topic} does not exist")
        return {0: (self._cut if topic == TOPIC else 0, len(self._topics[topic]))}

    def records(self, topic: str, ranges: Mapping[int, Range]) -> Iterator[LogRecord]:
        for record in self._topics.get(topic, []):
            first, end = ranges.get(record.partition, (0, 0))
            if first <= record.offset < end:
                yield record

    def records_by_log_time(self, topic: str, ranges: Mapping[int, Range]) -> Iterator[LogRecord]:
        return self.records(topic, ranges)


def logged(n: int) -> datetime:
    return NOON + timedelta(seconds=n)


def signal(event_id: str, offset: int, *, version: str = "1", **more: Any) -> dict[str, Any]:
    source = {"stream": CONTRACT.name, "partition": 0, "offset": offset}
    about = {"id": f"fast:{event_id}", "signals": "fast", "event_id": event_id, "source": source}
    return {**about, "version": version, **more}


def sent(**without: Any) -> list[dict[str, Any]]:
    """What a sound lane has sent, but for the events that are named."""
    return [signal(e, offset) for e, offsets in SENT.items() if e not in without for offset in offsets]


def audited(
    signals: list[Any],
    *,
    notes: LaneNotes = EVERYTHING,
    cut: int = 0,
    ranges: Range = (0, len(EVENTS)),
    mine: Signals = FAST,
) -> tuple[LaneAudit, list[str]]:
    raw = [LogRecord(0, n, _ms(logged(n)), value, ()) for n, value in enumerate(EVENTS)]
    topic = [
        LogRecord(
            0, n, _ms(logged(n)) + 9, value if isinstance(value, bytes) else json.dumps(value).encode(), ()
        )
        for n, value in enumerate(signals)
    ]
    reader = cast(TopicReader, Log({RAW: raw, TOPIC: topic}, cut))
    claims = Claims({0: ranges}, {0: len(raw)}, {0: len(raw)}, CONTRACT.topics)
    lane = LaneRecount(reader, claims, CONTRACT, [mine], notes)
    lane.read(lambda: None)
    Recount(CONTRACT, claims, {}, publish=False, on_event=lane.prove).read(reader, {}, lambda: None)
    rows = [
        Row(f"fast:{e}", 0, offset, logged(offset), logged(offset + 2), "1")
        for e, offset in ROWS.items()
        if ranges[0] <= offset < ranges[1]
    ]
    audit, findings = lane.audit("fast", rows)
    return audit, [str(finding) for finding in findings]


def _ms(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp() * 1000)


def test_every_row_is_in_the_topic_and_repeats_are_counted() -> None:
    """The duplicate has the id of the first; late events have signals and no row."""
    audit, leaks = audited(sent() + sent())
    assert leaks == []
    assert audit == LaneAudit("fast", TOPIC, 4, 4, 0, 0, records=12, repeated=7)


def test_a_row_whose_signal_is_absent_is_lost_and_named() -> None:
    audit, leaks = audited(sent(c=True))
    [said] = leaks
    assert (audit.in_topic, audit.unaccounted) == (3, 1)
    assert said == f"lost: {RAW}/0: 1 at 4: rows of fast whose signals are not in fast.v1: fast:c"


@pytest.mark.parametrize(
    "wrong",
    [
        signal("x", 4),  # another id than that of the event
        signal("rejected", 1),
        signal("nowhere", 999),
        signal("c", 4, source={"stream": "others", "partition": 0, "offset": 4}),
        signal("c", 4, source=None),
        signal("c", 4, id="c"),
    ],
)
def test_a_signal_of_no_sound_event_is_foreign(wrong: dict[str, Any]) -> None:
    audit, [said] = audited([*sent(), wrong])
    assert audit.unaccounted == 1
    assert said.startswith(f"foreign: {TOPIC}/0: 1 at 6: ") and said.endswith(wrong["id"])


def test_what_others_write_to_the_topic_is_left_alone() -> None:
    audit, leaks = audited(
        [*sent(), b"\xff", b"[" * 100_000, b"7", signal("c", 4, signals="slow", id="slow:c")]
    )
    assert (leaks, audit.records) == ([], 6)


def test_what_the_lane_has_not_noted_is_pending() -> None:
    few = [one for one in sent() if one["source"]["offset"] < 5]
    audit, leaks = audited(few, notes=EVERYTHING._replace(offsets={0: 5}))
    assert (leaks, audit.in_topic, audit.pending) == ([], 2, 2)
    audit, leaks = audited(few, notes=LaneNotes({}, {}))
    assert (leaks, audit.in_topic, audit.pending) == ([], 2, 2), "a lane that has never ended a batch"
    audit, leaks = audited(few, notes=EVERYTHING)
    assert audit.unaccounted == 2 and "at 5-6" in leaks[0]


def test_what_was_before_the_lane_is_not_judged() -> None:
    later = [one for one in sent() if one["source"]["offset"] > 4]
    begun = EVERYTHING._replace(begun={lane_part(FAST): {0: 5}})
    assert audited(later, notes=begun)[0].unjudged == 2
    assert audited(later, notes=begun)[1] == []
    other = replace(FAST, topic="fast.v2", publish="all")
    assert lane_part(other) != lane_part(FAST), "another topic begins anew"


def test_what_retention_may_have_removed_is_not_judged() -> None:
    """Records were sent 9 ms after their event was logged; the first two are gone."""
    audit, leaks = audited(sent(e=True), cut=2)
    assert (audit.in_topic, audit.unjudged) == (2, 1)
    assert leaks == [f"lost: {RAW}/0: 1 at 6: rows of fast whose signals are not in fast.v1: fast:e"]
    assert audited(sent(), cut=6)[0].unjudged == 4, "nothing is left"


def test_a_rule_that_has_changed_may_have_decided_otherwise() -> None:
    changed = signal("e", 6, version="2")
    audit, leaks = audited([*sent(d=True, e=True), changed])
    assert (leaks, audit.in_topic, audit.unjudged) == ([], 3, 1), "d is between two rules"
    audit, leaks = audited([*sent(c=True, e=True), changed])
    assert audit.unaccounted == 1 and leaks[0].endswith("fast:c"), "c is between two signals of its own rule"


def test_a_table_that_changed_between_the_two_may_have_decided_otherwise() -> None:
    with_table = replace(FAST, tables=(table("levels", key="customer_id", file="levels.csv"),))
    for seconds, mine, unjudged in (
        (5, with_table, 1),
        (17, with_table, 0),
        (-7, with_table, 0),
        (5, FAST, 0),
    ):
        notes = EVERYTHING._replace(changes=(logged(seconds).timestamp(),))
        audit, leaks = audited(sent(c=True), notes=notes, mine=mine)
        assert (audit.unjudged, len(leaks)) == (unjudged, 1 - unjudged), seconds


def test_a_range_looks_at_its_own_events() -> None:
    audit, leaks = audited(sent(), ranges=(4, 6))
    assert (leaks, audit.rows, audit.records) == ([], 2, 2)
    assert audited(sent(c=True), ranges=(0, 4))[1] == []
