"""Every name that /metrics exposes, once: its kind, its labels and what it means."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["gauge", "counter", "histogram"]


class MetricName(NamedTuple):
    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str


_GROUP = ("consumergroup", "group", "topic", "partition")
_TOPIC = ("topic", "partition")
_SOURCE = ("app", "source")
_PARTITION = (*_SOURCE, "partition")
_METRIC = (*_SOURCE, "metric")
_FLOW = (*_SOURCE, "flow", "kind", "side")

NAMES = (
    # As kafka_exporter and kafka-lag-exporter name them, for dashboards that are there already.
    MetricName("kafka_topic_partitions", "gauge", ("topic",), "partitions of a raw topic"),
    MetricName("kafka_topic_partition_current_offset", "gauge", _TOPIC, "end of a partition"),
    MetricName("kafka_topic_partition_oldest_offset", "gauge", _TOPIC, "first offset that is still there"),
    MetricName("kafka_consumergroup_current_offset", "gauge", _GROUP, "next offset that the gate will read"),
    MetricName("kafka_consumergroup_lag", "gauge", _GROUP, "unread records of a partition"),
    MetricName("kafka_consumergroup_lag_sum", "gauge", _GROUP[:3], "unread records of a topic"),
    MetricName(
        "kafka_consumergroup_group_lag_seconds",
        *("gauge", _GROUP[1:]),
        "age of the next unread record, read from the log; 0 when nothing is unread",
    ),
    MetricName("headrace_up", "gauge", ("app", "part"), "1 if the log, the store or the engine answers"),
    MetricName(
        *("headrace_serve_info", "gauge", ("app", "url")),
        "always 1; where the dashboard and the runbooks are, as whoever asks for /metrics reaches them",
    ),
    MetricName("headrace_query_up", "gauge", _SOURCE, "1 while the query of a source runs"),
    MetricName("headrace_records_received_total", "counter", _SOURCE, "records read from the raw topic"),
    MetricName("headrace_records_total", "counter", (*_SOURCE, "fate"), "records by fate"),
    MetricName("headrace_unaccounted_records", "gauge", _SOURCE, "records without a fate: always 0"),
    MetricName(
        "headrace_rejections_total",
        *("counter", (*_SOURCE, "reason")),
        "broken rules of rejected records, by reason; a record may have several",
    ),
    MetricName(
        "headrace_schema_failures_total",
        *("counter", _SOURCE),
        "broken rules that speak of the contract, that is all reasons but `future`",
    ),
    MetricName("headrace_rejected_ratio", "gauge", _SOURCE, "share of rejected records, last minute"),
    MetricName("headrace_duplicate_ratio", "gauge", _SOURCE, "share of duplicates, last minute"),
    MetricName("headrace_lag_seconds", "gauge", _PARTITION, "age of the next unread record of a partition"),
    MetricName(
        "headrace_end_to_end_latency_seconds",
        *("histogram", _SOURCE),
        "from log time to the commit in the store, for every record; records of a batch and partition count"
        " with the oldest of them, so the truth is never higher",
    ),
    MetricName("headrace_batch_duration_seconds", "histogram", _SOURCE, "from a batch's start to its commit"),
    MetricName(
        "headrace_last_batch_timestamp_seconds", "gauge", _SOURCE, "when the last batch was committed"
    ),
    MetricName(
        "headrace_step_seconds_total",
        *("counter", (*_SOURCE, "step")),
        "time in each step of the batches: decode, judge, publish, views, record",
    ),
    MetricName(
        "headrace_trigger_duration_seconds",
        *("gauge", (*_SOURCE, "phase")),
        "time of the last trigger in each of Spark's phases; walCommit, commitOffsets and stateCommit write"
        " the checkpoint",
    ),
    MetricName(
        "headrace_sink_seconds",
        *("gauge", (*_SOURCE, "sink")),
        "time that the last batch waited for the topics (`log`), beyond its work for metrics that goes on"
        " meanwhile, and for the tables (`store`)",
    ),
    MetricName("headrace_input_rows_per_second", "gauge", _SOURCE, "how fast records came in, last batch"),
    MetricName("headrace_processed_rows_per_second", "gauge", _SOURCE, "how fast they were handled"),
    MetricName(
        "headrace_backpressure_ratio",
        *("gauge", _SOURCE),
        "input rate over processed rate of the last batch; above 1 the query falls behind",
    ),
    MetricName("headrace_failures_total", "counter", _SOURCE, "how often the query has failed"),
    MetricName("headrace_restarts_total", "counter", _SOURCE, "how often it was started again"),
    MetricName("headrace_engine_starts_total", "counter", _SOURCE, "how often an engine began to run it"),
    MetricName("headrace_report_age_seconds", "gauge", _SOURCE, "time since the engine's last report"),
    MetricName("headrace_state_rows", "gauge", _SOURCE, "event ids that Spark remembers for duplicates"),
    MetricName("headrace_state_bytes", "gauge", _SOURCE, "memory and files of the state on the engine"),
    MetricName(
        "headrace_watermark_delay_seconds",
        *("gauge", _SOURCE),
        "how far the watermark is behind the wall clock",
    ),
    MetricName("headrace_clock_timestamp_seconds", "gauge", _PARTITION, "clock of a partition"),
    MetricName("headrace_partitions", "gauge", _SOURCE, "partitions of the source"),
    MetricName("headrace_idle_partitions", "gauge", _SOURCE, "partitions that are silent"),
    MetricName(
        "headrace_hot_partition_ratio",
        *("gauge", _SOURCE),
        "largest share of a partition over a fair share, last minute; 1 is even",
    ),
    MetricName(
        "headrace_metric_late_events_total",
        *("counter", _METRIC),
        "accepted events that missed all of their windows of a metric",
    ),
    MetricName("headrace_metric_corrections_total", "counter", _METRIC, "published rows that changed"),
    MetricName(
        "headrace_metric_freshness_seconds",
        *("gauge", _METRIC),
        "age of the oldest record that the metric does not show yet; 0 when it shows all",
    ),
    MetricName("headrace_metric_freshness_slo_seconds", "gauge", _METRIC, "what the contract promises"),
    MetricName("headrace_latency_slo_seconds", "gauge", _SOURCE, "promised latency of 99 of 100 records"),
    MetricName("headrace_error_rate_slo_ratio", "gauge", _SOURCE, "promised largest share of rejections"),
    MetricName(
        "headrace_flow_events_total",
        *("counter", (*_FLOW, "outcome")),
        "accepted events by what a flow made of them, `filtered` included; `side` is empty but for joins",
    ),
    MetricName(
        "headrace_flow_late_events_total",
        *("counter", _FLOW),
        "events that came too late for a flow; signals score such events with what they still remember",
    ),
    MetricName(
        "headrace_flow_state_rows",
        *("gauge", _FLOW),
        "what a flow keeps for later events: waiting events of a join, remembered events of a pattern or of"
        " signals, sessions that are not final",
    ),
    MetricName("headrace_flow_state_bytes", "gauge", _FLOW, "size of the table that keeps it"),
    MetricName(
        "headrace_pattern_matches_total", "counter", ("app", "pattern"), "matches, also those in quiet times"
    ),
    MetricName("headrace_pattern_alerts_total", "counter", ("app", "pattern"), "alerts that patterns raised"),
    MetricName(
        "headrace_sessions_final_total", "counter", ("app", "sessions"), "sessions that have become final"
    ),
    MetricName(
        "headrace_signals_total", "counter", ("app", "signals", "decision"), "scored events by decision"
    ),
    MetricName(
        "headrace_realtime_up",
        *("gauge", _SOURCE),
        "1 while the real-time lane of a source runs; only of sources that have one",
    ),
    MetricName(
        "headrace_realtime_records_read_total",
        *("counter", _SOURCE),
        "records that a lane has read; counted when its batch ends, and again where a crash repeats it",
    ),
    MetricName(
        "headrace_realtime_signals_sent_total",
        *("counter", _SOURCE),
        "signals that a lane has sent, counted in the same way",
    ),
    MetricName(
        "headrace_realtime_latency_seconds",
        *("gauge", (*_SOURCE, "rank")),
        "from the log to the sending, `p50` and `p99` of the last batch that sent something",
    ),
    MetricName(
        "headrace_realtime_last_batch_timestamp_seconds",
        *("gauge", _SOURCE),
        "when the last batch of a lane that has ended began",
    ),
    MetricName(
        "headrace_realtime_report_age_seconds", "gauge", _SOURCE, "time since the last report about a lane"
    ),
    MetricName("headrace_realtime_failures_total", "counter", _SOURCE, "how often a lane has failed"),
    MetricName("headrace_realtime_restarts_total", "counter", _SOURCE, "how often it was started again"),
    MetricName(
        "headrace_enriched_total",
        *("counter", ("app", "enrich", "outcome")),
        "enriched events: `found`, `retried` (found after a wait), `unknown` to a table and kept,"
        " `dead_lettered`, or with `no_key` to ask with",
    ),
    MetricName(
        *("headrace_enrich_waiting", "gauge", ("app", "enrich")),
        "events that wait for a table to know their key",
    ),
    MetricName(
        "headrace_enrich_hit_ratio",
        *("gauge", ("app", "enrich")),
        "share of the events with a key that the tables knew, since the beginning",
    ),
    MetricName("headrace_table_rows", "gauge", ("app", "table"), "versions in a table of enrichment"),
    MetricName(
        "headrace_table_loaded_timestamp_seconds",
        *("gauge", ("app", "table")),
        "when the table that is in use was read; older than its last change means stale",
    ),
    MetricName("headrace_table_up", "gauge", ("app", "table"), "0 while a change of a table cannot be read"),
    MetricName(
        "headrace_table_stale_seconds",
        *("gauge", ("app", "table")),
        "for how long a change of a table could not be read; 0 while it can",
    ),
    MetricName(
        "headrace_incidents_open", "gauge", ("app", "alert", "severity"), "open incidents of declared alerts"
    ),
    MetricName(
        *("headrace_outbox_waiting", "gauge", ("app", "outbox")),
        "results that have not left the store: `alerts` and `flows` for their topics, `webhooks` for their"
        " delivery; `given_up`: webhooks that failed for good",
    ),
)
BY_NAME = {named.name: named for named in NAMES}


def reference_table() -> str:
    """The table of docs/monitoring.md."""
    rows = [
        f"| `{n.name}` | {n.kind} | {', '.join(f'`{label}`' for label in n.labels)} | {n.meaning} |"
        for n in NAMES
    ]
    return "\n".join(["| name | kind | labels | meaning |", "|---|---|---|---|", *rows])
