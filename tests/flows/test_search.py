"""The search for sequences against the oracle, event by event, without a store: many random trees, fast."""

from __future__ import annotations

import random

import pytest

from headrace.flows.automaton import Automaton
from headrace.flows.search import Moment, Search
from headrace.patterns import Pattern
from headrace.sequences import elements
from tests.flows.test_patterns_against_oracle import (
    LATENESS,
    least,
    only,
    sequence_pattern,
    stream_of,
    symbols_of,
    tree_of,
    us,
)
from tests.oracle.patterns_oracle import Happened, sequence_outcome, through_the_gate


def found(pattern: Pattern, log: list[Happened]) -> list[tuple[str, tuple[str, ...]]]:
    assert pattern.tree is not None
    bits = pattern.bits
    made_of = sum(bits[symbol] for symbol in elements(pattern.tree))
    search = Search(Automaton(pattern.tree, bits), made_of, us(pattern.within))
    matches: list[tuple[str, tuple[str, ...]]] = []
    timelines: dict[str, list[Moment]] = {}
    for event, _ in through_the_gate(log, us(LATENESS)):
        if event.symbols:
            mask = sum(bits[symbol] for symbol in event.symbols)
            moment = Moment(event.event_time, event.event_id, mask, False, event.partition, event.offset)
            for match in search.arrive(timelines.setdefault(event.key, []), [moment]):
                matches.append((event.key, tuple(part.event_id for part in match)))
    return matches


@pytest.mark.parametrize("block", range(4))
def test_random_trees(block: int) -> None:
    total = 0
    for seed in range(block * 40, block * 40 + 40):
        r = random.Random(f"trees {seed}")
        tree = tree_of(r)
        while not least(tree) or least(tree) > 6:
            tree = tree_of(r)
        pattern = sequence_pattern("seq", tree, r.choice(["30 seconds", "3 minutes"]), "0 seconds")
        log = only(stream_of(seed, 120, "ABCX", keys=3), symbols_of(tree, forbidden=True))
        made_of = symbols_of(tree, forbidden=False)
        wanted = sequence_outcome(tree, made_of, log, us(LATENESS), us(pattern.within), 0)
        assert sorted(found(pattern, log)) == sorted((r.key, r.events) for r in wanted.raised), pattern
        total += len(wanted.raised)
    assert total > 300


def test_a_long_row_of_one_key_is_no_trouble() -> None:
    """Each arrival that cannot end a match is one look; an end walks back over what it may use."""
    pattern = sequence_pattern(
        "seq", ("then", [("times", ("is", "A"), 3, None), ("is", "B")]), "1 day", "1 day"
    )
    log = [
        Happened(0, n, f"e{n:06d}", n * 1_000_000, n, "k", frozenset("B" if n == 19_999 else "A"))
        for n in range(20_000)
    ]
    [(_, events)] = found(pattern, log)
    assert len(events) == 20_000
