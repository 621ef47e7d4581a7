"""The recount on hand-made logs: what it lets pass, and what it does not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.contracts import load_contracts
from headrace.contracts.model import Contract
from headrace.fates import ACCEPTED, LATE, REJECTED
from headrace.log.scan import LogRecord, Range, TopicReader
from headrace.ops.audit_report import Fates, shown_ranges
from headrace.ops.claims import Claims
from headrace.ops.recount import Recount
from headrace.ops.recount_rules import examine, python_rules
from headrace.testing.fuzz import fuzz_records
from tests.oracle import gate_oracle as oracle

CONTRACTS = load_contracts(Path(__file__).parents[2] / "apps" / "turanmart" / "contracts")
CONTRACT = CONTRACTS["clickstream"]
RAW = CONTRACT.topics.raw
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = 60_000


class Log:
    """A stand-in for the broker: topics as lists."""

    def __init__(self, topics: Mapping[str, list[LogRecord]]) -> None:
        self._topics = topics

    def records(self, topic: str, ranges: Mapping[int, Range]) -> Iterator[LogRecord]:
        for record in self._topics.get(topic, []):
            first, end = ranges.get(record.partition, (0, 0))
            if first <= record.offset < end:
                yield record

    def records_by_log_time(self, topic: str, ranges: Mapping[int, Range]) -> Iterator[LogRecord]:
        return iter(sorted(self.records(topic, ranges), key=lambda record: record.log_time))


def event(event_id: str = "a", at: datetime = NOON, **more: object) -> bytes:
    who = {"event_id": event_id, "event_time": at.isoformat(), "session_id": "s", "customer_id": "c"}
    what = {"event_type": "page_view", "region": "almaty", "device_type": "web"}
    return json.dumps({**who, **what, "schema_version": "1.0.0", "producer": "test", **more}).encode()


Line = tuple[int, bytes | None, float, int | None]  # partition, value, log minute, published fate


def recounted(
    lines: list[Line], *, publish: bool = True, contract: Contract = CONTRACT
) -> tuple[dict[str, list[tuple[int, int]]], Recount]:
    """Offenders as kind to coordinates."""
    raw: list[LogRecord] = []
    outputs: dict[str, list[LogRecord]] = {topic: [] for topic in CONTRACT.topics.outputs}
    for partition, value, minute, fate in lines:
        at = int(NOON.timestamp() * 1000 + minute * MINUTE)
        offset = sum(r.partition == partition for r in raw)
        raw.append(LogRecord(partition, offset, at, value, ()))
        if fate is not None:
            topic = outputs[CONTRACT.topics.outputs[fate]]
            source = ("headrace-source", f"{RAW}/{partition}/{offset}/{at}".encode())
            topic.append(LogRecord(partition, len(topic), at, value, [source]))
    ends = {p: sum(r.partition == p for r in raw) for p in {r.partition for r in raw}}
    ranges = {p: (0, end) for p, end in ends.items()}
    log = cast(TopicReader, Log({RAW: raw, **outputs}))
    claims = Claims(ranges, ends, ends, CONTRACT.topics)
    claims.read(log, {topic: dict.fromkeys(ends, (0, 1000)) for topic in outputs}, lambda: None)
    recount = Recount(contract, claims, {}, publish=publish)
    recount.read(log, {}, lambda: None)
    found: dict[str, list[tuple[int, int]]] = {}
    for finding in claims.offenders.findings():
        for first, last in finding.ranges:
            found.setdefault(finding.kind, []).extend((finding.partition, n) for n in range(first, last + 1))
    return found, recount


def test_every_fate_in_one_log() -> None:
    old = NOON - timedelta(minutes=11)
    lines: list[Line] = [
        (0, event("a"), 0, ACCEPTED),
        (0, event("b", old), 1, LATE),
        (0, event("a"), 2, None),
        (0, b"{", 3, REJECTED),
    ]
    found, recount = recounted(lines)
    assert found == {}
    assert recount.fates == {0: Fates(4, 1, 1, 1, 1)}


def test_a_record_without_an_output_and_without_an_original_is_lost() -> None:
    assert recounted([(0, event("a"), 0, ACCEPTED), (0, event("b"), 0, None)])[0] == {"lost": [(0, 1)]}
    assert recounted([(0, b"{", 0, None)])[0] == {"lost": [(0, 0)]}


def test_a_fate_that_the_contract_does_not_give_is_wrong() -> None:
    assert recounted([(0, event(), 0, REJECTED)])[0] == {"wrong_fate": [(0, 0)]}
    assert recounted([(0, b"[]", 0, ACCEPTED)])[0] == {"wrong_fate": [(0, 0)]}
    early: Line = (0, event("b", NOON - timedelta(minutes=11)), 1, ACCEPTED)
    assert recounted([(0, event("a"), 0, ACCEPTED), early])[0] == {"wrong_fate": [(0, 1)]}


def test_a_pattern_ends_where_the_text_ends() -> None:
    assert (
        recounted(
            [(0, event(product_id="p-1"), 0, ACCEPTED), (0, event("b", product_id="p-1\n"), 0, REJECTED)]
        )[0]
        == {}
    )


def test_in_a_partition_the_first_copy_is_kept() -> None:
    assert recounted([(0, event(), 0, None), (0, event(), 1, ACCEPTED)])[0] == {"wrong_fate": [(0, 0)]}


@pytest.mark.parametrize("fates", [(ACCEPTED, None), (None, ACCEPTED)])
def test_between_partitions_either_copy_may_be_kept(fates: tuple[int | None, int | None]) -> None:
    assert recounted([(0, event(), 0, fates[0]), (1, event(), 1, fates[1])])[0] == {}


def test_within_the_horizon_only_one_copy_may_be_kept() -> None:
    lines: list[Line] = [(0, event(), 0, ACCEPTED), (1, event(), 9, ACCEPTED)]
    assert recounted(lines)[0] == {"kept_twice": [(1, 0)]}


@pytest.mark.parametrize("second", [ACCEPTED, None])
@pytest.mark.parametrize("minutes", [61, 600])
def test_beyond_the_horizon_both_answers_are_right(second: int | None, minutes: int) -> None:
    between: Line = (0, event("b"), minutes - 1, ACCEPTED)
    assert recounted([(0, event(), 0, ACCEPTED), between, (0, event(), minutes, second)])[0] == {}


def test_a_source_that_does_not_publish_still_has_to_publish_the_others() -> None:
    lines: list[Line] = [(0, event("a"), 0, None), (0, event("a"), 1, None), (0, b"", 2, REJECTED)]
    found, recount = recounted(lines, publish=False)
    assert found == {}
    assert recount.fates == {0: Fates(3, 1, 1, 0, 1)}
    assert recounted([(0, b"", 2, None)], publish=False)[0] == {"lost": [(0, 0)]}


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff",
        b"null",
        b"[]",
        event() + b"{}",
        event().replace(b'"c"', b"NaN"),
        event(price=-0.01),
        event(price=1.001),
        event(quantity=1.0),
        event(product_id="p-"),
        event(region="mars"),
        event(event_id="\ud800"),
        event(event_time="2026-03-01"),
        event(event_time="2026-03-01T12:00:00+19:00"),
        event(event_time="2026-03-01T12:05:01Z"),
        event().replace(b'"a"', b"null"),
    ],
)
def test_records_that_break_the_contract(value: bytes | None) -> None:
    assert examine(CONTRACT, value, int(NOON.timestamp() * 1000)) is None


@pytest.mark.parametrize("more", [{}, {"price": 1.5}, {"unknown": [1]}, {"page": None}, {"quantity": 7}])
def test_records_that_keep_it(more: dict[str, Any]) -> None:
    sound = examine(CONTRACT, event(**more), int(NOON.timestamp() * 1000))
    assert sound is not None and sound.at == int(NOON.timestamp()) * 1_000_000


def test_a_hostile_number_is_refused_in_a_field_and_ignored_elsewhere() -> None:
    now = int(NOON.timestamp() * 1000)
    huge = event(price=7).replace(b"7", b"1e999")
    assert examine(CONTRACT, huge, now) is None
    assert examine(CONTRACT, event(other=7).replace(b"7", b"1e999"), now) is not None
    assert examine(CONTRACT, event(other=7).replace(b"7", b"1" * 1001), now) is None


def test_a_zone_has_less_than_sixty_minutes() -> None:
    now = int(NOON.timestamp() * 1000)
    assert examine(CONTRACT, event().replace(b"+00:00", b"+00:59"), now) is not None
    assert examine(CONTRACT, event().replace(b"+00:00", b"+00:60"), now) is None


def test_a_record_that_names_a_field_twice_may_be_rejected_for_either_value() -> None:
    twice = event("a").replace(b"{", b'{"event_id": 7, ', 1)
    sound = examine(CONTRACT, twice, int(NOON.timestamp() * 1000))
    assert sound is not None and sound.names_twice
    for fate in (ACCEPTED, REJECTED):
        assert recounted([(0, twice, 0, fate), (0, event("b"), 1, ACCEPTED)])[0] == {}
    once = event("a")
    assert recounted([(0, once, 0, REJECTED), (0, event("b"), 1, ACCEPTED)])[0] == {"wrong_fate": [(0, 0)]}


@pytest.mark.parametrize("stream", sorted(CONTRACTS))
def test_fuzzed_records_are_judged_as_the_oracle_judges_them(stream: str) -> None:
    contract = CONTRACTS[stream]
    rules, log_time = python_rules(contract), int(NOON.timestamp() * 1000)
    for value in fuzz_records(contract, count=2000, seed=11, now=NOON):
        _, reasons = oracle.examine(contract, value, NOON)
        assert (examine(rules, value, log_time) is None) == bool(reasons), (value, reasons)


def test_another_lateness_gives_another_fate() -> None:
    lines: list[Line] = [
        (0, event("a"), 0, ACCEPTED),
        (0, event("b", NOON - timedelta(minutes=1)), 1, ACCEPTED),
    ]
    assert recounted(lines)[0] == {}
    strict = replace(CONTRACT, lateness=timedelta(seconds=59))
    assert recounted(lines, contract=strict)[0] == {"wrong_fate": [(0, 1)]}


def test_offsets_are_shown_as_ranges() -> None:
    assert shown_ranges([5, 3, 4, 9, 9]) == ((3, 5), (9, 9))
    assert len(shown_ranges(range(0, 100, 2))) == 20


def test_the_recount_loads_neither_spark_nor_the_gate() -> None:
    ask = "import sys, headrace.ops.recount; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert "headrace.ops.recount" in answer.stdout.split()
    assert not [m for m in answer.stdout.split() if m.startswith(("pyspark", "headrace.gate"))]
