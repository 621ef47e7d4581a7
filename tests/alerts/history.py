"""Metric rows as batches make them, without Spark: panes go straight to the real accounts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from headrace import Alert, App, Metric, count
from headrace.contracts import load_contract
from headrace.gate.ledger import Batch, Entry, Outcome
from headrace.measures import Measure
from headrace.store.alert_accounts import KEEP, AlertAccounts
from headrace.store.connection import Store
from headrace.store.metric_fold import MetricFold
from headrace.store.source_accounts import SourceAccounts
from headrace.views.alert_rule import make_rule
from headrace.views.batch import METRICS
from headrace.views.pane_rows import Panes
from headrace.views.resolve import ResolvedMetric
from headrace.windows import Window
from tests.views.pane_rows import Row, pane_rows

CONTRACT = Path(__file__).parents[1] / "views" / "sales.yaml"
SECOND = 1_000_000
MINUTE = 60 * SECOND
START = 1_772_355_600 * SECOND  # 2026-03-01 09:00
_numbers = itertools.count()


class Cell(NamedTuple):
    """Events of one pane and region: how many, and how many of them are bad."""

    pane: int  # microseconds
    region: str
    events: int
    bad: int


class History:
    """One app with one metric and its alerts on a real store; `feed` is one batch."""

    def __init__(
        self,
        store_url: str,
        window: Window,
        *,
        app: str = "",
        sums: Mapping[str, Measure] | None = None,
        **times: str,
    ) -> None:
        """`sums` are more measures, of decimals; each adds up to half more than the events that are bad."""
        self.name = app or f"alerts_{next(_numbers)}_{datetime.now(UTC):%H%M%S%f}"
        self.url = store_url
        self.app = App(self.name)
        self.metric: Metric = self.app.metric(
            "errors",
            of="sales",
            window=window,
            by=[[], ["region"]],
            measures={"n": count(), "bad": count("kind = 'bad'"), **(sums or {})},
            derived={"rate": "bad / n"},
            **times,  # type: ignore[arg-type]
        )
        self.query = f"{self.name}.sales"
        self.store = Store(store_url, wait_seconds=10.0)
        self._resolved = ResolvedMetric(self.metric, dict.fromkeys(sums or {}, "decimal(12,2)"), ("kind",))
        self._batches = itertools.count()

    def alert(self, name: str = "failing", **more: Any) -> Alert:
        given = {"on": "errors", "when": "rate > 0.5 AND n >= 4", "by": ["region"], **more}
        return self.app.alert(name, **given)

    def start(self, keep: timedelta = KEEP) -> None:
        self.store.prepare()
        rules = [make_rule(alert, self._resolved) for alert in self.app.alerts.values()]
        alerts = AlertAccounts(self.name, self.query, rules, keep)
        contract = load_contract(CONTRACT)
        fold = MetricFold(self.name, self.query, [self._resolved], alerts)
        self.accounts = SourceAccounts(self.store, self.query, contract, {METRICS: fold})
        self.accounts.prepare()

    def feed(self, cells: Iterable[Cell], clock: int) -> None:
        """One batch of one partition, whose clock it moves."""
        self.store.transact(lambda connection: self.work(connection, cells, clock))

    def work(self, connection: Any, cells: Iterable[Cell], clock: int) -> None:
        sums: dict[tuple[int, int, tuple[str, ...]], tuple[int, int]] = {}
        for cell in cells:
            for place in ((cell.pane, 0, ()), (cell.pane, 1, (cell.region,))):
                events, bad = sums.get(place, (0, 0))
                sums[place] = (events + cell.events, bad + cell.bad)
        panes = Panes(self._resolved, accepted=sum(n for (_, by, _), (n, _) in sums.items() if not by))
        rows: dict[int, list[Row]] = {}
        for (pane, grouping, labels), (events, bad) in sums.items():
            items = [str(events), str(events), str(bad), *[f"{bad}.50"] * (len(self.metric.measures) - 2)]
            rows.setdefault(grouping, []).append((pane, 0, labels, items))
        panes.rows += [pane_rows(grouping, mine) for grouping, mine in rows.items()]
        entry = Entry(0, 0, 0, 0, 0, 0, 0, 0, {}, clock, clock)
        batch = Batch(self.query, next(self._batches), datetime.now(UTC), Outcome((entry,), 0, 0))
        self.accounts.record(connection, batch, {METRICS: [panes]})

    def rows(self, text: str, **more: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, row_factory=psycopg.rows.dict_row) as connection:
            return connection.execute(text, {"app": self.name, **more}).fetchall()  # type: ignore[arg-type]

    def alerts(self) -> list[dict[str, Any]]:
        return self.rows("SELECT * FROM headrace.alerts WHERE app = %(app)s ORDER BY window_start, id")

    def events(self, alert: str = "failing") -> list[Mapping[str, Any]]:
        found = self.rows(
            "SELECT payload FROM headrace.alert_events WHERE app = %(app)s AND alert = %(alert)s"
            " ORDER BY position",
            alert=alert,
        )
        return [row["payload"] for row in found]

    def told(self, alert: str = "failing") -> list[tuple[str, str, int, int]]:
        """Kind, region and, in minutes after the start, the first window's start and the last one's end."""
        return [
            (
                *(event["kind"], event["dimensions"].get("region", "")),
                *(minute_of(event["window_start"]), minute_of(event["window_end"])),
            )
            for event in self.events(alert)
        ]


def minute_of(text: str) -> int:
    return (micros(datetime.fromisoformat(text)) - START) // MINUTE


def micros(time: datetime) -> int:
    return (time - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def at(minute: float) -> int:
    return START + int(minute * MINUTE)
