"""Every match and every dead letter is in its topic exactly once, whatever dies in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.crash import OUTBOX_STEPS, VARIABLE, arm
from headrace.declared import FlowTopic
from headrace.joins import lane_name
from headrace.local.connect import connections_of
from headrace.local.services import Services
from headrace.log.scan import TopicReader
from headrace.log.topics import ensure_flow_topics
from tests.flows.test_join_rules import Shop

ROOT = Path(__file__).parents[2]


def test_killed_at_every_step(spark: SparkSession, services: Services, tmp_path: Path) -> None:
    options = connections_of(services).librdkafka
    topics = ("joins.paid.v1", "joins.unpaid.v1")
    ensure_flow_topics([FlowTopic(topic, 2, timedelta(days=1)) for topic in topics], options)
    shop = Shop(
        *(spark, services.store_url),
        check="left.amount = right.amount",
        topic=topics[0],
        dead_letters=topics[1],
    )

    def publish(crash: Path | None = None) -> subprocess.CompletedProcess[str]:
        lane = lane_name(shop.stream.app, shop.join.name)
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.flows.publish_process",
                services.store_url,
                services.bootstrap,
                lane,
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **({VARIABLE: str(crash)} if crash else {})},
            capture_output=True,
            text=True,
            timeout=90,
        )

    for n, step in enumerate(OUTBOX_STEPS):
        keys = [f"{step}-{k}" for k in range(5)]
        shop.happen("orders", *((n, key, "1") for key in keys))
        shop.happen("payments", *((n, key, "2" if k == 0 else "1") for k, key in enumerate(keys)))
        arm(tmp_path / "crash", step, "self")
        killed = publish(tmp_path / "crash")
        assert killed.returncode == -signal.SIGKILL, f"{step} was not reached: {killed.stderr}"
    done = publish()
    assert done.returncode == 0, done.stderr
    reader = TopicReader(options)
    for topic, rows in zip(
        topics, (shop.stream.matches(shop.join), shop.stream.letters(shop.join)), strict=True
    ):
        values = [json.loads(r.value or b"") for r in reader.records(topic, reader.ends(topic))]
        assert sorted(v["id"] for v in values) == sorted(row["id"] for row in rows) != []
        assert shop.stream.outbox(topic) == []
