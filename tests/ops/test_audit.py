"""The audit on a real broker, database and gate: a clean run first, then one tampering at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from headrace.app import Source
from headrace.cli import app as cli
from headrace.connections import Connections
from headrace.contracts.model import Contract
from headrace.errors import AppError, DataError, ServiceError, UsageError
from headrace.local.services import Services
from headrace.log.topics import ensure_topics
from headrace.ops.audit import audit_source
from headrace.ops.audit_bounds import Bounds, parse_bounds
from headrace.ops.audit_report import AuditReport, Fates, Finding
from headrace.ops.gate_query import GateQuery
from headrace.ops.load import load_app
from headrace.store.connection import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP = "audited"
STREAM = "audit_clicks"
CONTRACTS = Path(__file__).parents[2] / "apps" / "turanmart" / "contracts"
Row = tuple[int, bytes | None]  # partition, value


@dataclass(frozen=True)
class Gated:
    """A source that has gone through the gate, and what the audit said before anybody touched anything."""

    folder: Path
    contract: Contract
    connections: Connections
    clean: AuditReport

    def audit(self, bounds: Bounds | None = None, *, recount: bool = False) -> AuditReport:
        return audit_source(
            APP, self.contract, Source(STREAM), self.connections, bounds=bounds, recount=recount
        )

    def publish(self, topic: str, source: str, partition: int = 0) -> None:
        producer = Producer(self.connections.librdkafka)
        producer.produce(topic, b"{}", partition=partition, headers=[("headrace-source", source.encode())])
        assert producer.flush(20) == 0


def click(event_id: str, at: datetime, **more: object) -> bytes:
    who = {"event_id": event_id, "event_time": at.isoformat(), "session_id": "s", "customer_id": "c"}
    what = {"event_type": "page_view", "region": "almaty", "device_type": "web"}
    return json.dumps({**who, **what, "schema_version": "1.0.0", "producer": "test", **more}).encode()


def traffic() -> list[Row]:
    """Partitions 0 to 2 with 100 sound records each, then every other fate; partition 3 stays empty."""
    now = datetime.now(UTC)
    rows: list[Row] = [
        (p, click(f"{p}-{n}", now - timedelta(seconds=100 - n))) for n in range(100) for p in range(3)
    ]
    rows += [(0, click("0-5", now)), (0, click("0-5", now)), (1, click("0-7", now))]  # duplicates
    rows += [(2, click("old", now - timedelta(minutes=20)))]  # late
    rows += [(0, b"{"), (0, None), (1, b"\xff"), (1, click("x", now, price=-1)), (2, click("y", now, page=3))]
    rows += [(2, click("z", now + timedelta(hours=1)))]
    return rows


EXPECTED = {0: Fates(104, 100, 2, 0, 2), 1: Fates(103, 100, 2, 0, 1), 2: Fates(103, 100, 2, 1, 0), 3: Fates()}


@pytest.fixture(scope="module")
def gated(services: Services, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Gated:
    folder = write_app(tmp_path_factory.mktemp("audited"))
    contract = load_app(folder).contract(STREAM)
    connections = Connections(
        services.bootstrap, services.kafka_options, services.java_kafka_options, services.store_url
    )
    ensure_topics(contract, connections.librdkafka)
    Store(connections.store_url).prepare()
    send(contract, connections, traffic())
    gate = GateQuery(
        spark,
        APP,
        contract,
        Source(STREAM, max_batch=200),
        connections,
        checkpoints=str(folder / "checkpoints"),
        slots=folder / "slots",
        salt="salt",
    )
    assert gate.start(available_now=True).awaitTermination(120)
    report = audit_source(APP, contract, Source(STREAM), connections, recount=True)
    return Gated(folder, contract, connections, report)


def write_app(folder: Path) -> Path:
    (folder / "contracts").mkdir()
    [file] = CONTRACTS.glob("clickstream*")
    (folder / "contracts" / f"{STREAM}.yaml").write_text(file.read_text().replace("clickstream", STREAM))
    (folder / "app.py").write_text(f'from headrace import App\n\napp = App("{APP}")\n')
    return folder


def send(contract: Contract, connections: Connections, rows: Sequence[Row]) -> None:
    producer = Producer(connections.librdkafka)
    for partition, value in rows:
        producer.produce(contract.topics.raw, value, partition=partition)
    assert producer.flush(20) == 0


@contextmanager
def tampered(gated: Gated, do: str) -> Iterator[None]:
    """Change the rows of this query in the store, and put them back."""
    mine = f"query = '{APP}.{STREAM}'"
    with psycopg.connect(gated.connections.store_url, autocommit=True) as store:
        for table in ("batches", "ledger"):
            store.execute(f"CREATE TEMP TABLE kept_{table} AS SELECT * FROM headrace.{table} WHERE {mine}")
        assert store.execute(f"{do} AND {mine}").rowcount == 1
        try:
            yield
        finally:
            store.execute(f"DELETE FROM headrace.batches WHERE {mine}")  # and its ledger with it
            for table in ("batches", "ledger"):
                store.execute(f"INSERT INTO headrace.{table} SELECT * FROM kept_{table}")


def of_kind(report: AuditReport, kind: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.kind == kind]


def test_a_clean_run_leaves_nothing_unaccounted(gated: Gated) -> None:
    assert gated.clean.findings == ()
    assert gated.clean.clean and gated.clean.unaccounted == 0
    assert {p.partition: p.fates for p in gated.clean.partitions} == EXPECTED
    assert gated.clean.batches > 1
    assert gated.clean.summary().endswith("duplicate 3 · unaccounted 0")


def test_the_recount_reaches_the_same_numbers_without_the_gate(gated: Gated) -> None:
    assert gated.clean.recount is not None
    assert gated.clean.recount.fates == {p: fates for p, fates in EXPECTED.items() if p != 3}
    assert list(gated.clean.recount.published.values()) == [300, 6, 1]


def test_what_the_gate_has_not_read_is_pending(gated: Gated) -> None:
    send(gated.contract, gated.connections, [(3, b"{}"), (3, b"{}")])
    report = gated.audit(recount=True)
    assert report.partitions[3].pending == 2
    assert not of_kind(report, "gap") and report.unaccounted == 0


def test_a_missing_ledger_row_is_a_gap_with_its_offsets(gated: Gated) -> None:
    with tampered(gated, "DELETE FROM headrace.ledger WHERE batch_id = 1 AND partition = 0"):
        report = gated.audit()
    [gap] = of_kind(report, "gap")
    assert (gap.partition, len(gap.ranges)) == (0, 1)
    first, last = gap.ranges[0]
    assert report.unaccounted == gap.count == last - first + 1 > 0
    assert of_kind(report, "batch"), "the batch received more than its rows say"
    assert gated.audit().unaccounted == 0


@pytest.mark.parametrize("edge", ["min", "max"])
def test_the_first_and_the_last_row_are_missed_too(gated: Gated, edge: str) -> None:
    batch = f"SELECT {edge}(batch_id) FROM headrace.ledger WHERE query = '{APP}.{STREAM}' AND partition = 2"
    delete = f"DELETE FROM headrace.ledger WHERE batch_id = ({batch}) AND partition = 2"
    with tampered(gated, delete):
        report = gated.audit()
    [gap] = of_kind(report, "gap")
    assert gap.partition == 2 and report.unaccounted == gap.count > 0


def test_a_changed_count_breaks_the_identity(gated: Gated) -> None:
    change = "UPDATE headrace.ledger SET accepted = accepted - 1 WHERE batch_id = 0 AND partition = 1"
    with tampered(gated, change):
        report = gated.audit(recount=True)
    assert report.unaccounted == 1
    assert [f.partition for f in of_kind(report, "identity")] == [1]
    assert "99 in the ledger, 100 in the recount" in of_kind(report, "count")[0].note


def test_rows_that_cover_the_same_offsets_overlap(gated: Gated) -> None:
    change = "UPDATE headrace.ledger SET first_offset = first_offset - 3 WHERE batch_id = 1 AND partition = 0"
    with tampered(gated, change):
        [overlap] = of_kind(gated.audit(), "overlap")
    assert overlap.count == 3


def test_what_spark_dropped_or_counted_otherwise_is_found(gated: Gated) -> None:
    change = "UPDATE headrace.batches SET dropped = 4, duplicates = duplicates + 1 WHERE batch_id = 1"
    with tampered(gated, change):
        report = gated.audit()
    assert [f.count for f in of_kind(report, "dropped")] == [4]
    assert "duplicates" in of_kind(report, "batch")[0].note


def test_a_foreign_record_is_named_by_its_own_place(gated: Gated) -> None:
    topic = gated.contract.topics.validated
    gated.publish(topic, "elsewhere.raw.v1/0/1/1", partition=1)
    gated.publish(topic, f"{gated.contract.topics.raw}/0/999999/1", partition=1)
    [foreign] = of_kind(gated.audit(recount=True), "foreign")
    assert (foreign.topic, foreign.partition, foreign.count) == (topic, 1, 2)


def test_a_coordinate_that_is_published_twice_is_named(gated: Gated) -> None:
    gated.publish(gated.contract.topics.late, f"{gated.contract.topics.raw}/2/17/1", partition=2)
    [repeated] = of_kind(gated.audit(recount=True), "repeated")
    assert (repeated.partition, repeated.count, repeated.ranges) == (2, 1, ((17, 17),))
    assert "audit_clicks.raw.v1/2: 1 at 17" in str(repeated)


def test_another_contract_would_have_given_other_fates(gated: Gated) -> None:
    strict = replace(gated.contract, lateness=timedelta(seconds=0), max_future_skew=timedelta(hours=2))
    other = replace(gated, contract=strict)
    wrong = of_kind(other.audit(recount=True), "wrong_fate")
    assert [(f.partition, f.ranges) for f in wrong] == [(2, ((102, 102),))]


def test_a_range_is_widened_to_whole_batches(gated: Gated) -> None:
    report = gated.audit(Bounds({0: 60}, {0: 61}), recount=True)
    [only] = report.partitions
    assert only.first_offset <= 60 < only.end_offset
    assert 0 < only.fates.received == only.end_offset - only.first_offset < 104
    assert report.unaccounted == 0 and not of_kind(report, "count")


def test_a_range_in_time_covers_what_was_logged_in_it(gated: Gated) -> None:
    recent = Bounds(since=datetime.now(UTC) - timedelta(hours=1))
    assert gated.audit(recent).fates == sum(EXPECTED.values(), Fates())
    with pytest.raises(DataError, match="no batch"):
        gated.audit(Bounds(until=datetime.now(UTC) - timedelta(hours=1)))


def test_an_unknown_query_has_an_empty_ledger(gated: Gated) -> None:
    with pytest.raises(DataError, match="holds nothing about nobody"):
        audit_source("nobody", gated.contract, Source(STREAM), gated.connections)


@pytest.mark.parametrize(
    ("start", "end", "since", "until"),
    [
        (["0"], [], None, None),
        (["0:x"], [], None, None),
        (["0:5", "0:6"], [], None, None),
        (["0:5"], ["0:5"], None, None),
        ([], [], "yesterday", None),
        ([], [], "2026-01-02", "2026-01-01"),
        (["0:5"], [], "2026-01-01", None),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(
    start: list[str], end: list[str], since: str | None, until: str | None
) -> None:
    with pytest.raises(UsageError):
        parse_bounds(start, end, since, until)


def test_a_partition_that_does_not_exist_is_refused(gated: Gated) -> None:
    with pytest.raises(UsageError, match="no partition 9"):
        gated.audit(Bounds({9: 0}))


def test_the_command_ends_with_0_or_1(
    gated: Gated, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(services.folder)
    command = ["audit", STREAM, "--app", str(gated.folder)]
    clean = CliRunner().invoke(cli, command)
    assert clean.exit_code == 0, clean.output
    assert "duplicate 3 · unaccounted 0" in clean.output
    with tampered(gated, "DELETE FROM headrace.ledger WHERE batch_id = 1 AND partition = 0"):
        leak = CliRunner().invoke(cli, command)
        document = json.loads(CliRunner().invoke(cli, [*command, "--json"]).output)
    assert leak.exit_code == 1
    assert "leak: gap: audit_clicks.raw.v1/0: " in leak.output
    assert document["clean"] is False and document["sources"][0]["totals"]["unaccounted"] > 0


def test_the_command_names_a_flow_that_lost_an_event(
    gated: Gated, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(services.folder)
    command, query = ["audit", STREAM, "--app", str(gated.folder)], f"{APP}.{STREAM}"
    accepted = gated.clean.fates.accepted
    with psycopg.connect(gated.connections.store_url, autocommit=True) as store:
        for outcome, count in {
            "accepted": accepted,
            "counted": 7,
            "late": 1,
            "filtered": accepted - 9,
        }.items():
            store.execute(
                "INSERT INTO headrace.flow_totals VALUES (%s, %s, 'sessions.visits', %s, %s, NULL)",
                (APP, query, outcome, count),
            )
        try:
            leak = CliRunner().invoke(cli, command)
            document = json.loads(CliRunner().invoke(cli, [*command, "--json"]).output)
        finally:
            store.execute("DELETE FROM headrace.flow_totals WHERE query = %s", (query,))
    assert leak.exit_code == 1
    assert "leak: flow: audit_clicks.raw.v1: 8: sessions visits: 7 events in sessions written" in leak.output
    assert "9 taken, 8 accounted for" in leak.output and "7 in sessions + 1 late" in leak.output
    [flow] = document["sources"][0]["flows"]
    assert (flow["kind"], flow["in_sessions"], flow["unaccounted"]) == ("sessions", 7, 8)


def test_the_command_says_what_is_missing(
    gated: Gated, services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nowhere = CliRunner().invoke(cli, ["audit", "--app", str(gated.folder)])
    assert isinstance(nowhere.exception, ServiceError) and "headrace up" in str(nowhere.exception)
    unknown = CliRunner().invoke(cli, ["audit", "audit_click", "--app", str(gated.folder)])
    assert isinstance(unknown.exception, AppError) and f"did you mean '{STREAM}'" in str(unknown.exception)
