"""Patterns in the store: what an alert says, when it ends, what is forgotten, and what a new meaning does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from headrace import App, Pattern
from headrace.store.pattern_memory import CANDIDATES
from tests.flows.pattern_stream import PatternStream
from tests.oracle.patterns_oracle import Happened

SECOND = 1_000_000
START = 1_772_355_600 * SECOND  # 2026-03-01 09:00
LATENESS = timedelta(minutes=1)


def pattern(name: str = "tested", **words: Any) -> Pattern:
    given = {"of": "sales", "key": "customer", "within": "1 minute", "quiet": "5 minutes", **words}
    return App("fold").pattern(name, **given)


def tries(**words: Any) -> Pattern:
    define = {"F": "kind = 'f'", "H": "kind = 'h'"}
    return pattern(sequence="F{2,} H", define=define, **words)


def events(*lines: str, first: int = 0) -> list[Happened]:
    """`key symbols second`, and the partition if it is not 0."""
    offsets: dict[int, int] = {}
    found = []
    for number, line in enumerate(lines, first):
        key, symbols, second, *more = line.split()
        partition = int(more[0]) if more else 0
        offsets[partition] = offsets.get(partition, first - 1) + 1
        at = START + int(float(second) * SECOND)
        named = frozenset() if symbols == "-" else frozenset(symbols.split(","))
        found.append(
            Happened(partition, offsets[partition], f"e{number}", at, START + number * SECOND, key, named)
        )
    return found


def matched(stream: PatternStream) -> list[tuple[str, str, int, str]]:
    return sorted((key, " ".join(ids), n, state) for key, ids, n, state in stream.alerts().values())


def test_an_alert_tells_everything_once(store_url: str) -> None:
    message = "{customer}: {events} from {window_start}, {severity}"
    stream = PatternStream(store_url, tries(topic="told.v1", message=message, severity="critical"), LATENESS)
    stream.feed(events("k1 F 0", "k1 F 10", "k2 F 11", "k1 F 20"))
    assert stream.alerts() == {}
    stream.feed(events("k1 H 30", first=4), again=2)
    [(id_, payload, topic)] = stream.query(
        "SELECT id, payload, topic FROM headrace.alert_events WHERE app = %(app)s"
    )
    assert topic == "told.v1"
    assert {name: payload[name] for name in ("kind", "alert", "severity", "state", "seq", "event_id")} == {
        "kind": "opened",
        "alert": "tested",
        "severity": "critical",
        "state": "open",
        "seq": 1,
        "event_id": f"{id_}-1",
    }
    assert payload["dimensions"] == {"customer": "k1"}
    assert payload["message"] == "k1: 4 from 2026-03-01T09:00:00Z, critical"
    assert (payload["window_start"], payload["window_end"]) == (
        "2026-03-01T09:00:00Z",
        "2026-03-01T09:00:30Z",
    )
    values = payload["values"]
    assert (values["events"], values["matches"]) == (4, 1)
    assert [(e["event_id"], e["symbols"], e["partition"], e["offset"]) for e in values["matched"]] == [
        ("e0", ["F"], 0, 0),
        ("e1", ["F"], 0, 1),
        ("e3", ["F"], 0, 3),
        ("e4", ["H"], 0, 4),
    ]
    assert values["matched"][1]["event_time"] == "2026-03-01T09:00:10Z"
    assert stream.query("SELECT topic FROM headrace.alert_lanes WHERE query = %(app)s") == [("told.v1",)]


def test_a_quiet_time_is_counted_from_the_last_event(store_url: str) -> None:
    stream = PatternStream(store_url, pattern(count=2, quiet="1 minute"), LATENESS)
    stream.feed(events("k EACH 0", "k EACH 10", "k EACH 20", "k EACH 69", "k EACH 69.5", "k EACH 70"))
    # 20 and 69 are a match, in the quiet time of the first; 69.5 and 70 come when it is just over.
    assert matched(stream) == [("k", "e0 e1", 2, "resolved"), ("k", "e4 e5", 1, "open")]
    assert [kind for _, _, kind in stream.told()] == ["opened", "opened", "resolved"]
    [(payload,)] = stream.query(
        "SELECT payload FROM headrace.alert_events WHERE app = %(app)s AND kind = 'resolved'"
    )
    assert (payload["resolution"], payload["values"]["matches"], payload["seq"]) == ("recovered", 2, 2)


def test_silence_resolves(store_url: str) -> None:
    stream = PatternStream(store_url, pattern(count=2), LATENESS)
    stream.feed(events("k EACH 0", "k EACH 10"))
    assert matched(stream) == [("k", "e0 e1", 1, "open")]
    stream.silence(15 * 60 * SECOND)
    assert matched(stream) == [("k", "e0 e1", 1, "resolved")]


def test_silence_tells_what_did_not_happen(store_url: str) -> None:
    stream = PatternStream(
        store_url, pattern(starts="kind = 's'", without="kind = 'e'", final_after="10 seconds"), LATENESS
    )
    stream.feed(events("k START 0", "l START 0", "l END 59", "m START 0", "m END 61"))
    assert stream.alerts() == {}
    stream.silence(5 * 60 * SECOND + 30 * SECOND)
    assert matched(stream) == [("k", "e0", 1, "open"), ("m", "e3", 1, "open")]
    [(end,)] = stream.query(
        "SELECT DISTINCT window_end - window_start FROM headrace.alerts WHERE app = %(app)s"
    )
    assert end == timedelta(minutes=1)


def test_a_late_event_completes_an_older_match_and_takes_nothing_back(store_url: str) -> None:
    stream = PatternStream(store_url, tries(quiet="0 seconds"), LATENESS)
    stream.feed(events("k F 0", "k F 20", "k H 40", "k F 41", "k H 50"))
    assert matched(stream) == [("k", "e0 e1 e2", 1, "resolved")]
    # Between the events of the match it finds no partner; behind it, it does.
    stream.feed(events("k F 10", "k F 42", first=5))
    assert matched(stream) == [("k", "e0 e1 e2", 1, "resolved"), ("k", "e3 e6 e4", 1, "resolved")]


def test_a_partition_that_wakes_up_is_late_and_noted(store_url: str) -> None:
    stream = PatternStream(store_url, pattern(count=2), LATENESS)
    stream.feed(events("k EACH 0", "l EACH 300"))
    stream.feed(events("k EACH 10 1", "k EACH 239 1", "k EACH 240 1", first=2))
    totals = stream.totals()
    assert (totals["taken"], totals["late"], totals["remembered"] + totals["forgotten"]) == (5, 2, 3)
    found = stream.query(
        'SELECT event_id, partition, "offset", reason, late_by, clock FROM headrace.late_events'
        " WHERE app = %(app)s AND metric = 'tested' ORDER BY 1"
    )
    assert [(row[0], row[1], row[3], row[4].total_seconds()) for row in found] == [
        ("e2", 1, "idle_wake", 230.0),
        ("e3", 1, "idle_wake", 1.0),
    ]
    assert stream.query(
        "SELECT taken, late FROM headrace.flow_ledger WHERE query = %(app)s ORDER BY batch_id"
    ) == [(2, 0), (3, 2)]


def test_repeats_behind_the_horizon_of_the_gate_are_known(store_url: str) -> None:
    stream = PatternStream(store_url, pattern(count=2), LATENESS)
    stream.feed(events("k EACH 0"))
    [first] = events("k EACH 0")
    stream.feed([Happened(**{**vars(first), "offset": 1, "log_time": START + 9000 * SECOND})])
    assert stream.alerts() == {}
    totals = stream.totals()
    assert (totals["taken"], totals["again"], totals["remembered"]) == (2, 1, 1)


def test_memory_and_alerts_are_bounded(store_url: str) -> None:
    stream = PatternStream(store_url, pattern(count=3, quiet="1 minute"), LATENESS)
    sizes = []
    for minute in range(0, 120, 2):
        lines = [f"k{n % 7} EACH {minute * 60 + n * 4}" for n in range(30)]
        stream.feed(events(*lines, first=minute * 30))
        [(size,)] = stream.query(
            "SELECT (SELECT count(*) FROM headrace.pattern_events e WHERE e.pattern = p.id) +"
            " (SELECT count(*) FROM headrace.pattern_alerts a WHERE a.pattern = p.id)"
            " FROM headrace.patterns p WHERE app = %(app)s"
        )
        sizes.append(size)
    assert max(sizes) < 120
    assert stream.totals()["taken"] == 60 * 30


def test_a_new_pattern_beside_old_ones_reads_only_the_keys_it_asks_for(store_url: str) -> None:
    """Postgres has counted the old pattern, and believes that the new one has next to nothing."""
    old = PatternStream(store_url, pattern(count=3), LATENESS)
    old.feed(events(*[f"k{n} EACH {n}" for n in range(200)]))
    with psycopg.connect(store_url) as connection:
        connection.execute("ANALYZE headrace.pattern_events")
    new = PatternStream(store_url, pattern(count=3), LATENESS)
    new.feed(events(*[f"k{n} EACH {n}" for n in range(200)]))
    [(pattern_id,)] = new.query("SELECT id FROM headrace.patterns WHERE app = %(app)s")
    reach = {"keys": ["k1", "k2"], "oldest": 0, "newest": 2**62}
    asked = {"pattern": pattern_id, **reach, "elements": 1, "shortest": 1, "needed": 1}
    with psycopg.connect(store_url) as connection:
        connection.execute("SET enable_nestloop = off; SET enable_seqscan = off")
        plan = connection.execute(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {CANDIDATES}", asked).fetchall()
    text = "\n".join(line for (line,) in plan)
    assert "using pattern_events_pkey" in text, text
    assert "Rows Removed by Filter" not in text, text


def test_a_new_meaning_begins_anew(store_url: str) -> None:
    before = PatternStream(store_url, pattern(count=2, topic="a.v1"), LATENESS)
    before.feed(events("k EACH 0", "k EACH 5", "l EACH 10"))
    same = PatternStream(store_url, pattern(count=2, topic="b.v1", severity="info"), LATENESS, before.app)
    assert matched(same) == [("k", "e0 e1", 1, "open")]
    assert same.totals()["remembered"] == 3
    other = PatternStream(store_url, pattern(count=3), LATENESS, before.app)
    assert matched(other) == [("k", "e0 e1", 1, "resolved")]
    assert other.totals()["remembered"] == 0
    assert other.query("SELECT resolution FROM headrace.alerts WHERE app = %(app)s") == [("withdrawn",)]


def test_a_pattern_that_is_gone_is_forgotten(store_url: str) -> None:
    before = PatternStream(store_url, pattern("old", count=2), LATENESS)
    before.feed(events("k EACH 0", "k EACH 5"))
    after = PatternStream(store_url, pattern("new", count=2), LATENESS, before.app)
    assert after.query("SELECT pattern FROM headrace.patterns WHERE app = %(app)s") == [("new",)]
    assert after.query(
        "SELECT count(*) FROM headrace.pattern_events WHERE pattern NOT IN (SELECT id FROM headrace.patterns)"
    ) == [(0,)]
    assert [(state, kind) for *_, state in matched(after) for *_, kind in after.told()[-1:]] == [
        ("resolved", "resolved")
    ]


@pytest.mark.parametrize("key", ["a\x00b", "tab\tand\nline", "\\N", "ў", "'; --", '["x"]'])
def test_any_key_is_a_key(store_url: str, key: str) -> None:
    stream = PatternStream(store_url, pattern(count=2), LATENESS)
    first, second = events("k EACH 0", "k EACH 5")
    stream.feed([Happened(**{**vars(e), "key": key}) for e in (first, second)])
    assert [(k, n) for k, _, n, _ in stream.alerts().values()] == [(key.replace("\x00", "\ufffd"), 1)]


def test_keys_of_several_fields(store_url: str) -> None:
    several = pattern(count=2, key=["customer", "region"], show=["items"], message="{region} {items}")
    stream = PatternStream(store_url, several, LATENESS)
    values = [("1", "k", "almaty", "7"), ("1", "k", "tashkent", "8"), ("1", "k", "almaty", "9")]
    keys = [stream.rule.key_of(v) for v in values]
    assert keys[0] == keys[2] != keys[1]
    assert stream.rule.labels_of(keys[0]) == {"customer": "k", "region": "almaty"}
    assert json.loads(stream.rule.shown_of(values[2]) or "") == {"items": "9"}


def test_a_key_in_two_partitions_goes_by_the_log_time(store_url: str) -> None:
    stream = PatternStream(store_url, pattern(count=2), LATENESS)
    lines = ("k EACH 3 1", "k EACH 1 0", "k EACH 2 1")  # the log times are 0, 1 and 2
    stream.feed(list(_shuffled(events(*lines))))
    assert matched(stream) == [("k", "e1 e0", 1, "open")]


def _shuffled(given: list[Happened]) -> Iterable[Happened]:
    return reversed(given)
