"""Alert rules and dashboard: current, proven by Prometheus' own tool, and about metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from headrace.ops.load import load_app
from headrace.ops.monitoring_files import DASHBOARD, RULES, TESTS, monitoring_files
from headrace.serve.metric_names import BY_NAME
from headrace.serve.runbooks import pages

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "apps/turanmart/monitoring"
PROMTOOL = shutil.which("promtool")
NAME = re.compile(r"\b(?:headrace|kafka)_[a-z_]+")

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")


def promtool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, *arguments], cwd=folder, capture_output=True, text=True, timeout=120)


def test_the_shipped_files_are_current() -> None:
    made = monitoring_files(load_app(ROOT / "apps/turanmart"))
    assert {file.name: file.read_text() for file in SHIPPED.iterdir()} == made


def test_limits_come_from_the_contracts() -> None:
    [group] = yaml.safe_load((SHIPPED / RULES).read_text())["groups"]
    limits = {
        (rule["alert"], rule["labels"].get("source")): rule["expr"].rpartition("> ")[2]
        for rule in group["rules"]
    }
    contracts = load_app(ROOT / "apps/turanmart").contracts
    for source, contract in contracts.items():
        assert contract.freshness and contract.latency and contract.error_rate
        assert float(limits["HeadraceGrowingLag", source]) == contract.freshness.total_seconds()
        assert float(limits["HeadraceSlow", source]) == contract.latency.total_seconds()
        assert float(limits["HeadraceDeadLetters", source]) == contract.error_rate


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    done = promtool(SHIPPED, "check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_every_rule_fires_and_keeps_still_as_it_should() -> None:
    done = promtool(SHIPPED, "test", "rules", TESTS)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_a_rule_that_does_not_fire_is_found(tmp_path: Path) -> None:
    rules = yaml.safe_load((SHIPPED / RULES).read_text())
    tests = yaml.safe_load((SHIPPED / TESTS).read_text())
    kept = "HeadraceUnaccounted"
    rules["groups"][0]["rules"] = [r for r in rules["groups"][0]["rules"] if r["alert"] == kept]
    rules["groups"][0]["rules"][0]["expr"] += " + 1e9 > 2e9"
    tests["tests"] = [t for t in tests["tests"] if t["alert_rule_test"][0]["alertname"] == kept]
    (tmp_path / RULES).write_text(yaml.safe_dump(rules))
    (tmp_path / TESTS).write_text(yaml.safe_dump(tests))
    assert promtool(tmp_path, "test", "rules", TESTS).returncode == 1


def test_rules_and_dashboard_speak_of_metrics_that_exist() -> None:
    suffix = re.compile(r"_(bucket|sum|count)$")
    for name in (RULES, DASHBOARD):
        text = (SHIPPED / name).read_text()
        used = {word for word in NAME.findall(text) if word not in BY_NAME}
        assert {word for word in used if suffix.sub("", word) not in BY_NAME} == set(), name


def test_the_dashboard_has_sound_panels() -> None:
    board = json.loads((SHIPPED / DASHBOARD).read_text())
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) > 12
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]}
    assert len(places) == len(board["panels"])
    assert all(target["expr"] for panel in board["panels"] for target in panel["targets"])


@needs_promtool
@pytest.mark.parametrize(
    ("base_url", "starts"), [("", "http://headrace.example:8080"), ("https://hr.org/x/", "")]
)
def test_every_alert_that_fires_links_to_a_runbook_that_is_served(
    tmp_path: Path, base_url: str, starts: str
) -> None:
    """promtool fills in what Prometheus would: the proof of each rule has the link as people get it."""
    for name, text in monitoring_files(load_app(ROOT / "apps/turanmart"), base_url).items():
        (tmp_path / name).write_text(text)
    done = promtool(tmp_path, "test", "rules", TESTS)
    assert done.returncode == 0, done.stdout + done.stderr
    tests = yaml.safe_load((tmp_path / TESTS).read_text())["tests"]
    links = {
        e["exp_annotations"]["runbook_url"] for t in tests for e in t["alert_rule_test"][0]["exp_alerts"]
    }
    served = {f"{(starts or base_url).rstrip('/')}/runbooks/{page}" for page in pages()}
    assert links and links <= served


def test_the_command_writes_them_with_links(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "headrace.cli", "monitoring", str(ROOT / "apps/turanmart"))
    done = subprocess.run(
        [*command, "--output", "rules", "--base-url", "https://hr.example.com/"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"rules/{name}" for name in (RULES, TESTS, DASHBOARD)]
    text = (tmp_path / "rules" / RULES).read_text()
    assert "runbook_url: https://hr.example.com/runbooks/growing-lag" in text
