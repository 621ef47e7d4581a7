"""A Grafana dashboard over what /metrics exposes: the accounts, the times, the cost, the metrics."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.ops.load import LoadedApp

WIDTH, HEIGHT, ACROSS = 8, 8, 3


class Panel(NamedTuple):
    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]  # expression, legend
    hint: str


def dashboard(loaded: LoadedApp) -> dict[str, Any]:
    """Import it as JSON; it asks for a Prometheus data source."""
    panels = [_panel(number, panel) for number, panel in enumerate(_panels(loaded.name))]
    return {
        "uid": f"headrace-{loaded.name}"[:40],
        "title": f"Headrace: {loaded.name}",
        "tags": ["headrace"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_data_source(), _source(loaded.name)]},
        "panels": panels,
    }


def _panels(app: str) -> list[Panel]:
    s, a = f'{{app="{app}",source=~"$source"}}', f'{{app="{app}"}}'
    by, fate = "sum by (source)", f'{{app="{app}",source=~"$source",fate="%s"}}'
    latency = f"sum by (source, le) (rate(headrace_end_to_end_latency_seconds_bucket{s}[5m]))"
    batches = f"sum by (source, le) (rate(headrace_batch_duration_seconds_bucket{s}[5m]))"
    return [
        Panel(
            *("Records per second", "short"),
            ((f"{by} (rate(headrace_records_received_total{s}[1m]))", "{{source}}"),),
            "What is read from the raw topics.",
        ),
        Panel(
            *("Fates per second", "short"),
            ((f"sum by (fate) (rate(headrace_records_total{s}[1m]))", "{{fate}}"),),
            "Received = accepted + rejected + late + duplicate.",
        ),
        Panel(
            *("Records without a fate", "short"),
            ((f"headrace_unaccounted_records{s}", "{{source}}"),),
            "Always 0. Runbook: unaccounted-records.",
        ),
        Panel(
            *("Lag in seconds", "s"),
            ((f"max by (source) (headrace_lag_seconds{s})", "{{source}}"),),
            "The age of the oldest unread record. Runbook: growing-lag.",
        ),
        Panel(
            *("Lag in records", "short"),
            ((f'kafka_consumergroup_lag_sum{{group=~"headrace.{app}.*"}}', "{{topic}}"),),
            "Unread records. Runbook: growing-lag.",
        ),
        Panel(
            *("Latency, log to table", "s"),
            (
                (f"histogram_quantile(0.5, {latency})", "{{source}} p50"),
                (f"histogram_quantile(0.99, {latency})", "{{source}} p99"),
                (f"headrace_latency_slo_seconds{s}", "{{source}} promised"),
            ),
            "Runbook: sink-backpressure.",
        ),
        Panel(
            *("Batch duration", "s"),
            ((f"histogram_quantile(0.95, {batches})", "{{source}} p95"),),
            "From the start of a batch to its commit.",
        ),
        Panel(
            *("Where the time goes", "s"),
            ((f"sum by (step) (rate(headrace_step_seconds_total{s}[5m]))", "{{step}}"),),
            "Seconds of each second, by step. Runbook: sink-backpressure.",
        ),
        Panel(
            *("Checkpoint", "s"),
            (
                (
                    f'max by (phase) (headrace_trigger_duration_seconds{{app="{app}",source=~"$source",'
                    'phase=~"walCommit|commitOffsets|stateCommit"})',
                    "{{phase}}",
                ),
            ),
            "Writing offsets and state. Runbook: failing-checkpoints.",
        ),
        Panel(
            *("Failures and restarts", "short"),
            (
                (f"increase(headrace_failures_total{s}[15m])", "{{source}} failures"),
                (f"increase(headrace_restarts_total{s}[15m])", "{{source}} restarts"),
            ),
            "In 15 minutes. Runbook: restart-storms.",
        ),
        Panel(
            *("State", "bytes"),
            ((f"headrace_state_bytes{s}", "{{source}}"),),
            "Event ids kept for duplicates. Runbook: growing-state.",
        ),
        Panel(
            *("Backpressure", "percentunit"),
            ((f"headrace_backpressure_ratio{s}", "{{source}}"),),
            "Above 100 % records come in faster than they are handled. Runbook: sink-backpressure.",
        ),
        Panel(
            *("Watermark behind the wall clock", "s"),
            ((f"headrace_watermark_delay_seconds{s}", "{{source}}"),),
            "Runbook: stalled-watermark.",
        ),
        Panel(
            *("Hot and idle partitions", "short"),
            (
                (f"headrace_hot_partition_ratio{s}", "{{source}} hottest, times its share"),
                (f"headrace_idle_partitions{s}", "{{source}} idle"),
            ),
            "Runbook: hot-partitions.",
        ),
        Panel(
            *("Rejections by reason", "short"),
            ((f"sum by (reason) (rate(headrace_rejections_total{s}[5m]))", "{{reason}}"),),
            "Per second. Runbooks: dead-letters, schema-drift.",
        ),
        Panel(
            *("Late and repeated records", "percentunit"),
            tuple(
                (
                    f"{by} (rate(headrace_records_total{fate % name}[5m]))"
                    f" / {by} (rate(headrace_records_received_total{s}[5m]))",
                    f"{{{{source}}}} {name}",
                )
                for name in ("late", "duplicate")
            ),
            "Runbooks: late-surprises, duplicate-outputs.",
        ),
        Panel(
            *("Metrics: freshness", "s"),
            (
                (f"max by (source) (headrace_metric_freshness_seconds{s})", "{{source}}"),
                (f"max by (source) (headrace_metric_freshness_slo_seconds{s})", "{{source}} promised"),
            ),
            "The age of the oldest record that the tables do not show yet. Runbook: stale-metric.",
        ),
        Panel(
            *("Metrics: corrections and late events", "short"),
            (
                (f"sum by (metric) (rate(headrace_metric_corrections_total{s}[5m]))", "{{metric}} corrected"),
                (f"sum by (metric) (rate(headrace_metric_late_events_total{s}[5m]))", "{{metric}} late"),
            ),
            "Per second. Runbook: late-surprises.",
        ),
        Panel(
            *("Flows: what became of events", "short"),
            (
                (
                    f'sum by (flow, outcome) (rate(headrace_flow_events_total{{app="{app}",'
                    'source=~"$source",outcome!="filtered"}[5m]))',
                    "{{flow}} {{outcome}}",
                ),
            ),
            "Per second, by flow and outcome. What is filtered is left out.",
        ),
        Panel(
            *("Flows: what they keep", "short"),
            ((f"sum by (flow) (headrace_flow_state_rows{s})", "{{flow}}"),),
            "Waiting and remembered events, sessions that are not final. Runbook: growing-state.",
        ),
        Panel(
            *("Flows: alerts and decisions", "short"),
            (
                (f"rate(headrace_pattern_alerts_total{a}[5m])", "{{pattern}} alerts"),
                (
                    f'rate(headrace_signals_total{{app="{app}",decision!="allow"}}[5m])',
                    "{{signals}} {{decision}}",
                ),
            ),
            "Per second.",
        ),
        Panel(
            *("Real-time lane: latency", "s"),
            ((f"headrace_realtime_latency_seconds{s}", "{{source}} {{rank}}"),),
            "From the log to the signal, last batch. Runbook: realtime-lane.",
        ),
        Panel(
            *("Real-time lane: records and signals", "short"),
            (
                (f"rate(headrace_realtime_records_read_total{s}[15m])", "{{source}} read"),
                (f"rate(headrace_realtime_signals_sent_total{s}[15m])", "{{source}} sent"),
            ),
            "Per second; told when a batch ends. Runbook: realtime-lane.",
        ),
        Panel(
            *("Enrichment: hit rate", "percentunit"),
            (
                (
                    f'sum by (enrich) (rate(headrace_enriched_total{{app="{app}",'
                    'outcome=~"found|retried"}[15m]))'
                    f' / sum by (enrich) (rate(headrace_enriched_total{{app="{app}",'
                    'outcome!="no_key"}[15m]))',
                    "{{enrich}}",
                ),
            ),
            "Of the events with a key. Runbook: unknown-keys.",
        ),
    ]


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.hint,
        "datasource": source,
        "gridPos": {
            "x": number % ACROSS * WIDTH,
            "y": number // ACROSS * HEIGHT,
            "w": WIDTH,
            "h": HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": expression, "legendFormat": legend, "datasource": source}
            for index, (expression, legend) in enumerate(panel.queries)
        ],
    }


def _data_source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _source(app: str) -> dict[str, Any]:
    return {
        "name": "source",
        "type": "query",
        "label": "Source",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": f'label_values(headrace_partitions{{app="{app}"}}, source)',
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }
