"""Alert rules about real-time lanes, for apps that have some."""

from __future__ import annotations

from headrace.ops.alert_rule import SOURCE, AlertRule, selector
from headrace.ops.load import LoadedApp

RUNBOOK = "realtime-lane"


def lane_rules(loaded: LoadedApp) -> list[AlertRule]:
    """In the proofs, the first source with a lane stands for any of them."""
    with_lane = [source for source in sorted(loaded.contracts) if loaded.lane_of(source)]
    return [_down(loaded.name, with_lane[0]), _silent(loaded.name, with_lane[0])] if with_lane else []


def _down(app: str, source: str) -> AlertRule:
    up = f"headrace_realtime_up{selector(app, source)}"
    return AlertRule(
        name="HeadraceLaneDown",
        expr=f"headrace_realtime_up{selector(app)} == 0",
        wait="2m",
        severity="critical",
        summary=f"{SOURCE}: its real-time lane does not run",
        runbook=RUNBOOK,
        fires_with={"app": app, "source": source},
        bad={up: "0+0x30"},
        good={up: "1+0x30"},
    )


def _silent(app: str, source: str) -> AlertRule:
    """A lane tells when a batch ends: what the source got ten minutes ago must have been told of by now."""
    mine, both = selector(app), selector(app, source)
    came = f"increase(headrace_records_received_total{mine}[10m] offset 10m) > 0"
    read = f"increase(headrace_realtime_records_read_total{mine}[20m]) > 0"
    up = {f"headrace_realtime_up{both}": "1+0x60"}
    received = {f"headrace_records_received_total{both}": "0+600x60"}
    told = f"headrace_realtime_records_read_total{both}"
    return AlertRule(
        name="HeadraceLaneSilent",
        expr=f"({came} and on (app, source) headrace_realtime_up{mine}) unless on (app, source) {read}",
        wait="5m",
        severity="critical",
        summary=f"{SOURCE}: records come in, and its real-time lane has read none in 20 minutes",
        runbook=RUNBOOK,
        fires_with={"app": app, "source": source},
        bad={**up, **received, told: "9000+0x60"},
        good={**up, **received, told: "0+0x4 3000+0x4 6000+0x4 9000+0x4 12000+0x4 15000+0x4 18000+3000x30"},
        minutes=40,
    )
