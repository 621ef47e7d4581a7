"""A broker, a database and an app whose engine is a process to be killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, Message, TopicPartition

from headrace.connections import Connections
from headrace.crash import VARIABLE, arm
from headrace.errors import ServiceError
from headrace.local.connect import connections_of
from headrace.local.services import Services
from headrace.log.produce import produce
from headrace.log.topics import ensure_topics
from headrace.ops.load import LoadedApp, load_app
from headrace.ops.snapshot import Snapshots
from headrace.testing.traffic import load_traffic

TURANMART = Path(__file__).parents[2] / "apps" / "turanmart"
APP = Path(__file__).parent / "crash_app"
STREAMS = ("clickstream", "payments")
RATE = 2.0  # records per second of simulated time: a few thousand of them are an hour
HISTORY = timedelta(hours=6)  # how long ago the simulated time begins
DEADLINE = 180.0


@dataclass
class Shop:
    folder: Path
    services: Services
    loaded: LoadedApp
    sent: Counter[str] = field(default_factory=Counter)
    engines: list[subprocess.Popen[bytes]] = field(default_factory=list)
    now: datetime = field(default_factory=lambda: datetime.now(UTC) - HISTORY)  # in the simulation

    @property
    def connections(self) -> Connections:
        return connections_of(self.services)

    def send(self, events: int, seed: int) -> None:
        """The next records of the simulated day: disordered, repeated, some of them broken."""
        model = load_traffic(TURANMART)
        options = model.options(
            events=events,
            seed=seed,
            start=self.now,
            rate=RATE,
            streams={"clickstream": 3, "payments": 2},
            duplicates=0.05,
            late=0.1,
            malformed=0.03,
            future=0.0,  # ahead of the simulated time is not ahead of the log's
            hot_key=0.15,
        )
        # A repeat without its key may be in any partition. What a customer's payments mean depends on their
        # order, which the log keeps only inside a partition.
        records = [r for r in model.records(options) if r.key is not None or r.stream != "payments"]
        self.now += timedelta(seconds=events / RATE)
        self.sent.update(record.stream for record in records)
        produce(
            records,
            self.connections.librdkafka,
            lambda stream: self.loaded.contract(stream).topics.raw,
            rate=None,
        )

    def engine(self) -> subprocess.Popen[bytes]:
        """The one that runs, or a new one."""
        if self.engines and self.engines[-1].poll() is None:
            return self.engines[-1]
        environment = {
            **os.environ,
            "HEADRACE_TRIGGER_SECONDS": "0.2",
            "HEADRACE_PUBLISH_SECONDS": "8",
            VARIABLE: str(self.crash),
        }
        with self.log.open("ab") as log:
            engine = subprocess.Popen(
                [sys.executable, "-m", "headrace.cli", "run", str(self.folder / "app")],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
            )
        self.engines.append(engine)
        return engine

    def kill_at(self, step: str, pid: int | str) -> None:
        """Returns once somebody has reached the step and the process has been killed."""
        wait_for(arm(self.crash, step, pid).exists, f"nobody came by {step}")

    @cached_property
    def snapshots(self) -> Snapshots:
        return Snapshots(self.loaded, self.connections)

    @property
    def crash(self) -> Path:
        return self.folder / "crash"

    @property
    def log(self) -> Path:
        return self.folder / "engine.log"

    def settle(self) -> None:
        """Wait until the engine has read everything and has delivered what came of it."""
        engine = self.engine()

        def is_settled() -> bool:
            assert engine.poll() is None, self.log.read_text()[-3000:]
            try:
                behind = any(source.lag for source in self.snapshots.take())
            except ServiceError:  # a broker that has just come back leads no partition yet
                return False
            return not behind and not self.undelivered()

        wait_for(is_settled, "the engine did not come to rest")

    def undelivered(self) -> int:
        [(waiting,)] = self.rows(
            "SELECT (SELECT count(*) FROM headrace.outbox) + (SELECT count(*) FROM headrace.alert_events e"
            " JOIN headrace.alert_lanes l USING (query, topic) WHERE e.position > l.published)"
        )
        return int(waiting)

    def stop(self) -> None:
        """The one that runs, if any."""
        for engine in self.engines[-1:]:
            if engine.poll() is None:
                engine.send_signal(signal.SIGTERM)
                assert engine.wait(60) == 0, self.log.read_text()[-3000:]

    def rows(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.services.store_url) as connection:
            return connection.execute(text, values).fetchall()

    def messages(self, topic: str) -> Iterator[Message]:
        """As a reader of committed data sees them, each partition in its order."""
        consumer = Consumer(
            {
                **self.connections.librdkafka,
                "group.id": "crash-test",
                "isolation.level": "read_committed",
                "enable.partition.eof": "true",
            }
        )
        left = len(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, 0) for p in range(left)])
        until = time.monotonic() + DEADLINE
        while left and time.monotonic() < until:
            message = consumer.poll(1.0)
            if message is not None and message.error():
                left -= 1
            elif message is not None:
                yield message
        assert left == 0, f"{topic} could not be read to its end"
        consumer.close()

    def objects(self, topic: str) -> Iterator[dict[str, Any]]:
        return (json.loads(message.value() or b"") for message in self.messages(topic))


def wait_for(condition: Callable[[], bool], otherwise: str, seconds: float = DEADLINE) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, otherwise
        time.sleep(0.1)


def made_app(folder: Path) -> LoadedApp:
    """With the shop's contracts, in which no silence ends: the watermarks then follow from the log alone."""
    shutil.copytree(APP, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(TURANMART / "dimensions" / "products.csv", folder)
    (folder / "contracts").mkdir()
    for stream in STREAMS:
        lines = (TURANMART / "contracts" / f"{stream}.yaml").read_text().splitlines()
        kept = [line for line in lines if "idleAfter" not in line]
        text = "\n".join([*kept, "  - {property: idleAfter, value: 1 day}", ""])
        (folder / "contracts" / f"{stream}.yaml").write_text(text)
    return load_app(folder)


def open_shop(folder: Path, services: Services) -> Shop:
    shop = Shop(folder, services, made_app(folder / "app"))
    for stream in STREAMS:
        ensure_topics(shop.loaded.contract(stream), shop.connections.librdkafka)
    return shop
