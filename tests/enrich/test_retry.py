"""Unknown keys that are asked for again: against an oracle, in batches of any size, with lost engines."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.local.services import Services
from tests.enrich.waiting_stream import TOPIC, WaitingStream
from tests.oracle.enrich_oracle import Arrived, Decided, DimensionRow, Span, decisions, enriched

START = datetime(2026, 3, 1, 9, tzinfo=UTC)
DEAD = "clicks.enriched.unknown.v1"
COLUMNS = {"category": "kind", "list_price": "price"}


def row(r: random.Random, number: int) -> DimensionRow:
    since = START + timedelta(seconds=r.randrange(-300, 200))
    until = since + timedelta(seconds=r.randrange(20, 200)) if r.random() < 0.3 else None
    values = {"kind": r.choice(["kettle", "pan", "чайник"]), "price": number}
    return DimensionRow(f"p{number}", since, values, until)


def spans_of(r: random.Random, events: int, removing: bool = False) -> list[Span]:
    """The table starts empty and learns: also of versions that began, or ended, long ago."""
    places = sorted(r.sample(range(5, events), 6))
    offsets, rows, spans = Counter[int](), dict[tuple[str, datetime], DimensionRow](), []
    arrivals: list[Arrived] = []
    for n in range(events):
        if n in places:
            spans.append(Span(list(rows.values()), arrivals))
            arrivals = []
            for _ in range(r.randrange(1, 5)):
                new = row(r, r.randrange(12))
                rows[new.key, new.valid_from] = new
            if removing and rows and r.random() < 0.5:
                del rows[r.choice(list(rows))]
        partition = n if n < 3 else r.randrange(3)
        log_time = START + timedelta(seconds=n + r.random() if n >= 3 else 0)
        at = log_time - timedelta(seconds=r.choice([0, 1, 30, 200]))
        fields = {"event_id": f"e{n}", "event_time": at.isoformat(), "amount": 498000.00}
        if r.random() < 0.9:
            fields["product_id"] = f"p{r.randrange(15)}"
        if r.random() < 0.1:
            fields["category"] = "its own"
        value = json.dumps(fields, ensure_ascii=False).encode() + r.choice([b"", b" \n"])
        arrivals.append(Arrived(value, partition, offsets[partition], log_time))
        offsets[partition] += 1
    return [*spans, Span(list(rows.values()), arrivals)]


def batched(events: Sequence[Arrived], size: int) -> list[Sequence[Arrived]]:
    return [events[n : n + size] for n in range(0, len(events), size)]


def check(stream: WaitingStream, spans: Sequence[Span], wanted: dict[tuple[int, int], Decided]) -> None:
    """Each event is in its topic once, as the oracle says, or waits."""
    arrived = {(a.partition, a.offset): a for span in spans for a in span.arrivals}
    sent = {(s.partition, int((s.source or b"").split(b"/")[2])): s for s in [*stream.direct, *stream.late()]}
    assert len(stream.direct) + len(stream.late()) == len(sent)
    assert sent.keys() == wanted.keys()
    for place, record in sent.items():
        event = arrived[place].event
        unknown = wanted[place].outcome == "unknown"
        names = [name for name, _ in record.headers if name != "trace"]
        about = ["headrace-source", "headrace-contract", "headrace-clock"]
        assert (record.key is None, ("trace", b"\x00\xff") in record.headers) == (
            *(place[1] % 5 == 0, place[1] % 3 == 0),
        )
        if unknown and stream.enrich.ends_dead:
            assert (record.topic, record.value) == (DEAD, event)
            assert names == [*about[:2], "headrace-reasons", about[2]]
            continue
        expected = enriched(
            event, wanted[place].rows, table="products", on="product_id", columns=COLUMNS, time="event_time"
        )
        assert (record.topic, json.loads(record.value), names) == (TOPIC, expected, about)
    outcomes = Counter(decided.outcome for decided in wanted.values())
    if stream.enrich.ends_dead:
        outcomes["dead_lettered"] = outcomes.pop("unknown", 0)
    counted = stream.counts()
    assert {name: count for name, count in counted.items() if count} == {
        **{name: count for name, count in outcomes.items() if count},
        **({"pending": len(arrived) - len(wanted)} if len(arrived) > len(wanted) else {}),
    }
    stream.check_accounts()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_event_waits_for_its_key_as_the_oracle_says(
    services: Services, tmp_path: Path, seed: int, size: int
) -> None:
    r = random.Random(seed)
    spans = spans_of(r, 150)
    horizon = timedelta(seconds=r.choice([30, 60, 200]))
    then = ["keep", "dead_letter"][seed % 2]
    seconds = int(horizon.total_seconds())
    stream = WaitingStream(services.store_url, tmp_path, retry_for=f"{seconds} s", then=then)
    for span in spans:
        stream.write(span.rows)
        for n, batch in enumerate(batched(span.arrivals, size)):
            stream.feed(batch, lost_after=n % 3 if size > 1 and n % 2 else None)
        stream.tick()
    given = {"horizon": horizon, "on": "product_id", "time": "event_time"}
    check(stream, spans, decisions(spans, **given, silence_after=False))
    stream.tick(timedelta(hours=2))
    wanted = decisions(spans, **given, silence_after=True)
    check(stream, spans, wanted)
    outcomes = {decided.outcome for decided in wanted.values()}
    assert outcomes == {"found", "no_key", "unknown", "retried"}


@pytest.mark.parametrize("seed", range(8))
def test_an_engine_that_is_lost_while_the_table_changes_loses_and_doubles_nothing(
    services: Services, tmp_path: Path, seed: int
) -> None:
    """The last batch of each span is published in part, the table changes, and the batch runs again."""
    r = random.Random(seed)
    spans = spans_of(r, 120, removing=True)
    stream = WaitingStream(services.store_url, tmp_path, retry_for="1 hour")
    for span, following in zip(spans, [*spans[1:], None], strict=True):
        batches = batched(span.arrivals, 9)
        for n, batch in enumerate(batches):
            if following is None or n < len(batches) - 1:
                stream.feed(batch)
            else:
                stream.feed(batch, r.randrange(4), lambda rows=following.rows: stream.write(rows))  # type: ignore[misc]
    given = {"horizon": timedelta(hours=1), "on": "product_id", "time": "event_time"}
    check(stream, spans, decisions(spans, **given, silence_after=False))
    stream.tick(timedelta(hours=3))
    check(stream, spans, decisions(spans, **given, silence_after=True))


def arrived(*products: str, first: int = 0) -> list[Arrived]:
    at = START + timedelta(seconds=first)
    return [
        Arrived(
            json.dumps({"event_id": f"e{n}", "event_time": at.isoformat(), "product_id": product}).encode(),
            *(0, n, at),
        )
        for n, product in enumerate(products, first)
    ]


def test_no_more_wait_than_there_is_room_for(services: Services, tmp_path: Path) -> None:
    stream = WaitingStream(services.store_url, tmp_path, waiting_limit=3, then="dead_letter")
    stream.feed(arrived("p1", "p1", "p2", "p3", "p1"))
    assert (stream.counts()["pending"], stream.counts()["dead_lettered"]) == (3, 2)
    assert (stream.direct, [s.topic for s in stream.late()]) == ([], [DEAD, DEAD])
    stream.feed(arrived("p1", "p9", first=5))  # full: the gate itself sends them to the dead letters
    assert [s.topic for s in stream.direct] == [DEAD, DEAD]
    assert {name for s in (stream.direct[0], stream.late()[0]) for name, _ in s.headers} == {
        *("trace", "headrace-source", "headrace-contract", "headrace-reasons", "headrace-clock"),
    }
    stream.write([DimensionRow("p1", START, {"kind": "kettle", "price": 1})])
    assert stream.tick()
    assert stream.counts() == {
        **dict.fromkeys(("found", "no_key", "unknown"), 0),
        "dead_lettered": 4,
        "retried": 2,
        "pending": 1,
    }
    stream.feed(arrived("p8", "p8", "p8", first=7))  # room for two again
    assert (stream.counts()["pending"], stream.counts()["dead_lettered"]) == (3, 5)
    stream.check_accounts()


def test_what_has_waited_is_what_the_gate_would_have_sent(services: Services, tmp_path: Path) -> None:
    known = [DimensionRow("p1", START, {"kind": 'a "kettle"', "price": 12}), *map(_pan, range(3))]
    events = arrived("p1", "pan-0", "p1", "pan-1", "p1", "pan-2")
    waits = WaitingStream(services.store_url, tmp_path)
    waits.feed(events)
    assert waits.direct == []
    waits.write(known)
    waits.tick()
    direct = WaitingStream(services.store_url, tmp_path)
    direct.write(known)
    direct.feed(events)
    assert direct.late() == []
    assert waits.late() == direct.direct


def _pan(n: int) -> DimensionRow:
    return DimensionRow(f"pan-{n}", START - timedelta(days=n), {"kind": "pan", "price": n})


def test_a_transaction_that_is_rolled_back_looks_again(services: Services, tmp_path: Path) -> None:
    stream = WaitingStream(services.store_url, tmp_path)
    stream.feed(arrived("p1", "p2"))
    stream.write([_pan(0), DimensionRow("p1", START, {"kind": "kettle", "price": 1})])
    [fold] = stream.accounts.folds.values()

    def lost(connection: object) -> None:
        assert fold.refresh(connection)  # type: ignore[attr-defined]
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        stream.store.transact(lost)
    assert stream.counts()["pending"] == 2
    assert stream.tick()
    assert not stream.tick()
    assert (stream.counts()["pending"], stream.counts()["retried"], len(stream.late())) == (1, 1, 1)


def test_events_do_not_wait_any_more_when_that_is_no_longer_declared(
    services: Services, tmp_path: Path
) -> None:
    stream = WaitingStream(services.store_url, tmp_path)
    stream.feed(arrived("p1", "p2"))
    before, events = stream.enrich, arrived("p3", "p4", first=2)
    stream.enrich = stream.declared(unknown="dead_letter")
    stream.start()
    assert stream.counts()["dead_lettered"] == 2
    stream.enrich = before
    stream.start()

    def change() -> None:
        stream.enrich = stream.declared(unknown="dead_letter")

    stream.feed(events, lost_after=1, meanwhile=change)  # the first attempt let them wait
    assert (stream.counts()["dead_lettered"], stream.counts()["pending"]) == (4, 0)
    assert [s.topic for s in stream.late()] == [DEAD] * 4

    def change_back() -> None:
        stream.enrich = before

    stream.start()
    stream.feed(arrived("p5", first=4), lost_after=1, meanwhile=change_back)  # the first attempt did not
    assert (stream.counts()["dead_lettered"], stream.counts()["pending"]) == (5, 0)
    assert len(stream.direct) == 1
    stream.check_accounts()
