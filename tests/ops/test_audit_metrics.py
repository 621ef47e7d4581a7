"""The accounts of the metrics under audit: a clean run first, then one tampering at a time."""

from __future__ import annotations

import json

import psycopg
import pytest
from typer.testing import CliRunner

from headrace.cli import app as cli
from headrace.local.services import Services
from headrace.ops.audit import audit_source
from headrace.ops.audit_bounds import Bounds
from headrace.ops.audit_metrics import metric_audits
from headrace.ops.audit_report import AuditReport, Finding, MetricAudit
from headrace.store.connection import Store
from tests.ops.conftest import Measured


def audit(measured: Measured, *, declared: bool = True, bounds: Bounds | None = None) -> AuditReport:
    loaded = measured.loaded
    contract = loaded.contract("measured_sales")
    names = loaded.accounts_of(contract.name) if declared else []
    source = loaded.source(contract.name)
    return audit_source(loaded.name, contract, source, measured.connections, bounds=bounds, metrics=names)


def accounts(report: AuditReport) -> dict[str, MetricAudit]:
    return {audit.metric: audit for audit in report.metrics}


def leak(report: AuditReport) -> Finding:
    assert not report.clean
    [finding] = report.findings
    assert finding.kind == "metric"
    return finding


def test_every_accepted_event_is_counted_filtered_or_late(measured: Measured) -> None:
    report = audit(measured)
    assert report.clean and report.fates.accepted == 11
    assert accounts(report)["by_place"] == MetricAudit("by_place", 11, 8, 0, 3)
    assert accounts(report)["large_sales"] == MetricAudit("large_sales", 11, 6, 2, 3)
    assert accounts(report)["two_minutes"] == MetricAudit("two_minutes", 11, 11, 0, 0)
    assert accounts(report)["so_far"] == MetricAudit("so_far", 11, 11, 0, 0), "shown or not"
    assert len(report.metrics) == 7


def test_sessions_have_accounts_too(measured: Measured) -> None:
    [visits] = audit(measured).flows
    [(late,)] = measured.query("SELECT count(*) FROM headrace.late_events WHERE metric = 'card_visits'")
    [(events,)] = measured.query("SELECT sum(events) FROM measured.card_visits")
    assert (visits.kind, visits.accepted, visits.filtered) == ("sessions", 11, 1)
    assert visits.outcomes == {"in_sessions": events, "late": late}
    assert late == 3  # e9 and e10 by their clock, e11 by the watermark
    with measured.tampered(
        "UPDATE headrace.metric_ledger SET late = late + 1 WHERE metric = 'card_visits' AND batch_id = 1"
    ):
        [finding] = audit(measured).findings
        assert finding.kind == "flow" and "sessions card_visits: " in str(finding)
        assert "batches 1: accepted is not counted + filtered + late" in str(finding)


def test_the_key_of_a_session_is_masked(measured: Measured) -> None:
    cards = measured.query("SELECT DISTINCT card FROM measured.card_visits")
    assert len(cards) == 4 and not any("card of" in str(card) for (card,) in cards)


def test_a_changed_count_names_the_metric_and_the_batch(measured: Measured) -> None:
    change = (
        "UPDATE headrace.metric_ledger SET counted = counted + 2 WHERE metric = 'crowded' AND batch_id = 1"
    )
    with measured.tampered(change):
        report = audit(measured)
    finding = leak(report)
    assert finding.count == 2 and "metric crowded, batches 1:" in str(finding)
    assert (accounts(report)["crowded"].unaccounted, accounts(report)["by_place"].unaccounted) == (2, 0)


def test_errors_that_cancel_out_are_two(measured: Measured) -> None:
    change = (
        "UPDATE headrace.metric_ledger SET late = late + CASE batch_id WHEN 0 THEN 1 ELSE -1 END"
        " WHERE metric = 'by_card' AND batch_id IN (0, 3)"
    )
    with measured.tampered(change):
        finding = leak(audit(measured))
    assert finding.count == 2 and "batches 0, 3:" in finding.note


def test_accounts_that_agree_only_with_themselves_are_found(measured: Measured) -> None:
    change = (
        "UPDATE headrace.metric_ledger SET accepted = accepted - 1, counted = counted - 1"
        " WHERE metric = 'by_place' AND batch_id = 0"
    )
    with measured.tampered(change):
        assert leak(audit(measured)).count == 1


def test_a_batch_without_a_row_is_unaccounted_for(measured: Measured) -> None:
    with measured.tampered("DELETE FROM headrace.metric_ledger WHERE metric = 'by_place' AND batch_id = 2"):
        finding = leak(audit(measured))
    assert finding.count == 3 and "metric by_place, batches 2:" in finding.note


def test_a_metric_may_begin_late_and_end_early(measured: Measured) -> None:
    delete = "DELETE FROM headrace.metric_ledger WHERE metric = 'by_place' AND batch_id"
    with measured.tampered(f"{delete} < 2"):
        report = audit(measured)
        assert report.clean and accounts(report)["by_place"].accepted == 5
    with measured.tampered(f"{delete} > 2"):
        report = audit(measured, declared=False)
        assert report.clean and accounts(report)["by_place"].accepted == 9
        assert "batches 3-4:" in leak(audit(measured)).note, "a declared metric has a row in the last batch"


def test_a_range_takes_the_batches_that_it_touches(measured: Measured) -> None:
    change = "UPDATE headrace.metric_ledger SET filtered = 7 WHERE metric = 'by_place' AND batch_id = 0"
    with measured.tampered(change):
        assert audit(measured, bounds=Bounds({0: 4})).clean
        report = audit(measured, bounds=Bounds({0: 0}, {0: 4}))
    assert leak(report).count == 7
    assert accounts(report)["by_place"].accepted == 6


def test_a_store_that_never_had_a_metric_shows_none(measured: Measured) -> None:
    url = measured.connections.store_url
    with psycopg.connect(url, autocommit=True) as store:
        store.execute("CREATE DATABASE without_metrics")
        try:
            here = Store(psycopg.conninfo.make_conninfo(url, dbname="without_metrics"))
            here.prepare()
            found = here.transact(lambda connection: metric_audits(connection, "q", {0: (0, 9)}, ["m"]))
            here.close()
        finally:
            store.execute("DROP DATABASE without_metrics")
    assert found == ()


def test_the_command_shows_the_accounts(
    measured: Measured, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(services.folder)
    command = ["audit", "--app", str(measured.folder)]
    clean = CliRunner().invoke(cli, command)
    assert clean.exit_code == 0, clean.output
    [line] = [line.split() for line in clean.output.splitlines() if "large_sales" in line]
    assert line == ["measured_sales", "large_sales", "11", "6", "2", "3", "0"]
    with measured.tampered(
        "UPDATE headrace.metric_ledger SET late = 9 WHERE metric = 'crowded' AND batch_id = 1"
    ):
        wrong = CliRunner().invoke(cli, command)
        document = json.loads(CliRunner().invoke(cli, [*command, "--json"]).output)
    assert wrong.exit_code == 1 and "leak: metric: " in wrong.output
    [crowded] = [m for m in document["sources"][0]["metrics"] if m["metric"] == "crowded"]
    assert (crowded["unaccounted"], crowded["batches"]) == (9, [1])
