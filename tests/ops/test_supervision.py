"""An engine as a process: a failure of its query is seen from outside, and SIGTERM lets a batch finish."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from headrace.crash import arm
from headrace.local.connect import connections_of
from headrace.ops.health import health_of
from headrace.ops.pipeline import PipelineView
from headrace.ops.reports import is_finished
from headrace.ops.run import cause_of
from tests.ops.crash_shop import Shop, wait_for
from tests.ops.test_crash import shop

__all__ = ["shop"]
THEN = 3_000  # records; a batch of clickstream holds 800
STEPS = {"decode", "judge", "publish", "views", "record"}
CHECKPOINT = {"commitOffsets", "stateCommit"}  # the offsets of a repeated batch are there already


def batches(folder: Path, kind: str) -> set[int]:
    """The batches that Spark has begun (`offsets`) or finished (`commits`)."""
    place = folder / ".headrace/checkpoints/crash.clickstream" / kind
    return {int(file.name) for file in place.glob("[0-9]*")}


def test_the_cause_of_a_failure_is_the_line_that_says_something() -> None:
    report = (
        "[FOREACH_BATCH] An error\norg.apache.spark.SparkException: Python worker exited (crashed).\n"
        "\tat java.lang.Thread\nCaused by: java.io.EOFException\n\t... 21 more\n"
    )
    assert cause_of(report) == "org.apache.spark.SparkException: Python worker exited (crashed)."
    ours = f"{report}headrace.errors.LeakError: 3 records\n"
    assert (cause_of(ours), cause_of(None)) == ("3 records", "None")


def test_the_cause_of_a_failure_holds_no_value() -> None:
    told = 'Traceback:\npsycopg.errors.InvalidTextRepresentation: invalid input: "c-1042"'
    assert cause_of(told) == 'psycopg.errors.InvalidTextRepresentation: invalid input: "…"'
    assert cause_of("KeyError: 'c-1042'") == "KeyError: '…'"
    missing = 'psycopg.errors.UndefinedTable: relation "shop.visits" does not exist'
    assert cause_of(missing) == missing


def test_only_finished_batches_are_reported() -> None:
    idle = {"durationMs": {"latestOffset": 3, "triggerExecution": 4}}
    failed = {"durationMs": {"addBatch": 900, "walCommit": 30}}
    finished = {"durationMs": {"addBatch": 900, "walCommit": 30, "commitOffsets": 20}}
    assert [is_finished(progress) for progress in (idle, failed, finished)] == [False, False, True]


def test_a_failure_is_shown_and_sigterm_finishes_the_batch(shop: Shop) -> None:
    view = PipelineView(shop.loaded, connections_of(shop.services))

    def sources() -> dict[str, dict[str, Any]]:
        return {source["source"]: source for source in view.now()["sources"]}

    def are_done() -> bool:
        return all(
            seen["received"] == shop.sent[name]
            and seen["state"] is not None
            and set(seen["durations_ms"] or ()) >= STEPS | CHECKPOINT
            for name, seen in sources().items()
        )

    arm(shop.crash, "before_task_commit", "self")
    engine = shop.engine()
    wait_for(are_done, "not everything was read")
    [failed] = [seen for seen in sources().values() if seen["failures"]]
    assert (failed["failures"], failed["restarts"]) == (1, 1)
    assert failed["last_failure"] and "\n" not in failed["last_failure"]
    for seen in sources().values():
        assert seen["status"] == "running"
        assert seen["unaccounted"] == seen["lag"]["records"] == 0
        assert seen["latency_seconds"]["p99"] > 0
        ids = seen["received"] - seen["duplicate"]
        assert (seen["state"]["rows"], seen["state"]["bytes"] > 0) == (ids, True)
    assert health_of(view.now())["status"] in ("ok", "degraded")  # the first batches may miss their promise

    shop.send(THEN, seed=6)
    wait_for(
        lambda: bool(batches(shop.folder, "offsets") - batches(shop.folder, "commits")), "no batch began"
    )
    engine.send_signal(signal.SIGTERM)
    assert engine.wait(60) == 0, shop.log.read_text()[-3000:]
    assert batches(shop.folder, "offsets") == batches(shop.folder, "commits")
    wait_for(lambda: {seen["status"] for seen in sources().values()} == {"stopped"}, "it does not say so")
    left = sources()["clickstream"]
    assert left["unaccounted"] == 0
    assert left["batch"]["batch_id"] == max(batches(shop.folder, "commits"))
    assert health_of(view.now())["status"] == "down"
    view.close()
