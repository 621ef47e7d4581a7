"""Explaining numbers of a real gate: every row of every metric, then what can go wrong."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from headrace.cli import app as cli
from headrace.errors import AppError, DataError, UsageError
from headrace.local.services import Services
from headrace.ops import explain as module
from headrace.ops.explain import explain, parse_labels
from headrace.ops.explanation import Explanation
from tests.ops.conftest import DAY, Measured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NINE = datetime.fromisoformat(f"{DAY}T09:00:00Z")
NINE_TEXT = f"{DAY}T09:00:00Z"


def no_session() -> AbstractContextManager[NoReturn]:
    raise AssertionError("this metric needs no Spark")


def explained(
    measured: Measured,
    metric: str,
    by: dict[str, str] | None = None,
    start: datetime = NINE,
    spark: SparkSession | None = None,
    **options: Any,
) -> Explanation:
    loaded = measured.loaded
    declared = loaded.metric(metric)
    return explain(
        loaded.name,
        declared,
        loaded.contract(declared.of),
        loaded.source(declared.of),
        measured.connections,
        start,
        by or {},
        (lambda: nullcontext(spark)) if spark is not None else no_session,
        **options,
    )


def ids(explanation: Explanation) -> list[str]:
    return [event.event_id for event in explanation.events]


def missed(explanation: Explanation) -> list[str]:
    return [event.event_id for event in explanation.missed]


def test_the_events_of_a_number_in_the_order_of_arrival(measured: Measured) -> None:
    found = explained(measured, "by_place")
    assert found.complete and found.found == found.row["events"] == 6
    assert ids(found) == ["e1", "e2", "e3", "e5", "e6", "e7"]
    assert [(e.partition, e.offset) for e in found.events] == [(0, n) for n in (0, 1, 2, 4, 5, 6)]
    assert found.events[0].event_time == NINE + timedelta(seconds=10)
    assert datetime.now(UTC) - timedelta(hours=1) < found.events[0].arrived < datetime.now(UTC)
    assert (found.row["state"], found.row["revision"]) == ("final", 2)


def test_those_that_missed_it_and_why(measured: Measured) -> None:
    found = explained(measured, "by_place")
    late = [(m.event_id, m.reason, m.late_by.total_seconds()) for m in found.missed]
    assert late == [("e9", "late", 5), ("e10", "late", 5), ("e11", "idle_wake", 5)]
    assert all(m.arrived is not None for m in found.missed)


def test_every_revision_with_its_values(measured: Measured) -> None:
    found = explained(measured, "by_place")
    story = [(r.revision, r.state, r.values["n"], r.values["late_events"]) for r in found.revisions]
    assert story == [(1, "preliminary", 5, 0), (2, "corrected", 6, 1), (2, "final", 6, 1)]
    assert found.revisions[0].watermark == NINE + timedelta(seconds=85)
    assert [r.at for r in found.revisions] == sorted(r.at for r in found.revisions)


@pytest.mark.parametrize(
    ("by", "events", "late"),
    [
        ({"region": "tashkent"}, ["e1", "e3", "e5"], ["e9", "e11"]),
        ({"region": "almaty"}, ["e2"], ["e10"]),
        ({"region": "(none)"}, ["e6"], []),
        ({"region": "\\(vip)"}, ["e7"], []),
        ({"region": "tashkent", "kind": "refund"}, ["e3"], []),
    ],
)
def test_a_group_has_its_own_events(
    measured: Measured, by: dict[str, str], events: list[str], late: list[str]
) -> None:
    found = explained(measured, "by_place", by)
    assert (ids(found), missed(found)) == (events, late)
    assert found.complete and found.row["n"] == len(events)


def test_a_condition_is_asked_in_the_words_of_the_engine(measured: Measured, spark: SparkSession) -> None:
    total = explained(measured, "large_sales", spark=spark)
    assert (ids(total), missed(total)) == (["e1", "e5", "e6", "e7"], ["e9", "e10", "e11"])
    pairs = explained(measured, "large_sales", {"items": "2"}, spark=spark)
    assert (ids(pairs), missed(pairs), pairs.complete) == (["e5"], ["e10"], True)


def test_a_masked_field_groups_by_what_was_published(measured: Measured) -> None:
    card = sha256(b"saltcard of tashkent").hexdigest()
    assert ids(explained(measured, "by_card", {"card": card})) == ["e1", "e3", "e5"]


def test_the_rest_of_a_crowded_window(measured: Measured) -> None:
    found = explained(measured, "crowded", {"region": "(other)"})
    assert (ids(found), missed(found), found.complete) == (["e2", "e6", "e7"], ["e10"], True)


def test_a_running_window_is_explained_as_it_is_shown(measured: Measured) -> None:
    found = explained(measured, "so_far")
    assert ids(found) == [f"e{n}" for n in range(1, 10)], "e10 and e11 wait for the next trigger"
    assert found.complete and found.row["n"] == 9
    assert [(r.revision, r.state, r.values["n"]) for r in found.revisions] == [
        (1, "open", 3),
        (2, "open", 6),
        (3, "open", 9),
    ]
    group = explained(measured, "so_far", {"region": "almaty"})
    assert (ids(group), group.complete) == (["e2", "e8"], True)


def test_a_sliding_window_shares_its_events(measured: Measured) -> None:
    before = explained(measured, "two_minutes", start=NINE - timedelta(minutes=1))
    after = explained(measured, "two_minutes")
    assert (len(before.missed), len(after.missed)) == (3, 0)
    assert set(ids(after)) - set(ids(before)) == {"e4", "e9", "e10", "e11"}
    assert before.complete and after.complete


def test_every_row_of_every_metric_is_explained(measured: Measured, spark: SparkSession) -> None:
    for metric in measured.loaded.app.metrics.values():
        names = ", ".join(("window_start", '"grouping"', *metric.dimensions))
        rows = measured.query(f"SELECT {names} FROM measured.{metric.name} ORDER BY {names}")
        assert rows
        for start, grouping, *labels in rows:
            given = dict(zip(metric.dimensions, labels, strict=True))
            used = [] if grouping == "all" else str(grouping).split(",")
            assert isinstance(start, datetime)
            found = explained(
                measured, metric.name, {name: str(given[name]) for name in used}, start, spark=spark
            )
            assert found.remarks == (), (metric.name, start, labels)
            assert found.found == len(found.events) == found.row["events"]
            assert len(found.missed) == found.row["late_events"]


def test_a_limit_keeps_the_first_and_counts_all(measured: Measured) -> None:
    found = explained(measured, "by_place", limit=2)
    assert (ids(found), found.found, found.complete) == (["e1", "e2"], 6, True)


def test_clocks_that_differ_cost_a_second_reading(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLACK", timedelta(hours=-2))
    assert explained(measured, "by_place").complete


def test_events_from_before_the_metric_are_not_in_its_row(measured: Measured) -> None:
    """As if its first batch had been number 1."""
    with measured.tampered("DELETE FROM headrace.metric_ledger WHERE metric = 'by_place' AND batch_id = 0"):
        found = explained(measured, "by_place")
    assert ids(found) == ["e5", "e6", "e7"]
    assert not found.complete and "3 of the row's 6 events" in found.remarks[0]


@pytest.mark.parametrize(
    ("metric", "by", "error", "words"),
    [
        ("by_place", {"kind": "sale"}, UsageError, "--by kind=… --by region=…"),
        ("by_card", {}, UsageError, "its groupings are: --by card=…"),
        ("by_place", {"region": "tashkant"}, DataError, "did you mean region=tashkent?"),
        ("by_place", {"region": "x"}, DataError, "there are: region="),
    ],
)
def test_a_group_that_is_not_there(
    measured: Measured, metric: str, by: dict[str, str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as raised:
        explained(measured, metric, by)
    assert words in str(raised.value)


def test_a_window_that_is_not_there(measured: Measured) -> None:
    with pytest.raises(DataError) as raised:
        explained(measured, "by_place", start=NINE + timedelta(seconds=90))
    assert "09:00:00Z, 2026-03-01T09:01:00Z, 2026-03-01T09:02:00Z" in str(raised.value)
    assert "tumbling 1 minute" in str(raised.value)


def test_a_metric_that_never_ran(measured: Measured) -> None:
    loaded = measured.loaded
    never = replace(loaded.metric("by_place"), name="never_ran")
    contract, source = loaded.contract(never.of), loaded.source(never.of)
    with pytest.raises(DataError, match="no table yet"):
        explain(loaded.name, never, contract, source, measured.connections, NINE, {}, no_session)


def test_a_source_that_does_not_publish_says_so(measured: Measured) -> None:
    loaded = measured.loaded
    metric = loaded.metric("by_place")
    silent = replace(loaded.source(metric.of), publish=False)
    with pytest.raises(DataError, match="publish=False"):
        explain(
            *(loaded.name, metric, loaded.contract(metric.of), silent),
            *(measured.connections, NINE, {}, no_session),
        )


@pytest.mark.parametrize("pairs", [["region"], ["=x"], ["region=a", "region=b"]])
def test_labels_that_make_no_sense_are_refused(pairs: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_labels(pairs)


def test_the_command(measured: Measured, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(services.folder)
    command = ["explain", "by_place", "--app", str(measured.folder), "--window"]
    shown = CliRunner().invoke(cli, [*command, NINE_TEXT, "--by", "region=tashkent", "--limit", "2"])
    assert shown.exit_code == 0, shown.output
    assert "final, revision 1" in shown.output and "events 3, late_events 2" in shown.output
    assert "1 more; --limit 3 or --json lists them all" in shown.output
    assert "idle_wake: the window had become final" in shown.output
    document = json.loads(CliRunner().invoke(cli, [*command, NINE_TEXT, "--json"]).output)
    assert [event["event_id"] for event in document["events"]] == ["e1", "e2", "e3", "e5", "e6", "e7"]
    assert document["complete"] and document["missed"][0]["late_by"] == 5
    assert document["row"]["revenue"] == 151 and document["revisions"][-1]["state"] == "final"
    for words, error, said in (
        ([NINE_TEXT, "--by", "region"], UsageError, "NAME=VALUE"),
        (["nine"], UsageError, "--window nine: not an ISO time"),
        ([NINE_TEXT, "--limit", "0"], UsageError, "--limit"),
    ):
        wrong = CliRunner().invoke(cli, [*command, *words]).exception
        assert isinstance(wrong, error) and said in str(wrong)
    unknown = ["explain", "by_plaice", *command[2:], NINE_TEXT]
    wrong = CliRunner().invoke(cli, unknown).exception
    assert isinstance(wrong, AppError) and "did you mean 'by_place'?" in str(wrong)


def test_what_retention_has_removed_is_said(
    measured: Measured, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of these tests: what is removed here does not come back."""
    topic = measured.loaded.contract("measured_sales").topics.validated
    admin = AdminClient(measured.connections.librdkafka)
    for done in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        done.result(20)
    found = explained(measured, "by_place")
    assert not found.complete
    [remark] = found.remarks
    assert remark.endswith(f"retention has removed the beginning of {topic}")
    monkeypatch.chdir(services.folder)
    command = ["explain", "by_place", "--app", str(measured.folder), "--window", NINE_TEXT]
    assert CliRunner().invoke(cli, command).exit_code == 1
