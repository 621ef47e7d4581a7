"""Sample rows of TuranMart, written by the store's own code: ledger, clocks, watermarks, metrics, revisions.

`python -m tests.serve.seed --serve 8080` fills a database of its own and serves it until Ctrl-C, with a new
batch every second.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from datasketches import hll_sketch, kll_doubles_sketch, tgt_hll_type

from headrace.connections import Connections, query_name
from headrace.gate.ledger import Batch, Entry, Outcome
from headrace.measures import HLL_LG_K
from headrace.metrics import Metric
from headrace.ops.load import LoadedApp, load_app
from headrace.store.connection import Connection, Store
from headrace.store.ledger import Ledger
from headrace.store.metric_fold import MetricFold
from headrace.store.reports import Report, save_report
from headrace.store.session_fold import SessionFold
from headrace.store.source_accounts import SourceAccounts
from headrace.store.times import to_micros
from headrace.views.batch import METRICS
from headrace.views.pane_rows import Panes
from headrace.views.resolve import ResolvedMetric
from headrace.views.session_pieces import SESSIONS, Pieces, ResolvedSessions
from tests.views.pane_rows import Row, pane_rows

TURANMART = Path(__file__).parent.parent.parent / "apps" / "turanmart"
# What Spark would say about the expressions that are no plain counts.
TYPES = {"revenue": "decimal(24,2)", "pieces": "bigint", "visitors": "string", "latency_ms": "bigint"}
VISIT_TYPES = {
    "region": "string",
    "entry_page": "string",
    "exit_page": "string",
    "revenue": "decimal(24,2)",
}
LABELS = {
    "region": ("tashkent", "almaty", "bishkek", "samarkand", "astana"),
    "device_type": ("desktop", "mobile", "tablet"),
    "page": ("home", "catalogue", "cart"),
    "product_id": tuple(f"p-{n:03}" for n in range(12)),
    "customer_id": tuple(f"c-{n:04}" for n in range(20)),
}


class Seed:
    """One app's tables; `batch` records a micro-batch of every source, as the engine would."""

    def __init__(self, store_url: str, loaded: LoadedApp | None = None, seed: int = 7) -> None:
        self.loaded = loaded or load_app(TURANMART)
        self._random = random.Random(seed)
        store = self._store = Store(store_url)
        store.prepare()
        self._resolved = {
            stream: [
                ResolvedMetric(m, {n: TYPES.get(n, "bigint") for n in m.measures}, ())
                for m in self.loaded.metrics_of(stream)
            ]
            for stream in self.loaded.contracts
        }
        self._ledgers = {}
        for stream, contract in self.loaded.contracts.items():
            query = query_name(self.loaded.name, stream)
            fold = MetricFold(self.loaded.name, query, self._resolved[stream])
            accounts = SourceAccounts(store, query, contract, {METRICS: fold})
            accounts.prepare()
            self._ledgers[stream] = Ledger(store, query, timedelta(days=30), accounts)
        self._ids = dict.fromkeys(self.loaded.contracts, 0)
        self._offsets = {s: [0] * c.partitions for s, c in self.loaded.contracts.items()}

    def report(self) -> None:
        """As if an engine ran right now."""
        now = datetime.now(UTC)

        def write(connection: Connection) -> None:
            for stream in self.loaded.contracts:
                query, names = query_name(self.loaded.name, stream), self.loaded.metrics_of(stream)
                report = Report(query, now, now)
                save_report(connection, report, self.loaded.name, [metric.name for metric in names])

        self._store.transact(write)

    def fill(self, minutes: int, until: datetime, *, per_batch: int = 40) -> None:
        """A batch for each minute of event time, the last one at `until`."""
        for n in range(minutes, -1, -1):
            self.batch(until - timedelta(minutes=n), events=per_batch)

    def batch(
        self,
        at: datetime,
        *,
        events: int = 40,
        streams: tuple[str, ...] = (),
        late: int = 0,
        clock: Any = None,
    ) -> None:
        """Events of one moment; `late` of them missed a window of every metric that is long final."""
        for stream in streams or tuple(self.loaded.contracts):
            panes = [self._panes(r, at, events, late) for r in self._resolved[stream]]
            entries = tuple(self._entries(stream, clock or at, events))
            started = datetime.now(UTC) - timedelta(milliseconds=400)
            duplicates = sum(e.duplicate for e in entries)
            outcome = Outcome(entries, duplicates, 0)
            batch = Batch(query_name(self.loaded.name, stream), self._ids[stream], started, outcome)
            self._ids[stream] += 1
            self._ledgers[stream].record(batch, {METRICS: panes})

    def _entries(self, stream: str, at: datetime, events: int) -> Iterator[Entry]:
        for partition, first in enumerate(self._offsets[stream]):
            rejected, duplicate = 2, 1
            received = events + rejected + duplicate
            self._offsets[stream][partition] = first + received
            reasons = {"missing": 1, "wrong_type": 1}
            micros = to_micros(at)
            counts = (received, events, rejected, 0, duplicate)
            yield Entry(partition, first, first + received, *counts, reasons, micros, micros)

    def _panes(self, resolved: ResolvedMetric, at: datetime, events: int, late: int) -> Panes:
        metric, made = resolved.metric, Panes(resolved, accepted=events)
        pane = (to_micros(at) or 0) // metric.window.hop_us * metric.window.hop_us
        for number, grouping in enumerate(metric.groupings):
            groups = list(self._groups(grouping))
            rows: list[Row] = [(pane, 0, labels, self._items(resolved, events)) for labels in groups]
            if late:
                items = [str(late), *self._items(resolved, late)[1:]]
                rows.append((self._old(metric, pane), metric.window.panes, groups[0], items))
            made.rows.append(pane_rows(number, rows))
            for name, measure in metric.measures.items():
                if measure.kind == "top":
                    counted = [
                        (pane, 0, (*labels, product), [str(self._random.randint(1, 9))])
                        for labels in groups
                        for product in LABELS["product_id"]
                    ]
                    made.counts.setdefault(name, []).append(pane_rows(number, counted))
        if late:
            self._add_late(made, metric, pane, late)
        return made

    def _old(self, metric: Metric, pane: int) -> int:
        """The pane of a window that has been final for a minute."""
        return (pane - _span(metric)) // metric.window.hop_us * metric.window.hop_us

    def _add_late(self, made: Panes, metric: Metric, pane: int, late: int) -> None:
        old, missed = self._old(metric, pane), metric.window.panes
        for n in range(late):
            made.late.append(
                {
                    "event_id": f"e-{old}-{n}",
                    "partition": 0,
                    "offset": old // 1000 + n,
                    "event_time": old + n,
                    "pane": old,
                    "missed": missed,
                    "missed_by_clock": missed,
                    "clock": old + _span(metric),
                }
            )

    def _groups(self, grouping: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if not grouping:
            yield ()
            return
        for n in range(max(len(LABELS.get(name, ("x",))) for name in grouping)):
            yield tuple(LABELS.get(name, ("x",))[n % len(LABELS.get(name, ("x",)))] for name in grouping)

    def _items(self, resolved: ResolvedMetric, events: int) -> list[Any]:
        items: list[Any] = [str(events)]
        for name, measure in resolved.metric.measures.items():
            match measure.kind:
                case "distinct":
                    sketch = hll_sketch(HLL_LG_K, tgt_hll_type.HLL_8)
                    for _ in range(events):
                        sketch.update(f"c-{self._random.randint(0, 10_000)}")
                    items.append([sketch.serialize_compact()])
                case "quantiles":
                    values = kll_doubles_sketch()
                    for _ in range(events):
                        values.update(self._random.lognormvariate(6, 0.5))
                    items.append([values.serialize()])
                case "top":
                    pass
                case "sum":
                    items.append(f"{self._random.randint(1_000, 9_000_000) / 100:.2f}")
                case _:
                    rare = name in ("purchases", "failed")
                    items.append(str(self._random.randint(0, max(1, events // 12)) if rare else events))
        return items


def visit(customer: int, at: datetime, events: int, region: str = "almaty") -> str:
    """A piece of a visit of one second, as Spark would hand it over."""
    micros, gap = to_micros(at), 1_800_000_000
    assert micros is not None
    place = f"{{{micros},0,{customer}}}"
    values = (region, place, 2, "/", place, "/cart", place, customer % 2, "12.50")
    parts = [f"c-{customer}", micros - micros % gap, micros, micros + 1_000_000, events, *values]
    return "\t".join(map(str, parts))


def seed_visits(
    store_url: str, loaded: LoadedApp, lines: list[str], events: int, now: datetime, batch_id: int = 0
) -> None:
    """The visits of TuranMart, merged by the store's own code in one batch."""
    visits = loaded.app.all_sessions["visits"]
    measured = ResolvedMetric(visits.measured, VISIT_TYPES, ())
    resolved = ResolvedSessions(visits, measured, {"converted": ("purchases > 0", "boolean")})
    store, query = Store(store_url), query_name(loaded.name, visits.of)
    store.prepare()
    fold = SessionFold(loaded.name, query, [resolved])
    accounts = SourceAccounts(store, query, loaded.contract(visits.of), {SESSIONS: fold})
    accounts.prepare()
    part = Pieces(resolved, lines, [], events, 0, events)
    micros = to_micros(now)
    entry = Entry(0, 0, events, events, events, 0, 0, 0, {}, micros, micros)
    batch = Batch(query, batch_id, now, Outcome((entry,), 0, 0))
    store.transact(lambda connection: accounts.record(connection, batch, {SESSIONS: [part]}))


def connections_to(store_url: str, bootstrap: str = "127.0.0.1:1") -> Connections:
    """A store, and a broker that is away unless one is named."""
    return Connections(bootstrap, {}, {}, store_url)


@contextmanager
def own_store(store_url: str = "") -> Iterator[str]:
    from headrace.local.scratch_store import scratch_store

    if store_url:
        yield store_url
    else:
        with scratch_store() as url:
            yield url


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", type=int, required=True, help="the port")
    parser.add_argument("--minutes", type=int, default=90, help="of sample rows before now")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two batches")
    options = parser.parse_args()

    from threading import Thread

    from headrace.serve.app import make_app
    from headrace.serve.server import Server, address_of, listening_socket

    with own_store() as url:
        seed = Seed(url)
        seed.fill(options.minutes, datetime.now(UTC))
        listening = listening_socket("127.0.0.1", options.serve)
        server = Server(make_app(seed.loaded, connections_to(url)))

        def feed() -> None:
            while not server.should_exit:
                now = datetime.now(UTC)
                seed.batch(now, events=5)
                if now.second % 10 == 0:  # an older event: a correction
                    seed.batch(now - timedelta(seconds=70), events=2, clock=now)
                time.sleep(options.every)

        Thread(target=feed, daemon=True).start()
        print(f"serving sample rows: {address_of(listening)}", flush=True)
        server.run(sockets=[listening])


if __name__ == "__main__":
    main()


def _span(metric: Metric) -> int:
    return metric.final_us + metric.window.size // timedelta(microseconds=1) + 60_000_000
