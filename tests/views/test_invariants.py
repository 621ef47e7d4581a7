"""What holds for every row, whatever comes in whatever batches: merged by the real store, without Spark."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headrace import sliding, tumbling
from headrace.local.services import Services
from tests.alerts.history import Cell, History, at

STATES = ("open", "preliminary", "corrected", "final")
WINDOWS = (tumbling("1 minute"), sliding("3 minutes", every="1 minute"))
MINUTES = 6
few_examples = settings(
    max_examples=15,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # making an example smaller would take minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
cells = st.builds(
    lambda minute, region, events, bad: Cell(at(minute), region, events, min(events, bad)),
    st.integers(0, MINUTES - 1),
    st.sampled_from(("almaty", "astana")),
    st.integers(1, 9),
    st.integers(0, 9),
)
Rows = dict[tuple[Any, ...], dict[str, Any]]


def rows_of(history: History) -> Rows:
    found = history.rows(f'SELECT * FROM "{history.name}".errors')
    return {(r["window_start"], r["grouping"], r["region"]): r for r in found}


def values_of(rows: Rows) -> dict[tuple[Any, ...], tuple[int, int]]:
    return {key: (row["n"], row["bad"]) for key, row in rows.items()}


def check_step(before: Rows, after: Rows) -> None:
    for key, was in before.items():
        now = after[key]
        assert STATES.index(now["state"]) >= STATES.index(was["state"]), (was, now)
        assert now["revision"] - was["revision"] in (0, 1)
        if was["state"] == "final":
            assert now == was
        elif was["state"] in ("preliminary", "corrected"):
            changed = (now["n"], now["bad"]) != (was["n"], was["bad"])
            assert now["revision"] == was["revision"] + changed


@few_examples
@given(
    st.sampled_from(WINDOWS),
    st.lists(st.tuples(st.lists(cells, max_size=4), st.integers(0, 90)), min_size=4, max_size=12),
)
def test_rows_go_forward_and_final_ones_stay(
    services: Services, window: Any, batches: list[tuple[list[Cell], int]]
) -> None:
    history = History(services.store_url, window, preliminary_after="20 seconds", final_after="1 minute")
    history.start()
    clock, before = at(0), rows_of(history)
    for given_cells, seconds in batches:
        # A pane all of whose windows may still change: what is older is late, and adds to no row.
        open_ones = [c for c in given_cells if c.pane + window.hop_us * 2 > clock]
        clock += seconds * 1_000_000
        history.feed(open_ones, clock)
        after = rows_of(history)
        check_step(before, after)
        before = after
    assert not before or all(row["revision"] > 0 for row in before.values() if row["state"] != "open")


@few_examples
@given(st.sampled_from(WINDOWS), st.lists(cells, min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_the_order_and_the_size_of_batches_change_no_value(
    services: Services, window: Any, given_cells: list[Cell], chance: random.Random
) -> None:
    at_once, in_parts = (History(services.store_url, window, final_after="10 minutes") for _ in range(2))
    for history in (at_once, in_parts):
        history.start()
    at_once.feed(given_cells, at(0))
    shuffled = chance.sample(given_cells, len(given_cells))
    while shuffled:
        size = chance.randint(1, 6)
        part, shuffled = shuffled[:size], shuffled[size:]
        in_parts.feed(part, at(0))
    assert values_of(rows_of(at_once)) == values_of(rows_of(in_parts))
    total = sum(cell.events for cell in given_cells)
    assert sum(
        n for (_, grouping, _), (n, _) in values_of(rows_of(at_once)).items() if grouping == "all"
    ) == (total * window.panes)
