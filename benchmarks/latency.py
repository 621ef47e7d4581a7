"""python -m benchmarks.latency: from an event to the row that counts it, at a rate.

Events of now go to the log, the gate counts them in ten metrics of TuranMart, and a reader of the metric by
customer takes the time. A row that counts k events has the k-th that was sent as its newest: what is measured
is how old that one is when the row can be read.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psycopg
from psycopg import sql

from benchmarks.__main__ import TURANMART
from benchmarks.gate import GateBench, made_events
from headrace.app import Source
from headrace.contracts import Contract
from headrace.declared import Declared
from headrace.local.services import Services
from headrace.log.produce import produce
from headrace.log.record import Record
from headrace.ops.load import load_app
from headrace.settings import Settings
from headrace.spark import build_session
from headrace.store.changes import CHANNEL

WINDOW = 300  # seconds, of the metric by customer
APP, METRIC = "bench_latency", "customer_events_5m"
Place = tuple[str, int]  # a customer and a window
Sent = dict[Place, list[float]]  # when its events were sent


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--rate", type=float, default=2000.0, help="events a second (default 2000)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default 60)")
    parser.add_argument("--warm", type=float, default=60.0, help="seconds before that, which do not count")
    parser.add_argument("--trigger", type=float, default=0.5, help="seconds between triggers, as in settings")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        with Services(folder, Settings(folder=folder)) as services:
            spark = build_session("benchmarks", memory="1g")
            try:
                found = measure(options, GateBench(spark, services, folder, "bench", 0))
            finally:
                spark.stop()
    ranks = {f"p{rank}": round(float(np.percentile(found, rank)), 3) for rank in (50, 90, 99)}
    print(json.dumps({"rate": options.rate, "rows": len(found), **ranks}))


def measure(options: argparse.Namespace, bench: GateBench) -> list[float]:
    metrics = load_app(TURANMART).metrics_of("clickstream")[:10]
    source = Source(bench.contract.name)
    gate = bench.query("latency", source, Declared(tuple(metrics)), trigger_seconds=options.trigger)
    query = gate.start()
    # A process of its own: the gate shares no interpreter with those who send.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as senders:
        count = int(options.rate * (options.warm + options.seconds))
        sender = senders.submit(send, bench.contract, bench.connections.librdkafka, count, options.rate)
        seen = list(rows_seen(bench.connections.store_url, sender))
        sent = sender.result()
    durations = [p.durationMs["triggerExecution"] for p in query.recentProgress if p.numInputRows]
    print(f"triggers: {len(durations)}, median {np.median(durations):.0f} ms", flush=True)
    gate.stop()
    since = min(moments[0] for moments in sent.values()) + options.warm
    return [at - sent[place][events - 1] for place, events, at in seen if at >= since]


def send(contract: Contract, librdkafka: dict[str, str], count: int, rate: float) -> Sent:
    sent: Sent = {}
    produce(noted(contract.name, count, sent), librdkafka, lambda _: contract.topics.raw, rate=rate)
    return sent


def noted(stream: str, count: int, sent: Sent) -> Iterator[Record]:
    """The events, and when each was handed over; a repeat of one before adds nothing to a row."""
    start = datetime.now(UTC)
    recent: deque[Record] = deque(maxlen=100)
    for record in made_events(stream, count, start=start, seed=7, delay=0.0):
        if not any(record is known for known in recent):
            recent.append(record)
            assert record.key is not None
            place = (record.key.decode(), int(record.at // WINDOW))
            sent.setdefault(place, []).append(time.time())
        yield record


def rows_seen(store_url: str, sender: Future[Sent]) -> Iterator[tuple[Place, int, float]]:
    """Each row that counts more events than before, and when: read as soon as the store says that something
    was committed, as the live page does."""
    changed = (
        f"SELECT customer_id, window_start, events, updated_at FROM {APP}.{METRIC}"
        " WHERE updated_at > %s AND \"grouping\" <> 'all'"
    )
    newest = datetime.now(UTC)
    counted: dict[Place, int] = {}
    with psycopg.connect(store_url, autocommit=True) as connection:
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(CHANNEL)))
        while not sender.done():
            if not list(connection.notifies(timeout=0.5, stop_after=1)):
                continue
            rows = connection.execute(changed, (newest,)).fetchall()  # type: ignore[arg-type]
            now = time.time()
            for customer, start, events, updated_at in rows:
                newest = max(newest, updated_at)
                place = customer, int(start.timestamp() // WINDOW)
                # A row also changes when its window is over, without another event.
                if counted.get(place) != events:
                    counted[place] = events
                    yield place, events, now


if __name__ == "__main__":
    main()
