"""Every kind of join on random streams, in any batches, against an oracle in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from headrace import App
from headrace.joins import SIDES, Join
from headrace.local.services import Services
from tests.flows.two_streams import CONTRACTS, TwoStreams
from tests.oracle.joins_oracle import Batch, Event, JoinSpec, Outcome, SideSpec, outcome

SECOND = 1_000_000
START = 1_772_355_600 * SECOND  # 2026-03-01 09:00
WITHIN = 60 * SECOND
app = App("oracle")


def declared(name: str, kind: Any, order: Any, **more: Any) -> Join:
    given: dict[str, Any] = {
        "left": "orders",
        "right": "payments",
        "on": ("order_id", "order_ref"),
        "right_where": "kind = 'paid'",
        "check": {
            "amount_differs": "left.amount = right.amount",
            "items_differ": "left.items >= right.items",
        },
        "columns": {
            "amount": "left.amount",
            "paid_time": "right.event_time",
            "more": "right.amount - left.amount",
        },
        "left_unmatched": "no_payment",
        "right_unmatched": "no_order",
        "topic": "paid.v1",
        "dead_letters": "unpaid.v1",
        **more,
    }
    return app.join(name, within="60 seconds", kind=kind, order=order, **given)


JOINS = {
    (kind, order): declared(f"{kind}_{order}", kind, order)
    for kind in ("one_to_one", "one_to_many", "first_match")
    for order in ("log", "event_time")
}


def _check(left: Mapping[str, Any], right: Mapping[str, Any]) -> str | None:
    if None in (left["amount"], right["amount"]) or left["amount"] != right["amount"]:
        return "amount_differs"
    return None if left["items"] >= right["items"] else "items_differ"


def spec_of(join: Join) -> JoinSpec:
    def side(name: str, key: str, reason: str | None, where: Any = lambda _: True) -> SideSpec:
        contract = CONTRACTS[name]
        micros = [int(x.total_seconds() * SECOND) for x in (contract.lateness, contract.idle_after)]
        return SideSpec(name, lambda f: f[key], *micros, where, reason)

    return JoinSpec(
        side("orders", "order_id", "no_payment"),
        side("payments", "order_ref", "no_order", lambda f: f["kind"] == "paid"),
        WITHIN,
        join.kind,
        join.order or "log",
        _check,
    )


def stream_of(r: random.Random, source: str, count: int, *, aligned: bool) -> list[Event]:
    """Accepted events in order of arrival: the gate has turned away what is too old for its partition."""
    lateness = int(CONTRACTS[source].lateness.total_seconds())
    prefix, key_name = source[0], "order_id" if source == "orders" else "order_ref"
    offsets: Counter[int] = Counter()
    clocks: dict[int, int] = {}
    events = []
    while len(events) < count:
        n = len(events)
        now = START + (n * 9 + r.randrange(9)) * SECOND
        key = None if r.random() < 0.03 else f"o{max(0, n // 10 + r.randrange(-3, 3))}"
        partition = sum(map(ord, key or "")) % 2 if aligned else r.randrange(2)
        # Whole seconds make equal times and exact bounds likely.
        at = now - r.choice([0, 0, 0, 0, 5, 10, 30, 60, 61, 119]) * SECOND
        if n < 2:  # a partition counts from its first event on: both have one, of the same time
            key, partition, at, now = f"o{n}", 1 - n, START, START
        if at < clocks.get(partition, at) - lateness * SECOND:
            continue
        clocks[partition] = max(at, clocks.get(partition, at))
        fields = {
            key_name: key,
            "kind": r.choice(["paid", "paid", "paid", "failed"]),
            "amount": r.choice(
                [None, *[Decimal("10.00"), Decimal("10.00"), Decimal("10.0"), Decimal("9.99")] * 3]
            ),
            "items": r.choice([1, 2, 2]),
        }
        name = f"{prefix}{r.randrange(10**6):06d}-{n}"
        events.append(Event(partition, offsets[partition], name, at, now, fields))
        offsets[partition] += 1
    return events


def batches_of(r: random.Random, streams: Mapping[str, list[Event]], largest: int) -> Iterator[Batch]:
    """Each partition in its order, cut anywhere; the sources in any order, one often far ahead."""
    rest = {source: list(events) for source, events in streams.items()}
    favourite = "orders"
    while any(rest.values()):
        favourite = r.choice([favourite, favourite, *rest])
        source = favourite if rest[favourite] else next(s for s in rest if rest[s])
        size = r.randint(1, largest)
        batch, rest[source] = rest[source][:size], rest[source][size:]
        yield Batch(source, r.sample(batch, len(batch)))


def run(stream: TwoStreams, batches: list[Batch], **how: Any) -> None:
    for batch in batches:
        if batch.events:
            stream.feed(batch.source, batch.events, **how)
        else:
            stream.silence(batch.source, batch.silence)


def same(stream: TwoStreams, join: Join, wanted: Outcome) -> None:
    found = stream.matches(join)
    assert {(m["left_id"], m["right_id"]) for m in found} == wanted.matches
    assert len({m["id"] for m in found}) == len(found)
    letters = stream.letters(join)
    assert {(x["reason"], x["left_id"], x["right_id"]) for x in letters} == wanted.letters
    assert len(letters) == len(wanted.letters)
    published = stream.outbox("paid.v1")
    assert sorted(p["value"]["id"] for p in published) == sorted(m["id"] for m in found)
    unpaid = stream.outbox("unpaid.v1")
    assert sorted(p["value"]["id"] for p in unpaid) == sorted(x["id"] for x in letters)
    for side in SIDES:
        late = stream.rows(
            "SELECT event_id FROM headrace.flow_late WHERE app = %(app)s AND flow = %(flow)s"
            " AND side = %(side)s",
            flow=join.name,
            side=side,
        )
        assert {row["event_id"] for row in late} == wanted.late[side]
        [totals] = stream.rows(
            "SELECT taken, matched, unmatched, late, pending_in FROM headrace.flow_sides"
            " WHERE query = %(query)s AND flow = %(flow)s AND side = %(side)s",
            query=stream.query(join.stream(side)),
            flow=join.name,
            side=side,
        )
        waiting = stream.table(sql.Identifier(*totals.pop("pending_in")))
        pending = sum(not row["matched"] for row in waiting)
        assert {**totals, "pending": pending} == {
            "taken": wanted.taken[side],
            "matched": wanted.matched[side],
            "unmatched": wanted.unmatched[side],
            "late": len(wanted.late[side]),
            "pending": wanted.pending[side],
        }
        assert totals["taken"] == totals["matched"] + totals["unmatched"] + totals["late"] + pending


def where_of(join: Join) -> dict[str, Any]:
    return {f"{join.name}:right": lambda f: f["kind"] == "paid"}


@pytest.mark.parametrize("largest", [1, 7, 1000])
@pytest.mark.parametrize(("kind", "order"), list(JOINS))
def test_any_batches_give_what_the_oracle_says(
    spark: SparkSession, services: Services, kind: str, order: str, largest: int
) -> None:
    join, r = JOINS[kind, order], random.Random(f"{kind} {order}")
    streams = {s: stream_of(r, s, 150, aligned=order == "log") for s in CONTRACTS}
    batches = list(batches_of(random.Random(largest), streams, largest))
    stream = TwoStreams(spark, services.store_url, join, where=where_of(join))
    run(stream, batches)
    wanted = outcome(spec_of(join), batches)
    assert len(wanted.matches) > 10 and len(wanted.letters) > 10 and not any(wanted.late.values())
    same(stream, join, wanted)


@pytest.mark.parametrize(("kind", "order"), list(JOINS))
def test_the_whole_result_does_not_depend_on_batches(kind: str, order: str) -> None:
    """The oracle itself: at the end of both streams, whoever came first."""
    r = random.Random(5)
    streams = {s: stream_of(r, s, 150, aligned=order == "log") for s in CONTRACTS}
    found = [
        outcome(spec_of(JOINS[kind, order]), list(batches_of(random.Random(seed), streams, largest)))
        for seed, largest in ((1, 1), (2, 7), (3, 1000), (4, 30))
    ]
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize(("kind", "order"), [("one_to_one", "log"), ("first_match", "event_time")])
def test_a_side_that_sleeps_and_wakes_late(
    spark: SparkSession, services: Services, kind: str, order: str
) -> None:
    join, r = JOINS[kind, order], random.Random(11)
    streams = {s: stream_of(r, s, 120, aligned=order == "log") for s in CONTRACTS}
    batches = list(batches_of(r, {s: events[:60] for s, events in streams.items()}, 20))
    # Both stand still for an hour; then orders wakes up where it was, and payments an hour ahead.
    hour = 3600 * SECOND
    batches += [Batch("payments", silence=hour), Batch("orders", silence=hour)]
    ahead = [
        Event(e.partition, e.offset, e.event_id, e.event_time + hour, e.log_time + hour, e.fields)
        for e in streams["payments"][60:]
    ]
    batches += list(batches_of(r, {"orders": streams["orders"][60:], "payments": ahead}, 20))
    batches += [Batch("orders", silence=3 * hour), Batch("payments", silence=3 * hour)]
    stream = TwoStreams(spark, services.store_url, join, where=where_of(join))
    run(stream, batches)
    wanted = outcome(spec_of(join), batches)
    assert wanted.late["left"] and not any(wanted.pending.values())
    same(stream, join, wanted)
