"""python -m benchmarks.realtime: from a payment in the log to its signal of the real-time lane, at a rate.

The lane runs as in the engine, beside the gate of the stream with all that TuranMart derives from it. The
time is from the log time of the payment (Kafka's stamp) until a reader has its signal. A batch of 60 s puts
one pause between two batches into the 60 s that count; by default there is one in 300 s.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from confluent_kafka import Consumer, TopicPartition

from headrace.app import Source
from headrace.connections import Connections
from headrace.local.connect import connections_of
from headrace.local.services import Services
from headrace.log.produce import produce
from headrace.log.topics import ensure_alert_topics, ensure_topics
from headrace.ops.gate_query import GateQuery
from headrace.ops.load import LoadedApp, load_app
from headrace.ops.realtime_query import RealtimeQuery
from headrace.settings import Settings
from headrace.spark import build_session, with_slots
from headrace.store.connection import Store
from headrace.testing.traffic import load_traffic

TURANMART = Path(__file__).parents[1] / "apps" / "turanmart"
SIGNALS = "large_payments"
IDLE_SECONDS = 15.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.realtime", description=__doc__)
    parser.add_argument("--rate", type=float, default=1000.0, help="payments a second (default 1000)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default 60)")
    parser.add_argument("--warm", type=float, default=45.0, help="seconds before that, which do not count")
    parser.add_argument("--batch", type=float, default=60.0, help="realtime_seconds (default 60)")
    parser.add_argument("--alone", action="store_true", help="the lane without a gate beside it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        with Services(folder, Settings(folder=folder)) as services:
            loaded = load_app(TURANMART)
            slots = loaded.contract("payments").partitions
            spark = build_session("benchmarks", memory="1g", **with_slots("local[*]", slots, {}))
            try:
                found = measure(options, spark, loaded, connections_of(services), folder)
            finally:
                spark.stop()
    print(json.dumps({"rate": options.rate, "beside_gate": not options.alone, **found}))


def measure(
    options: argparse.Namespace,
    spark: Any,
    loaded: LoadedApp,
    to: Connections,
    folder: Path,
) -> dict[str, Any]:
    contract = loaded.contract("payments")
    signals = replace(loaded.app.signal_sets[SIGNALS], publish="all")
    ensure_topics(contract, to.librdkafka)
    ensure_alert_topics({signals.topic}, timedelta(days=1), to.librdkafka)
    Store(to.store_url).prepare()
    lane = RealtimeQuery(
        *(spark, loaded.name, contract, [signals], to),
        checkpoints=str(folder / "checkpoints"),
        salt="bench",
        batch_seconds=options.batch,
    )
    lane.start()
    gate = GateQuery(
        *(spark, loaded.name, contract, Source(contract.name), to),
        checkpoints=str(folder / "checkpoints"),
        slots=folder / "slots",
        salt="bench",
        declared=loaded.declared(contract.name).beside_lanes(),
    )
    engine = _engine(spark)
    idle = None
    if options.alone:
        time.sleep(options.warm)
        idle = _share(engine, lambda: time.sleep(IDLE_SECONDS), IDLE_SECONDS)
    else:
        gate.start()
    stopping = threading.Event()
    readers = [_Reader(contract.topics.raw, contract.partitions, to, stopping, "event_id")]
    readers.append(_Reader(signals.topic, 1, to, stopping, "event_id"))
    for reader in readers:
        reader.start()
    model = load_traffic(TURANMART)
    counted_from = time.time() + options.warm
    live = model.options(
        rate=options.rate,
        seconds=options.warm + options.seconds,
        streams={"payments": 1},
        duplicates=0.0,
        malformed=0.0,
        future=0.0,
    )

    def send() -> None:
        produce(model.records(live), to.librdkafka, lambda _: contract.topics.raw, rate=options.rate)

    try:
        busy = _share(engine, send, options.warm + options.seconds)
        assert lane.query is not None and lane.query.isActive, lane.query and lane.query.exception()
        time.sleep(5.0)
    finally:
        stopping.set()
        for reader in readers:
            reader.join()
        if not options.alone:
            gate.stop()
        lane.stop()
    logged = {event_id: stamp for event_id, (stamp, _) in readers[0].seen.items()}
    delays = [
        1000 * (seen - logged[event_id])
        for event_id, (_, seen) in readers[1].seen.items()
        if logged[event_id] >= counted_from
    ]
    ranks = {f"p{rank:g}_ms": round(float(np.percentile(delays, rank)), 1) for rank in (50, 90, 99, 99.9)}
    slow = {"over_1s": round(sum(delay > 1000 for delay in delays) / len(delays), 4)}
    cores = {"engine_cores": round(busy, 2), "idle_cores": None if idle is None else round(idle, 3)}
    return {"signals": len(delays), **ranks, "max_ms": round(max(delays), 1), **slow, **cores}


def _engine(spark: Any) -> psutil.Process:
    """Spark's own process: the gate and the lane, without their Python workers."""
    return psutil.Process(int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()))


def _share(process: psutil.Process, work: Callable[[], None], seconds: float) -> float:
    """Cores that the process used while the work was done."""
    before = sum(process.cpu_times()[:2])
    work()
    return float(sum(process.cpu_times()[:2]) - before) / seconds


class _Reader(threading.Thread):
    """Of every record, Kafka's stamp and when it could be read first."""

    def __init__(
        self, topic: str, partitions: int, to: Connections, stopping: threading.Event, name: str
    ) -> None:
        super().__init__()
        self.seen: dict[str, tuple[float, float]] = {}
        self._stopping, self._name = stopping, name
        self._consumer = Consumer({**to.librdkafka, "group.id": "bench", "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])

    def run(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, 0.005):
                value = message.value()
                if message.error() is None and value is not None:
                    event_id = json.loads(value)[self._name]
                    self.seen.setdefault(event_id, (message.timestamp()[1] / 1000, time.time()))
        self._consumer.close()


if __name__ == "__main__":
    main()
