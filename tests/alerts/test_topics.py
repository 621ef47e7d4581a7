"""Every event of an alert is in its topic exactly once, whatever dies in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from headrace import tumbling
from headrace.crash import OUTBOX_STEPS, VARIABLE, arm
from headrace.local.connect import connections_of
from headrace.local.services import Services
from headrace.log.scan import LogRecord, TopicReader
from headrace.log.topics import ensure_alert_topics
from headrace.ops.outbox_topics import OutboxTopics
from headrace.store.alert_outbox import AlertOutbox
from headrace.store.connection import Store
from tests.alerts.history import Cell, History, at

ROOT = Path(__file__).parents[2]
KEEP = timedelta(days=1)


class Published:
    """A history whose alerts have a topic, on the broker that all tests share."""

    def __init__(self, services: Services) -> None:
        self.services, self.options = services, connections_of(services).librdkafka
        self.history = History(services.store_url, tumbling("1 minute"), final_after="1 minute")
        self.topic = f"{self.history.name}.alerts.v1"
        self.history.alert(topic=self.topic)
        self.history.start()
        ensure_alert_topics([self.topic], KEEP, self.options)
        self._minute = 0

    def happen(self, minutes: int) -> None:
        """Alerts that open, go on and are resolved, each minute in a commit of its own."""
        for _ in range(minutes):
            n = self._minute
            cells = [Cell(at(n), "tashkent", 10, 10 * (n % 4 != 3)), Cell(at(n), "almaty", 10, 10 * (n % 2))]
            self.history.feed(cells, at(n + 1))
            self._minute += 1

    def publisher(self) -> OutboxTopics:
        return OutboxTopics(
            "alerts", AlertOutbox(), Store(self.services.store_url), [self.history.query], self.options
        )

    def process(self, crash: Path | None = None) -> subprocess.CompletedProcess[str]:
        arguments = [self.services.store_url, self.services.bootstrap, self.history.query]
        return subprocess.run(
            [sys.executable, "-m", "tests.alerts.publish_process", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **({VARIABLE: str(crash)} if crash else {})},
            capture_output=True,
            text=True,
            timeout=90,
        )

    def records(self) -> Iterator[LogRecord]:
        reader = TopicReader(self.options)
        return reader.records(self.topic, reader.ends(self.topic))

    def check(self) -> None:
        """The topic has the outbox, to the byte, in its order."""
        rows = self.history.rows(
            "SELECT payload::text AS payload FROM headrace.alert_events WHERE app = %(app)s ORDER BY position"
        )
        assert rows
        assert [(record.value or b"").decode() for record in self.records()] == [r["payload"] for r in rows]


@pytest.fixture
def published(services: Services) -> Published:
    return Published(services)


def test_events_are_published_once_and_in_order(published: Published) -> None:
    published.happen(3)
    publisher = published.publisher()
    assert publisher.publish() == len(published.history.events())
    assert publisher.publish() == 0
    published.happen(3)
    assert publisher.publish() > 0
    publisher.close()
    published.check()
    [record, *_] = published.records()
    event = json.loads(record.value or b"")
    assert record.header("headrace-event") == event["event_id"].encode()
    assert record.header("headrace-alert") == f"{published.history.name}.failing".encode()
    assert (event["kind"], event["state"], event["windows"]) == ("opened", "open", 1)


def test_killed_at_every_step(published: Published, tmp_path: Path) -> None:
    for step in OUTBOX_STEPS:
        published.happen(2)
        happened = arm(tmp_path / "crash", step, "self")
        killed = published.process(tmp_path / "crash")
        assert killed.returncode == -signal.SIGKILL, f"{step} was not reached: {killed.stderr}"
        assert happened.exists()
    done = published.process()
    assert done.returncode == 0, done.stderr
    published.check()
    lane = published.history.rows(
        "SELECT published FROM headrace.alert_lanes WHERE query = %(query)s", query=published.history.query
    )
    last = published.history.rows(
        "SELECT max(position) AS published FROM headrace.alert_events WHERE app = %(app)s"
    )
    assert lane == last


def test_a_second_publisher_takes_over_and_the_first_goes_on_after_it(published: Published) -> None:
    published.happen(2)
    first = published.publisher()
    assert first.publish() > 0
    published.happen(2)
    assert published.process().stdout.strip() != "0"
    published.happen(2)
    with pytest.raises(Exception, match=r"fenced|epoch"):
        first.publish()
    assert first.publish() > 0
    first.close()
    published.check()


def test_a_store_that_begins_anew_ignores_the_markers_of_the_old_one(published: Published) -> None:
    published.happen(2)
    publisher = published.publisher()
    count = publisher.publish()
    publisher.close()
    published.history.store.transact(
        lambda connection: connection.execute(
            "UPDATE headrace.alert_lanes SET published = 0, epoch = gen_random_uuid() WHERE query = %s",
            (published.history.query,),
        )
    )
    again = published.publisher()
    assert again.publish() == count
    again.close()
