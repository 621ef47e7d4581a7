"""python -m benchmarks.signals: from a payment in the log to its fraud signal in the topic, at a rate.

Payments of TuranMart's shoppers come in live; the gate scores them, the outbox publishes a signal for each of
them, and a reader that sees committed records only takes the time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer

from headrace.app import Source
from headrace.connections import Connections
from headrace.declared import Declared
from headrace.local.connect import connections_of
from headrace.local.services import Services
from headrace.log.produce import produce
from headrace.log.topics import ensure_alert_topics, ensure_topics
from headrace.ops.delivery import POLL_SECONDS
from headrace.ops.gate_query import GateQuery
from headrace.ops.load import load_app
from headrace.ops.outbox_topics import OutboxTopics
from headrace.settings import Settings
from headrace.spark import build_session
from headrace.store.connection import Store
from headrace.store.outbox import FlowOutbox
from headrace.testing.traffic import load_traffic

TURANMART = Path(__file__).parents[1] / "apps" / "turanmart"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.signals", description=__doc__)
    parser.add_argument("--rate", type=float, default=1000.0, help="payments a second (default 1000)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default 60)")
    parser.add_argument("--warm", type=float, default=30.0, help="seconds before that, which do not count")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        with Services(folder, Settings(folder=folder)) as services:
            spark = build_session("benchmarks", memory="1g")
            try:
                seconds = measure(options, spark, connections_of(services), folder)
            finally:
                spark.stop()
    ranks = {f"p{rank}": round(float(np.percentile(seconds, rank)), 3) for rank in (50, 90, 99)}
    print(json.dumps({"rate": options.rate, "signals": len(seconds), **ranks}))


def measure(options: argparse.Namespace, spark, to: Connections, folder: Path) -> list[float]:  # type: ignore[no-untyped-def]
    loaded = load_app(TURANMART)
    contract = loaded.contract("payments")
    signals = replace(loaded.app.signal_sets["fraud"], publish="all")
    ensure_topics(contract, to.librdkafka)
    ensure_alert_topics({signals.topic}, signals.retain, to.librdkafka)
    Store(to.store_url).prepare()
    gate = GateQuery(
        *(spark, loaded.name, contract, Source(contract.name), to),
        checkpoints=str(folder / "checkpoints"),
        slots=folder / "slots",
        salt="bench",
        declared=Declared(signals=(signals,)),
    )
    gate.start()
    stopping = threading.Event()
    reader = _Reader(signals.topic, to.librdkafka, stopping)
    publisher = threading.Thread(target=_publish, args=(to, gate.name, stopping))
    for thread in (reader, publisher):
        thread.start()
    model = load_traffic(TURANMART)
    counted_from = time.time() + options.warm
    try:
        live = model.options(
            rate=options.rate,
            seconds=options.warm + options.seconds,
            streams={"payments": 1},
            duplicates=0.0,
            malformed=0.0,
            future=0.0,
        )
        produce(model.records(live), to.librdkafka, lambda _: contract.topics.raw, rate=options.rate)
        time.sleep(5.0)
    finally:
        stopping.set()
        gate.stop()
        reader.join()
        publisher.join()
    return [delay for happened, delay in reader.seen if happened >= counted_from]


def _publish(to: Connections, query: str, stopping: threading.Event) -> None:
    topics = OutboxTopics("flows", FlowOutbox(), Store(to.store_url), [query], to.librdkafka)
    while not stopping.wait(POLL_SECONDS):
        topics.publish()
    topics.close()


class _Reader(threading.Thread):
    """Notes when a payment was in the log, by the shopper's clock, and how long its signal took."""

    def __init__(self, topic: str, options: dict[str, str], stopping: threading.Event) -> None:
        super().__init__()
        self.seen: list[tuple[float, float]] = []
        self._stopping = stopping
        self._consumer = Consumer(
            {
                **options,
                "group.id": "bench",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.subscribe([topic])

    def run(self) -> None:
        from datetime import datetime

        while not self._stopping.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is None:
                    at = datetime.fromisoformat(json.loads(message.value())["event_time"]).timestamp()
                    self.seen.append((at, time.time() - at))
        self._consumer.close()


if __name__ == "__main__":
    main()
