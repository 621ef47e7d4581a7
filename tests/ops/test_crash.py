"""Kill -9 at every step of a batch: the topics hold each source coordinate exactly once."""

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
from datetime import datetime
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from headrace.crash import STEPS, VARIABLE, arm
from headrace.local.connect import connections_of
from headrace.local.services import Services
from headrace.log.produce import produce
from headrace.log.topics import ensure_topics
from headrace.ops.audit import audit_source
from headrace.ops.load import LoadedApp, load_app
from headrace.ops.snapshot import Snapshots
from headrace.settings import Settings
from headrace.testing.traffic import load_traffic

TURANMART = Path(__file__).parents[2] / "apps" / "turanmart"
APP = """
from headrace import App, count, distinct, sliding, tumbling

app = App('crash')
app.source('clickstream', max_batch=600)
app.metric('by_minute', of='clickstream', window=tumbling('1 minute'), by=[[], ['region']],
           measures={'n': count(), 'customers': distinct('customer_id')}, final_after='30 seconds')
app.metric('rolling', of='clickstream', window=sliding('3 minutes', every='1 minute'),
           measures={'n': count()}, final_after='10 seconds')
"""
EVENTS = 4_000
DEADLINE = 120.0


@dataclass
class Shop:
    """A broker, a database and an app with one source, whose engine is a process to be killed."""

    folder: Path
    services: Services
    loaded: LoadedApp
    engines: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def send(self, events: int, seed: int) -> None:
        model = load_traffic(TURANMART)
        options = model.options(
            events=events, seed=seed, streams={"clickstream": 1}, duplicates=0.05, late=0.1, malformed=0.03
        )
        connections = connections_of(self.services)
        produce(
            model.records(options),
            connections.librdkafka,
            lambda stream: self.loaded.contract(stream).topics.raw,
            rate=None,
        )

    def start_engine(self) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "HEADRACE_TRIGGER_SECONDS": "0.2",
            "HEADRACE_PUBLISH_SECONDS": "8",
            VARIABLE: str(self.crash),
        }
        with (self.folder / "engine.log").open("ab") as log:
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
        wait_for(arm(self.crash, step, pid).exists)

    @property
    def crash(self) -> Path:
        return self.folder / "crash"

    def wait_until_read(self, engine: subprocess.Popen[bytes]) -> None:
        snapshots = Snapshots(self.loaded, connections_of(self.services))

        def is_read() -> bool:
            assert engine.poll() is None, (self.folder / "engine.log").read_text()[-3000:]
            return all(source.lag == 0 for source in snapshots.take())

        wait_for(is_read)
        snapshots.close()

    def stop_engine(self, engine: subprocess.Popen[bytes]) -> None:
        engine.send_signal(signal.SIGTERM)
        assert engine.wait(60) == 0, (self.folder / "engine.log").read_text()[-3000:]

    def coordinates(self) -> Counter[bytes]:
        """How often each source coordinate is in the outputs, as a reader of committed data sees it."""
        return Counter(source_of(message) for message in self.messages())

    def messages(self) -> Iterator[Message]:
        contract = self.loaded.contract("clickstream")
        consumer = Consumer(
            {
                **connections_of(self.services).librdkafka,
                "group.id": "crash-test",
                "isolation.level": "read_committed",
                "enable.partition.eof": "true",
            }
        )
        for topic in contract.topics.outputs:
            left = contract.partitions
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

    def check(self, received: int) -> None:
        report = audit_source(
            self.loaded.name,
            self.loaded.contract("clickstream"),
            self.loaded.source("clickstream"),
            connections_of(self.services),
            recount=True,
        )
        assert report.clean, report.findings
        assert report.fates.received == received
        found = self.coordinates()
        assert set(found.values()) == {1}
        assert len(found) == received - report.fates.duplicate
        self.check_metrics()

    def check_metrics(self) -> None:
        """Every table holds what plain counting of the validated topic gives, less what missed a window."""
        minutes: Counter[int] = Counter()
        for value in self.validated():
            minutes[int(datetime.fromisoformat(json.loads(value)["event_time"]).timestamp()) // 60] += 1
        with psycopg.connect(self.services.store_url) as connection:
            for metric, panes in (("by_minute", 1), ("rolling", 3)):
                wanted = Counter[int]()
                for minute, count in minutes.items():
                    wanted.update({minute + k: count for k in range(panes)})
                end = "(extract(epoch FROM window_end) / 60)::bigint - 1"
                late = connection.execute(
                    f"SELECT {end}, count(*) FROM headrace.late_events WHERE metric = %s GROUP BY 1",  # type: ignore[arg-type]
                    (metric,),
                ).fetchall()
                wanted.subtract(dict(late))
                rows = connection.execute(
                    f"SELECT {end}, n, events, late_events FROM crash.{metric} WHERE \"grouping\" = 'all'"  # type: ignore[arg-type]
                ).fetchall()
                assert {minute: n for minute, n, _, _ in rows if n} == {m: n for m, n in wanted.items() if n}
                assert all(n == events for _, n, events, _ in rows)
                assert {m: n for m, _, _, n in rows if n} == dict(late)

    def validated(self) -> Iterator[bytes]:
        contract = self.loaded.contract("clickstream")
        for message in self.messages():
            value = message.value()
            if message.topic() == contract.topics.validated and isinstance(value, bytes):
                yield value


def source_of(message: Message) -> bytes:
    [source] = [value for name, value in message.headers() or () if name == "headrace-source"]
    assert isinstance(source, bytes)
    return source


def wait_for(condition: Callable[[], bool], seconds: float = DEADLINE) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "the condition did not come true in time"
        time.sleep(0.1)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    app = tmp_path / "app"
    (app / "contracts").mkdir(parents=True)
    shutil.copy(TURANMART / "contracts" / "clickstream.yaml", app / "contracts")
    (app / "app.py").write_text(APP)
    loaded = load_app(app)
    with Services(tmp_path, Settings(folder=tmp_path)) as services:
        ensure_topics(loaded.contract("clickstream"), connections_of(services).librdkafka)
        shop = Shop(tmp_path, services, loaded)
        yield shop
        for engine in shop.engines:
            engine.kill()
            engine.wait(10)


def test_killing_the_driver_at_every_step(shop: Shop) -> None:
    shop.send(EVENTS, seed=1)
    for step in STEPS:
        engine = shop.start_engine()
        shop.kill_at(step, engine.pid)
        assert engine.wait(DEADLINE) == -signal.SIGKILL
    engine = shop.start_engine()
    shop.wait_until_read(engine)
    shop.stop_engine(engine)
    shop.check(EVENTS)


def test_killing_python_workers(shop: Shop) -> None:
    steps = ("before_task_commit", "after_task_commit")
    engine = shop.start_engine()
    for n, step in enumerate(steps):
        armed = arm(shop.crash, step, "self")
        shop.send(EVENTS // 4, seed=20 + n)
        wait_for(armed.exists)
        shop.wait_until_read(engine)
    shop.stop_engine(engine)
    shop.check(EVENTS // 4 * len(steps))


def test_killing_the_broker(shop: Shop) -> None:
    steps = ("before_publish", "before_task_commit", "after_task_commit", "after_store_commit")
    engine = shop.start_engine()
    for n, step in enumerate(steps):
        shop.send(EVENTS // 2, seed=30 + n)  # batches enough to come by the step after it is armed
        shop.kill_at(step, shop.services.broker.pid)
        wait_for(lambda: not shop.services.broker.is_running())
        shop.services.broker.kill()
        shop.services.broker.start()
        shop.services.publish()
        shop.wait_until_read(engine)
    shop.stop_engine(engine)
    shop.check(EVENTS // 2 * len(steps))


def test_postgres_away_for_half_a_minute(shop: Shop) -> None:
    shop.send(EVENTS // 4, seed=4)
    engine = shop.start_engine()
    shop.wait_until_read(engine)
    shop.services.postgres.stop()
    began = time.monotonic()
    shop.send(EVENTS // 4, seed=5)
    wait_for(lambda: time.monotonic() - began > 30)
    assert engine.poll() is None
    shop.services.postgres.start()
    shop.wait_until_read(engine)
    shop.stop_engine(engine)
    shop.check(EVENTS // 2)
