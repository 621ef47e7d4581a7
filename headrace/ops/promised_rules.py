"""The alert rules that a contract's promises make: one set for each source, with its own limits."""

from __future__ import annotations

from headrace.contracts.model import Contract
from headrace.metrics import Metric
from headrace.ops.alert_rule import AlertRule, Series, selector
from headrace.ops.limits import limits_of
from headrace.ops.pipeline import HOT_SHARE, HOT_TIMES


def promised_rules(app: str, contract: Contract, metrics: list[Metric]) -> list[AlertRule]:
    return [
        _lag(app, contract),
        *([_freshness(app, contract, metrics[0])] if metrics else []),
        _latency(app, contract),
        _rejections(app, contract),
        _watermark(app, contract),
        _hot(app, contract),
    ]


def _lag(app: str, contract: Contract) -> AlertRule:
    limit = limits_of(contract).freshness_seconds
    one = f"headrace_lag_seconds{selector(app, contract.name, partition='0')}"
    return AlertRule(
        name="HeadraceGrowingLag",
        expr=f"max by (app, source) (headrace_lag_seconds{selector(app, contract.name)}) > {limit:g}",
        wait="2m",
        severity="critical",
        summary=f"{contract.name}: the oldest unread record is older than {limit:g} s",
        runbook="growing-lag",
        labels={"source": contract.name},
        fires_with={"app": app, "source": contract.name},
        bad={one: "0+60x30"},
        good={one: "1+0x30"},
    )


def _freshness(app: str, contract: Contract, metric: Metric) -> AlertRule:
    limit = limits_of(contract).freshness_seconds
    one = f"headrace_metric_freshness_seconds{selector(app, contract.name, metric=metric.name)}"
    all_of_it = f"headrace_metric_freshness_seconds{selector(app, contract.name)}"
    return AlertRule(
        name="HeadraceStaleMetric",
        expr=f"max by (app, source) ({all_of_it}) > {limit:g}",
        wait="1m",
        severity="critical",
        summary=f"{contract.name}: its metrics are more than {limit:g} s behind the log",
        runbook="stale-metric",
        labels={"source": contract.name},
        fires_with={"app": app, "source": contract.name},
        bad={one: "0+60x30"},
        good={one: "1+0x30"},
    )


def _latency(app: str, contract: Contract) -> AlertRule:
    limit = limits_of(contract).latency_seconds
    name = "headrace_end_to_end_latency_seconds_bucket"

    def series(fast: str) -> Series:
        values = {"0.1": fast, "3600.0": "0+600x30", "+Inf": "0+600x30"}
        return {f"{name}{selector(app, contract.name, le=le)}": counts for le, counts in values.items()}

    rates = f"sum by (app, source, le) (rate({name}{selector(app, contract.name)}[5m]))"
    return AlertRule(
        name="HeadraceSlow",
        expr=f"histogram_quantile(0.99, {rates}) > {limit:g}",
        wait="5m",
        severity="warning",
        summary=f"{contract.name}: one record in a hundred takes more than {limit:g} s to its table",
        runbook="sink-backpressure",
        labels={"source": contract.name},
        fires_with={"app": app, "source": contract.name},
        bad=series("0+300x30"),
        good=series("0+600x30"),
    )


def _rejections(app: str, contract: Contract) -> AlertRule:
    limit = limits_of(contract).rejected_ratio
    rejected = f"headrace_records_total{selector(app, contract.name, fate='rejected')}"
    received = f"headrace_records_received_total{selector(app, contract.name)}"
    share = f"sum by (app, source) (rate({rejected}[5m])) / sum by (app, source) (rate({received}[5m]))"
    return AlertRule(
        name="HeadraceDeadLetters",
        expr=f"{share} > {limit:g}",
        wait="5m",
        severity="warning",
        summary=f"{contract.name}: more than {limit * 100:g} percent of the records are rejected",
        runbook="dead-letters",
        labels={"source": contract.name},
        fires_with={"app": app, "source": contract.name},
        bad={rejected: "0+900x30", received: "0+1000x30"},
        good={rejected: "0+0x30", received: "0+1000x30"},
    )


def _watermark(app: str, contract: Contract) -> AlertRule:
    limit = limits_of(contract).watermark_seconds
    delay = f"headrace_watermark_delay_seconds{selector(app, contract.name)}"
    return AlertRule(
        name="HeadraceStalledWatermark",
        expr=f"{delay} > {limit:g}",
        wait="5m",
        severity="warning",
        summary=f"{contract.name}: windows stay open, the watermark is more than {limit:g} s behind",
        runbook="stalled-watermark",
        labels={"source": contract.name},
        fires_with={"app": app, "source": contract.name},
        bad={delay: f"{limit + 1:g}+60x30"},
        good={delay: "5+0x30"},
    )


def _hot(app: str, contract: Contract) -> AlertRule:
    limit = min(HOT_TIMES, HOT_SHARE * contract.partitions)
    ratio = f"headrace_hot_partition_ratio{selector(app, contract.name)}"
    return AlertRule(
        name="HeadraceHotPartition",
        # A single partition always has everything.
        expr=f"{ratio} >= {limit:g} and headrace_partitions{selector(app, contract.name)} > 1",
        wait="10m",
        severity="warning",
        summary=f"{contract.name}: one partition gets {limit:g} times its share or more",
        runbook="hot-partitions",
        labels={"source": contract.name},
        fires_with={"app": app, "source": contract.name},
        bad={ratio: f"{limit:g}+0x30", f"headrace_partitions{selector(app, contract.name)}": "4+0x30"},
        good={ratio: f"{limit / 2:g}+0x30", f"headrace_partitions{selector(app, contract.name)}": "4+0x30"},
    )
