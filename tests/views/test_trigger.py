"""Running windows with a trigger: readers see whole numbers now and then, and all of them in the end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headrace import running
from headrace.contracts import load_contract
from headrace.errors import AppError
from headrace.local.services import Services
from headrace.windows import Window
from tests.alerts.history import CONTRACT, MINUTE, SECOND, Cell, History, at

# 09:00–09:10, shown every minute, final 90 seconds after its end
TEN = running(reset="10 minutes", trigger="1 minute")
# seconds on the watermark, events that come; then what readers see: events, state, revision
STEPS = """
   10  1   1 open        1
   40  1   1 open        1
   59  1   1 open        1
   60  1   4 open        2
   61  1   4 open        2
  190  1   6 open        3
  300  0   6 open        3
  599  1   7 open        4
  600  1   8 preliminary 5
  605  1   8 preliminary 5
  659  1   8 preliminary 5
  661  0  10 corrected   6
  689  1  10 corrected   6
  690  0  11 final       7
  800  0  11 final       7
"""


def history_of(services: Services, window: Window = TEN, **more: str) -> History:
    history = History(services.store_url, window, **{"final_after": "90 seconds", **more})
    history.start()
    return history


def restarted(history: History, window: Window = TEN) -> History:
    """Another process over the same tables."""
    again = History(history.url, window, app=history.name, final_after="90 seconds")
    again._batches = history._batches
    again.start()
    return again


def total(history: History) -> dict[str, Any]:
    [row] = history.rows(
        f'SELECT * FROM "{history.name}".errors WHERE "grouping" = \'all\' ORDER BY window_start LIMIT 1'
    )
    return row


def test_readers_see_the_row_change_at_a_trigger_and_when_its_state_moves(services: Services) -> None:
    history = history_of(services)
    for line in STEPS.strip().splitlines():
        seconds, events, shown, state, revision = line.split()
        cells = [Cell(at(0), "almaty", int(events), 0)] if events != "0" else []
        history.feed(cells, at(0) + int(seconds) * SECOND)
        row = total(history)
        found = (row["events"], row["n"], row["state"], row["revision"])
        assert found == (int(shown), int(shown), state, int(revision)), line
    versions = history.rows(
        "SELECT revision, state, (\"values\" ->> 'n')::int AS n FROM headrace.revisions"
        " WHERE app = %(app)s AND \"grouping\" = 'all' ORDER BY at, state"
    )
    assert [(v["revision"], v["state"], v["n"]) for v in versions] == [
        (1, "open", 1),
        (2, "open", 4),
        (3, "open", 6),
        (4, "open", 7),
        (5, "preliminary", 8),
        (6, "corrected", 10),
        (7, "corrected", 11),
        (7, "final", 11),
    ]


def test_a_group_is_not_there_before_its_first_trigger(services: Services) -> None:
    history = history_of(services)
    history.feed([Cell(at(0), "almaty", 1, 0)], at(0.2))
    history.feed([Cell(at(0), "astana", 1, 0)], at(0.4))
    seen = f'SELECT region, n FROM "{history.name}".errors WHERE "grouping" = \'region\' ORDER BY region'
    assert history.rows(seen) == [{"region": "almaty", "n": 1}]
    history.feed([], at(1))
    assert history.rows(seen) == [{"region": "almaty", "n": 1}, {"region": "astana", "n": 1}]


def test_silence_shows_what_is_waiting(services: Services) -> None:
    history = history_of(services)
    history.feed([Cell(at(0), "almaty", 1, 0)], at(0.2))
    history.feed([Cell(at(0), "almaty", 5, 0)], at(0.4))
    assert (total(history)["n"], total(history)["revision"]) == (1, 1)
    [found] = history.rows(
        "SELECT active_at FROM headrace.watermarks WHERE query = %(query)s AND time = 'event'",
        query=history.query,
    )
    idle = load_contract(CONTRACT).idle_after
    history.accounts.tick(found["active_at"] + idle + timedelta(seconds=30))
    assert (total(history)["n"], total(history)["revision"]) == (1, 1), "no trigger has passed"
    history.accounts.tick(found["active_at"] + idle + timedelta(seconds=36))
    assert (total(history)["n"], total(history)["revision"]) == (6, 2)


def test_a_restart_loses_nothing_that_was_not_shown(services: Services) -> None:
    history = history_of(services)
    history.feed([Cell(at(0), "almaty", 1, 0)], at(0.2))
    history.feed([Cell(at(0), "almaty", 5, 0)], at(0.4))
    again = restarted(history)
    again.feed([], at(1))
    assert total(again)["n"] == 6


def test_a_trigger_may_come_and_change_but_not_go(services: Services) -> None:
    history = history_of(services, running(reset="10 minutes"))
    history.feed([Cell(at(0), "almaty", 2, 1)], at(0.2))
    with_trigger = restarted(history)
    with_trigger.feed([Cell(at(0), "almaty", 3, 0)], at(0.4))
    assert (total(history)["n"], total(history)["state"], total(history)["revision"]) == (2, "open", 0)
    with_trigger.feed([], at(1))
    assert (total(history)["n"], total(history)["revision"]) == (5, 1)
    faster = restarted(history, running(reset="10 minutes", trigger="10 seconds"))
    faster.feed([Cell(at(0), "almaty", 1, 0)], at(1) + 10 * SECOND)
    assert (total(history)["n"], total(history)["revision"]) == (6, 2)
    with pytest.raises(AppError, match="another meaning: trigger changed"):
        restarted(history, running(reset="10 minutes"))


def test_a_table_that_was_dropped_begins_anew(services: Services) -> None:
    history = history_of(services)
    history.feed([Cell(at(0), "almaty", 2, 1)], at(0.2))
    with psycopg.connect(services.store_url) as connection:
        connection.execute(f'DROP TABLE "{history.name}".errors')  # type: ignore[arg-type]
        connection.execute("DELETE FROM headrace.metrics WHERE app = %s", (history.name,))
    again = restarted(history)
    again.feed([Cell(at(0), "almaty", 1, 0)], at(1))
    assert total(again)["n"] == 1


cells = st.builds(
    lambda window, region, events: Cell(at(10 * window), region, events, 0),
    st.integers(0, 1),
    st.sampled_from(("almaty", "astana")),
    st.integers(1, 9),
)


@settings(
    max_examples=12,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.sampled_from(("0 seconds", "50 seconds")),
    st.lists(st.tuples(st.lists(cells, max_size=3), st.integers(0, 150)), min_size=6, max_size=20),
)
def test_shown_at_most_once_for_a_trigger_and_the_same_as_without_one(
    services: Services, preliminary_after: str, batches: list[tuple[list[Cell], int]]
) -> None:
    triggered, plain = (
        history_of(services, window, preliminary_after=preliminary_after)
        for window in (TEN, running(reset="10 minutes"))
    )
    before: dict[Any, dict[str, Any]] = {}
    clock = at(0)
    for given_cells, seconds in batches:
        # What is older than final_after is late, and adds to no row.
        in_time = [c for c in given_cells if c.pane + 10 * MINUTE + 90 * SECOND > clock]
        last, clock = clock, clock + seconds * SECOND
        for history in (triggered, plain):
            history.feed(in_time, clock)
        shown, counted = rows_of(triggered), rows_of(plain)
        for key, row in shown.items():
            was = before.get(key, {"n": None, "revision": 0, "state": "open"})
            changed = row["n"] != was["n"]
            assert row["revision"] == was["revision"] + changed
            if changed:
                assert row["n"] == counted[key]["n"] and row["state"] == counted[key]["state"]
                moved = row["state"] != was["state"] or was["n"] is None
                assert moved or last // MINUTE < clock // MINUTE
            if was["state"] == "final":
                assert row == was
        before = shown
    for history in (triggered, plain):
        history.feed([], at(60))
    assert {k: (r["n"], r["state"]) for k, r in rows_of(triggered).items()} == {
        k: (r["n"], r["state"]) for k, r in rows_of(plain).items()
    }


def rows_of(history: History) -> dict[tuple[Any, ...], dict[str, Any]]:
    found = history.rows(f'SELECT * FROM "{history.name}".errors')
    return {(r["window_start"], r["grouping"], r["region"]): r for r in found}
