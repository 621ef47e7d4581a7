"""The alert rules of an app for Prometheus: what its contracts promise, and what must hold for every app."""

from __future__ import annotations

from headrace.ops.alert_rule import SOURCE, AlertRule, selector
from headrace.ops.cost_rules import cost_rules
from headrace.ops.lane_rules import lane_rules
from headrace.ops.load import LoadedApp
from headrace.ops.lookup_rules import lookup_rules
from headrace.ops.promised_rules import promised_rules
from headrace.ops.surprise_rules import surprise_rules


def alert_rules(loaded: LoadedApp) -> list[AlertRule]:
    """The promises of every contract first, then the rules over all sources."""
    sources = sorted(loaded.contracts)
    promised = [
        rule
        for source in sources
        for rule in promised_rules(loaded.name, loaded.contract(source), loaded.metrics_of(source))
    ]
    # In the proofs of the other rules, the first source stands for any of them.
    example = sources[0]
    return [
        *promised,
        *_availability(loaded.name, example),
        *cost_rules(loaded.name, example),
        *surprise_rules(loaded.name, example),
        *lookup_rules(loaded.app),
        *lane_rules(loaded),
        _incident(loaded.name),
    ]


def _availability(app: str, source: str) -> list[AlertRule]:
    mine, both = selector(app), selector(app, source)
    log_up = f"headrace_up{selector(app, part='log')}"
    restarts, starts = f"headrace_restarts_total{both}", f"headrace_engine_starts_total{both}"
    again = f"increase(headrace_restarts_total{mine}[15m])"
    return [
        AlertRule(
            name="HeadraceQueryDown",
            expr=f"headrace_query_up{mine} == 0",
            wait="2m",
            severity="critical",
            summary=f"{SOURCE}: its query does not run",
            runbook="restart-storms",
            fires_with={"app": app, "source": source},
            bad={f"headrace_query_up{both}": "0+0x30"},
            good={f"headrace_query_up{both}": "1+0x30"},
        ),
        AlertRule(
            name="HeadraceNoAnswer",
            expr=f"headrace_up{mine} == 0",
            wait="2m",
            severity="critical",
            summary="the {{ $labels.part }} does not answer",
            runbook="restart-storms",
            fires_with={"app": app, "part": "log"},
            bad={log_up: "0+0x30"},
            good={log_up: "1+0x30"},
        ),
        AlertRule(
            name="HeadraceGone",
            expr=f"absent(headrace_up{mine})",
            wait="5m",
            severity="critical",
            summary=f"nobody tells how {app} is: /metrics cannot be read",
            runbook="restart-storms",
            fires_with={"app": app},
            bad={},
            good={log_up: "1+0x30"},
        ),
        AlertRule(
            name="HeadraceRestartStorm",
            expr=f"{again} + increase(headrace_engine_starts_total{mine}[15m]) > 3",
            wait="0m",
            severity="critical",
            summary=f"{SOURCE}: started again more than three times in 15 minutes",
            runbook="restart-storms",
            fires_with={"app": app, "source": source},
            bad={restarts: "0+1x30", starts: "1+0x30"},
            good={restarts: "1+0x30", starts: "1+0x30"},
        ),
        AlertRule(
            name="HeadraceUnaccounted",
            expr=f"headrace_unaccounted_records{mine} != 0",
            wait="1m",
            severity="critical",
            summary=f"{SOURCE}: records without a fate",
            runbook="unaccounted-records",
            fires_with={"app": app, "source": source},
            bad={f"headrace_unaccounted_records{both}": "3+0x30"},
            good={f"headrace_unaccounted_records{both}": "0+0x30"},
        ),
    ]


def _incident(app: str) -> AlertRule:
    one = f"headrace_incidents_open{selector(app, alert='few_orders', severity='critical')}"
    return AlertRule(
        name="HeadraceIncident",
        # The label severity is the rule's own, so the incident's must not get in its way.
        expr=f"sum by (app, alert) (headrace_incidents_open{selector(app)}) > 0",
        wait="0m",
        severity="warning",
        summary="an incident is open: {{ $labels.alert }}",
        runbook="incident-alerts",
        fires_with={"app": app, "alert": "few_orders"},
        bad={one: "1+0x30"},
        good={one: "0+0x30"},
    )
