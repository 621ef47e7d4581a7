"""Every kind of pattern on random streams, batch by batch, against an oracle in plain Python."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from headrace import App, Pattern
from tests.flows.pattern_stream import PatternStream
from tests.oracle.patterns_oracle import (
    Happened,
    Outcome,
    Tree,
    absence_outcome,
    alert_id,
    sequence_outcome,
    through_the_gate,
)

SECOND = 1_000_000
START = 1_772_355_600 * SECOND  # 2026-03-01 09:00
LATENESS = timedelta(minutes=3)
SIZES = (1, 7, 1000)


def us(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)


def stream_of(seed: int, count: int, symbols: str, keys: int = 5) -> list[Happened]:
    """Two partitions, a key in one of them; times repeat, jump back, sometimes too far for the gate."""
    r = random.Random(seed)
    offsets = {0: 0, 1: 0}
    log = []
    for n in range(count):
        now = START + n * 5 * SECOND
        key = r.randrange(keys)
        partition = n if n < 2 else key % 2  # both are awake from the beginning
        back = r.choice([0, 0, 0, 0, 1, 3, 10, 30, 60, 120, 170, 400]) * SECOND
        fulfilled = frozenset(s for s in symbols if r.random() < 0.7 / len(symbols) + 0.1)
        log.append(
            Happened(
                *(partition, offsets[partition], f"e{r.randrange(10**6):06d}-{n}", now - back, now),
                *(f"k{key}", fulfilled if n >= 2 else frozenset()),
            )
        )
        offsets[partition] += 1
    return log


def tree_of(r: random.Random, depth: int = 0) -> Tree:
    """A random sequence of A, B, C, with X forbidden here and there; it may match nothing at all."""
    kind = r.choice(["is", "then", "then", "or", "times"]) if depth < 3 else "is"
    match kind:
        case "is":
            return ("is", r.choice("ABC"))
        case "then":
            parts = [tree_of(r, depth + 1) for _ in range(r.randint(2, 3))]
            guarded = [parts[0]]
            for part in parts[1:]:
                forbid = least(part) > 0 and r.random() < 0.4
                guarded.append(("never", "X", part) if forbid else part)
            return ("then", guarded)
        case "or":
            return ("or", [tree_of(r, depth + 1) for _ in range(2)])
        case _:
            least_, most = r.choice([(0, 1), (0, None), (1, None), (2, 2), (1, 2), (2, None), (0, 2)])
            return ("times", tree_of(r, depth + 1), least_, most)


def least(tree: Tree) -> int:
    match tree:
        case ("is", _):
            return 1
        case ("then", parts):
            return sum(map(least, parts))
        case ("or", parts):
            return min(map(least, parts))
        case ("times", part, least_, _):
            return int(least_) * least(part)
        case _:
            return least(tree[2])


def written(tree: Tree) -> str:
    match tree:
        case ("is", symbol):
            return str(symbol)
        case ("then", parts):
            return " ".join(written(p) if p[0] != "or" else f"({written(p)})" for p in parts)
        case ("or", parts):
            return " | ".join(f"({written(p)})" for p in parts)
        case ("times", part, least_, most):
            shown = {(0, 1): "?", (0, None): "*", (1, None): "+", (2, 2): "{2}"}
            bounds = f"{{{least_},{'' if most is None else most}}}"
            return f"({written(part)}){shown.get((least_, most), bounds)}"
        case _:
            return f"!{tree[1]} ({written(tree[2])})"


def symbols_of(tree: Tree, *, forbidden: bool) -> frozenset[str]:
    match tree:
        case ("is", symbol):
            return frozenset([symbol])
        case ("then", parts) | ("or", parts):
            return frozenset().union(*(symbols_of(p, forbidden=forbidden) for p in parts))
        case ("times", part, _, _):
            return symbols_of(part, forbidden=forbidden)
        case _:
            more = frozenset([tree[1]]) if forbidden else frozenset()
            return more | symbols_of(tree[2], forbidden=forbidden)


def sequence_pattern(name: str, tree: Tree, within: str, quiet: str) -> Pattern:
    define = {symbol: f"kind = '{symbol}'" for symbol in sorted(symbols_of(tree, forbidden=True))}
    return App("oracle").pattern(
        name, of="sales", key="customer", sequence=written(tree), define=define, within=within, quiet=quiet
    )


def only(log: list[Happened], known: frozenset[str] | set[str]) -> list[Happened]:
    """The events as a pattern with these symbols sees them."""
    return [Happened(**{**vars(e), "symbols": e.symbols & known}) for e in log]


def same(stream: PatternStream, pattern: Pattern, log: list[Happened], wanted: Outcome) -> None:
    expected = {
        alert_id(stream.app, pattern.name, r): (
            *(r.key, r.events, r.matches),
            "open" if r.open else "resolved",
        )
        for r in wanted.raised
    }
    assert stream.alerts() == expected
    told = stream.told()
    assert len(set(told)) == len(told)
    assert {(id_, seq, kind) for id_, seq, kind in told} == {
        (id_, seq, kind)
        for id_, (*_, state) in expected.items()
        for seq, kind in [(1, "opened"), (2, "resolved")][: 1 if state == "open" else 2]
    }
    totals = stream.totals()
    taken = sum(1 for event, _ in through_the_gate(log, us(LATENESS)) if event.symbols)
    assert totals["taken"] == taken
    assert totals["late"] == len(wanted.late)
    assert taken == totals["remembered"] + totals["forgotten"] + totals["late"] + totals["again"]
    assert (totals["alerts"], totals["matches"]) == (
        len(wanted.raised),
        sum(r.matches for r in wanted.raised),
    )
    assert stream.query(
        "SELECT sum(accepted)::bigint, sum(taken)::bigint, sum(late)::bigint"
        " FROM headrace.flow_ledger WHERE query = %(app)s"
    ) == [(wanted.accepted, taken, len(wanted.late))]


def run(store_url: str, pattern: Pattern, log: list[Happened], size: int) -> PatternStream:
    stream = PatternStream(store_url, pattern, LATENESS)
    r = random.Random(size)
    for first in range(0, len(log), size):
        batch = log[first : first + size]
        r.shuffle(batch)
        stream.feed(batch, again=r.randrange(2))
    return stream


CARD_TESTING: Tree = ("then", [("times", ("is", "A"), 3, None), ("is", "B")])
FORBIDDEN: Tree = ("then", [("is", "A"), ("never", "X", ("is", "B"))])
TREES: list[Any] = [
    CARD_TESTING,
    FORBIDDEN,
    ("times", ("is", "A"), 3, None),
    ("or", [("then", [("is", "A"), ("is", "B")]), ("times", ("is", "C"), 2, 4)]),
    ("then", [("is", "A"), ("times", ("never", "X", ("is", "A")), 2, None), ("is", "C")]),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("number", range(len(TREES)))
@pytest.mark.parametrize("quiet", ["0 seconds", "4 minutes"])
def test_sequences(store_url: str, number: int, quiet: str, size: int) -> None:
    tree = TREES[number]
    pattern = sequence_pattern("seq", tree, "150 seconds", quiet)
    log = only(stream_of(number, 220, "ABCX", keys=3), symbols_of(tree, forbidden=True))
    wanted = sequence_outcome(
        tree, symbols_of(tree, forbidden=False), log, us(LATENESS), us(pattern.within), us(pattern.quiet)
    )
    assert len(wanted.raised) >= 3
    same(run(store_url, pattern, log, size), pattern, log, wanted)


@pytest.mark.parametrize("seed", range(30))
def test_random_sequences(store_url: str, seed: int) -> None:
    r = random.Random(f"trees {seed}")
    tree = tree_of(r)
    while not least(tree) or least(tree) > 6:
        tree = tree_of(r)
    pattern = sequence_pattern("seq", tree, r.choice(["30 seconds", "3 minutes"]), "1 minute")
    log = only(stream_of(seed, 150, "ABCX", keys=3), symbols_of(tree, forbidden=True))
    wanted = sequence_outcome(
        tree, symbols_of(tree, forbidden=False), log, us(LATENESS), us(pattern.within), us(pattern.quiet)
    )
    for size in (7, 1000):
        same(run(store_url, pattern, log, size), pattern, log, wanted)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("count", "quiet"), [(3, "1 minute"), (1, "0 seconds"), (4, "5 minutes")])
def test_velocities(store_url: str, count: int, quiet: str, size: int) -> None:
    pattern = App("oracle").pattern(
        *["many"],
        of="sales",
        key="customer",
        count=count,
        where="kind = 'x'",
        within="2 minutes",
        quiet=quiet,
    )
    log = only(stream_of(count, 220, "A"), {"A"})
    log = [Happened(**{**vars(e), "symbols": frozenset(["EACH"] if e.symbols else [])}) for e in log]
    tree: Tree = ("times", ("is", "EACH"), count, count)
    wanted = sequence_outcome(
        tree, frozenset(["EACH"]), log, us(LATENESS), us(pattern.within), us(pattern.quiet)
    )
    assert len(wanted.raised) >= 3
    same(run(store_url, pattern, log, size), pattern, log, wanted)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("final_after", "quiet"), [(None, "1 minute"), ("20 seconds", "0 seconds"), ("1 minute", None)]
)
def test_absences(store_url: str, final_after: str | None, quiet: str | None, size: int) -> None:
    pattern = App("oracle").pattern(
        "gone",
        of="sales",
        key="customer",
        starts="kind = 's'",
        without="kind = 'e'",
        within="40 seconds",
        final_after=final_after,
        quiet=quiet,
    )
    names = {"A": "START", "B": "END"}
    log = [
        Happened(**{**vars(e), "symbols": frozenset(names[s] for s in e.symbols)})
        for e in stream_of(11, 260, "AB")
    ]
    waits = us(LATENESS) if pattern.final_after is None else us(pattern.final_after)
    wanted = absence_outcome(log, us(LATENESS), us(pattern.within), waits, us(pattern.quiet))
    assert len(wanted.raised) >= 3
    assert bool(wanted.late) == (final_after is not None)
    stream = run(store_url, pattern, log, size)
    same(stream, pattern, log, wanted)
    late = stream.query("SELECT event_id FROM headrace.late_events WHERE app = %(app)s AND reason = 'late'")
    assert sorted(event_id for (event_id,) in late) == sorted(wanted.late)
