"""Alert rules about what the queries cost: state, time, checkpoints."""

from __future__ import annotations

from headrace.ops.alert_rule import SOURCE, AlertRule, selector
from headrace.ops.limits import CHECKPOINT_SECONDS, CHECKPOINT_STEPS, LARGE_STATE, STATE_GROWTH


def cost_rules(app: str, source: str) -> list[AlertRule]:
    """`source` stands for any source in the proofs."""
    mine, both = selector(app), selector(app, source)
    rows, size = f"headrace_state_rows{both}", f"headrace_state_bytes{both}"
    ratio = f"headrace_backpressure_ratio{both}"
    commit = f"headrace_trigger_duration_seconds{selector(app, source, phase='walCommit')}"
    steps = "|".join(CHECKPOINT_STEPS)
    commits = f'headrace_trigger_duration_seconds{{app="{app}",phase=~"{steps}"}}'
    return [
        AlertRule(
            name="HeadraceGrowingState",
            expr=f"headrace_state_rows{mine} > {STATE_GROWTH:g} * (headrace_state_rows{mine} offset 1d)"
            f" and headrace_state_bytes{mine} > {LARGE_STATE}",
            wait="30m",
            severity="warning",
            summary=f"{SOURCE}: the state is large and has grown by half within a day",
            runbook="growing-state",
            fires_with={"app": app, "source": source},
            bad={rows: "1000+1000x1600", size: "400000000+0x1600"},
            good={rows: "1000+0x1600", size: "400000000+0x1600"},
            minutes=1600,
        ),
        AlertRule(
            name="HeadraceSinkBackpressure",
            expr=f"avg_over_time(headrace_backpressure_ratio{mine}[5m]) > 1.1",
            wait="5m",
            severity="warning",
            summary=f"{SOURCE}: records come in faster than they are handled",
            runbook="sink-backpressure",
            fires_with={"app": app, "source": source},
            bad={ratio: "2+0x30"},
            good={ratio: "0.6+0x30"},
        ),
        AlertRule(
            name="HeadraceFailingCheckpoint",
            expr=f"max by (app, source) ({commits}) > {CHECKPOINT_SECONDS:g}",
            wait="5m",
            severity="warning",
            summary=f"{SOURCE}: writing the checkpoint takes more than {CHECKPOINT_SECONDS:g} s",
            runbook="failing-checkpoints",
            fires_with={"app": app, "source": source},
            bad={commit: "9+0x30"},
            good={commit: "0.05+0x30"},
        ),
    ]
