"""Alert rules about records that are not what one expects: late, repeated, of another shape."""

from __future__ import annotations

from headrace.ops.alert_rule import SOURCE, AlertRule, selector
from headrace.ops.limits import DUPLICATE, LATE, LATE_FOR_METRIC


def surprise_rules(app: str, source: str) -> list[AlertRule]:
    """`source` stands for any source in the proofs."""
    return [
        _share_of("late", LATE, app, source, "HeadraceLateRecords", "are late", "late-surprises"),
        _share_of(
            *("duplicate", DUPLICATE, app, source),
            *("HeadraceDuplicates", "are repeats", "duplicate-outputs"),
        ),
        _late_for_metric(app, source),
        _drift(app, source),
    ]


def _share_of(
    fate: str, limit: float, app: str, source: str, name: str, said: str, runbook: str
) -> AlertRule:
    counted = f"headrace_records_total{selector(app, source, fate=fate)}"
    received = f"headrace_records_received_total{selector(app, source)}"
    of_fate = f"sum by (app, source) (rate(headrace_records_total{selector(app, fate=fate)}[10m]))"
    return AlertRule(
        name=name,
        expr=f"{of_fate} / {_received(app)} > {limit:g}",
        wait="10m",
        severity="warning",
        summary=f"{SOURCE}: more than {limit:.0%} of the records {said}",
        runbook=runbook,
        fires_with={"app": app, "source": source},
        bad={counted: "0+500x40", received: "0+1000x40"},
        good={counted: "0+1x40", received: "0+1000x40"},
        minutes=40,
    )


def _late_for_metric(app: str, source: str) -> AlertRule:
    missed = f"headrace_metric_late_events_total{selector(app, source, metric='any')}"
    received = f"headrace_records_received_total{selector(app, source)}"
    late = f"sum by (app, source, metric) (rate(headrace_metric_late_events_total{selector(app)}[10m]))"
    return AlertRule(
        name="HeadraceLateForMetric",
        expr=f"{late} / on (app, source) group_left {_received(app)} > {LATE_FOR_METRIC:g}",
        wait="10m",
        severity="warning",
        summary="{{ $labels.metric }}: "
        + f"more than {LATE_FOR_METRIC:.0%} of the events miss their windows",
        runbook="late-surprises",
        fires_with={"app": app, "source": source, "metric": "any"},
        bad={missed: "0+100x40", received: "0+1000x40"},
        good={missed: "0+1x40", received: "0+1000x40"},
        minutes=40,
    )


def _drift(app: str, source: str) -> AlertRule:
    """Three times as many as in the hour before, and more than one a second: somebody sends another shape."""
    broken = f"headrace_schema_failures_total{selector(app, source)}"
    failures = f"headrace_schema_failures_total{selector(app)}"
    return AlertRule(
        name="HeadraceSchemaDrift",
        expr=f"rate({failures}[5m]) > 3 * rate({failures}[1h] offset 10m) + 1",
        wait="5m",
        severity="warning",
        summary=f"{SOURCE}: suddenly many records break the contract",
        runbook="schema-drift",
        fires_with={"app": app, "source": source},
        bad={broken: "0+0x90 0+600x10"},
        good={broken: "0+30x100"},
        minutes=100,
    )


def _received(app: str) -> str:
    return f"sum by (app, source) (rate(headrace_records_received_total{selector(app)}[10m]))"
