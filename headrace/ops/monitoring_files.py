"""The files that an existing Prometheus and Grafana take: alert rules, their tests, a dashboard."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from headrace.ops.alert_rule import AlertRule, Series
from headrace.ops.alert_rules import alert_rules
from headrace.ops.grafana import dashboard
from headrace.ops.load import LoadedApp

RULES, TESTS, DASHBOARD = "headrace-alerts.yml", "headrace-alerts-test.yml", "headrace-dashboard.json"
_HEAD = (
    "# Made by `headrace monitoring` from the contracts of {app}; make it again when they change.\n"
    "# Links lead to the runbooks of the `headrace serve` that Prometheus asks; --base-url names another"
    " address.\n"
)
# Filled in by Prometheus when an alert fires: it knows from /metrics where the runbooks are.
_FOUND = """{{ with query "headrace_serve_info{app='%s'}" }}{{ . | first | label "url" }}{{ end }}"""
_EXAMPLE = "http://headrace.example:8080"
_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")


def monitoring_files(loaded: LoadedApp, base_url: str = "") -> dict[str, str]:
    """File name → text. `base_url` is where `headrace serve` is reached, for links to runbooks.

    Without it, Prometheus looks it up when an alert fires.
    """
    rules, head = alert_rules(loaded), _HEAD.format(app=loaded.name)
    series = {f'headrace_serve_info{{app="{loaded.name}",url="{_EXAMPLE}"}}': "1+0x"} if not base_url else {}
    return {
        RULES: head + _yaml({"groups": [_group(loaded.name, rules, base_url or _FOUND % loaded.name)]}),
        TESTS: head + _yaml(_tests(rules, base_url or _EXAMPLE, series)),
        DASHBOARD: json.dumps(dashboard(loaded), indent=1) + "\n",
    }


def runbook_url(rule: AlertRule, base_url: str) -> str:
    return f"{base_url.rstrip('/')}/runbooks/{rule.runbook}"


def _group(app: str, rules: list[AlertRule], base_url: str) -> dict[str, Any]:
    return {"name": f"headrace-{app}", "rules": [_rule(rule, base_url) for rule in rules]}


def _rule(rule: AlertRule, base_url: str) -> dict[str, Any]:
    return {
        "alert": rule.name,
        "expr": rule.expr,
        "for": rule.wait,
        "labels": {"severity": rule.severity, **rule.labels},
        "annotations": {"summary": rule.summary, "runbook_url": runbook_url(rule, base_url)},
    }


def _tests(rules: list[AlertRule], base_url: str, server: Series) -> dict[str, Any]:
    """`server` are series that tell where the runbooks are; they last as long as a test."""
    tests = []
    for rule in rules:
        there = {name: f"{values}{rule.minutes}" for name, values in server.items()}
        bad = {**there, **rule.bad}
        tests += [_test(rule, bad, [_expected(rule, base_url)]), _test(rule, rule.good, [])]
    return {"rule_files": [RULES], "evaluation_interval": "5m", "tests": tests}


def _test(rule: AlertRule, series: Series, expected: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"eval_time": f"{rule.minutes}m", "alertname": rule.name, "exp_alerts": expected}
        ],
    }


def _expected(rule: AlertRule, base_url: str) -> dict[str, Any]:
    labels = {"severity": rule.severity, **rule.fires_with}
    return {
        "exp_labels": labels,
        "exp_annotations": {
            "summary": _LABEL.sub(lambda found: labels[found[1]], rule.summary),
            "runbook_url": runbook_url(rule, base_url),
        },
    }


def _yaml(value: dict[str, Any]) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110))
