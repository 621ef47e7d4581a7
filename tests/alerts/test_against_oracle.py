"""Random histories of metric rows: after every batch, the alerts are those of the oracle."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import datetime
from typing import Any

import pytest

from headrace import sliding, tumbling
from headrace.windows import MICROSECOND, Window
from tests.alerts.history import MINUTE, SECOND, Cell, History, at, micros
from tests.oracle.alerts_oracle import Counts, Rule, alerts_of, events_of

REGIONS = ("tashkent", "алматы", "(none)", 'a "quoted\\ one')
PRELIMINARY, FINAL = 20 * SECOND, 3 * MINUTE
WINDOWS = {
    "tumbling": tumbling("1 minute"),
    "sliding": sliding("3 minutes", every="1 minute"),
}


class Run:
    """A history, and the rows as plain Python counts them."""

    def __init__(self, store_url: str, kind: str, windows: int, app: str = "") -> None:
        self.window: Window = WINDOWS[kind]
        self.history = History(
            store_url, self.window, app=app, preliminary_after="20 seconds", final_after="3 minutes"
        )
        self.rules = {}
        for state, after in (("preliminary", PRELIMINARY), ("final", FINAL)):
            self.history.alert(state, windows=windows, state=state)
            size, hop = self.window.size // MICROSECOND, self.window.hop_us
            self.rules[state] = Rule(self.history.name, state, windows, size, hop, after)
        self.history.start()
        self.rows: dict[tuple[str, int], Counts] = defaultdict(lambda: (0, 0))

    def feed(self, cells: list[Cell], clock: int) -> None:
        self.history.feed(cells, clock)
        for cell in cells:
            for k in range(self.window.panes):
                key = (cell.region, cell.pane - k * self.window.hop_us)
                events, bad = self.rows[key]
                self.rows[key] = (events + cell.events, bad + cell.bad)

    def check(self, watermark: int) -> None:
        recorded = self.history.alerts()
        for name, rule in self.rules.items():
            wanted = alerts_of(rule, self.rows, watermark)
            found = [row for row in recorded if row["alert"] == name and row["resolution"] != "retracted"]
            assert [_plain(row) for row in found] == [
                (w.id, w.region, w.first, w.last, w.state) for w in wanted
            ]
            for row in found:
                last = self.rows[(row["dimensions"]["region"], micros(row["window_end"]) - rule.size)]
                assert (row["values"]["n"], row["values"]["bad"]) == last

    def check_events(self, watermark: int) -> None:
        """On final windows, to the letter; on others, as a story that leads to the table."""
        wanted = [
            (alert.id, *event)
            for alert in alerts_of(self.rules["final"], self.rows, watermark)
            for event in events_of(self.rules["final"], alert)
        ]
        told = [(e["id"], e["seq"], e["kind"], _end(e)) for e in self.history.events("final")]
        assert sorted(told) == sorted(wanted)
        for row in self.history.alerts():
            story = [e for e in self.history.events(row["alert"]) if e["id"] == row["id"]]
            assert [e["seq"] for e in story] == list(range(1, row["seq"] + 1))
            before = "resolved"
            for event in story:
                changed = {("resolved", "open"): "opened", ("open", "resolved"): "resolved"}
                assert event["kind"] == changed.get((before, event["state"]), "updated")
                before = event["state"]
            last = story[-1]
            assert (last["state"], last["resolution"] or "") == (row["state"], row["resolution"])
            assert _end(last) == micros(row["window_end"])


def _plain(row: dict[str, Any]) -> tuple[str, str, int, int, str]:
    times = (micros(row["window_start"]), micros(row["window_end"]))
    return (row["id"], row["dimensions"]["region"], *times, row["state"])


def _end(event: Any) -> int:
    return micros(datetime.fromisoformat(event["window_end"]))


def random_batches(seed: int) -> list[tuple[list[Cell], int]]:
    """Cells of windows that are not final yet, and a clock that stands, walks or jumps."""
    r = random.Random(seed)
    clock, batches = at(0), []
    mood = dict.fromkeys(REGIONS, 0.5)
    for _ in range(30):
        cells = []
        for region in REGIONS:
            if r.random() < 0.2:
                mood[region] = r.choice([0.05, 0.5, 0.95, 0.95])
            for _ in range(r.choice([0, 2, 3, 5])):
                pane = (clock - r.randrange(FINAL)) // MINUTE * MINUTE
                events = r.randint(1, 12)
                cells.append(
                    Cell(pane, region, events, sum(r.random() < mood[region] for _ in range(events)))
                )
        # What this batch brings is for windows that were not final before it.
        cells = [c for c in cells if c.pane + MINUTE + FINAL > clock]
        clock += r.choice([0, 5, 20, 30, 30, 60, 60, 61, 61, 130, 1000]) * SECOND
        batches.append((cells, clock))
    return [*batches, ([], clock + 10 * MINUTE)]


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("seed", range(4))
def test_every_batch_leaves_the_alerts_of_the_oracle(store_url: str, kind: str, seed: int) -> None:
    run = Run(store_url, kind, windows=1 + seed % 3)
    for cells, clock in random_batches(seed):
        run.feed(cells, clock)
        run.check(clock)
    run.check_events(clock)
    assert len(run.history.alerts()) > 5


@pytest.mark.parametrize("seed", [7, 8])
def test_a_replay_in_other_batches_raises_nothing_twice(store_url: str, seed: int) -> None:
    """The metric is counted anew from the beginning, the memory of alerts stays."""
    batches = [*random_batches(seed)[:-1], _still_failing(seed)]
    run = Run(store_url, "tumbling", windows=2)
    for cells, clock in batches:
        run.feed(cells, clock)
    told, alerts = run.history.events("final"), run.history.alerts()
    forget_metric(run.history)
    again = Run(store_url, "tumbling", windows=2, app=run.history.name)
    assert len(told) > 5 and any(row["state"] == "open" for row in alerts if row["alert"] == "final")
    for n in range(0, len(batches), 3):
        group = batches[n : n + 3]
        again.feed([cell for cells, _ in group for cell in cells], group[-1][1])
    assert again.history.events("final") == told
    assert [r for r in again.history.alerts() if r["alert"] == "final"] == [
        r for r in alerts if r["alert"] == "final"
    ]


def _still_failing(seed: int) -> tuple[list[Cell], int]:
    """Two bad windows that are the newest final ones: their alert is open when the log is read again."""
    clock = random_batches(seed)[-2][1] // MINUTE * MINUTE
    panes = (clock + n * MINUTE for n in range(2))
    return [Cell(pane, REGIONS[0], 100, 100) for pane in panes], clock + 2 * MINUTE + FINAL


def forget_metric(history: History) -> None:
    """As docs/operations.md tells to start a source over, with the alerts kept."""

    def drop(connection: Any) -> None:
        connection.execute(f'DROP TABLE "{history.name}".errors')
        for table in ("metrics", "revisions"):
            connection.execute(f"DELETE FROM headrace.{table} WHERE app = %s", (history.name,))
        for table in ("watermarks", "metric_ledger"):
            connection.execute(f"DELETE FROM headrace.{table} WHERE query = %s", (history.query,))

    history.store.transact(drop)
