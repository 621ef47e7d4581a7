"""/metrics: the pipeline in Prometheus' text format, read when it is asked for.

Labels come from the contracts and the app alone, so their number is known before anything runs. The one
exception is the address by which the asker has found us: alerts link to the runbooks there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import accumulate

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from headrace.enricher import PENDING
from headrace.errors import ServiceError
from headrace.ops.pipeline import (
    PipelineView,
    backpressure_of,
    freshness_of,
    idle_partitions,
    load_of,
    recent_share,
    slo_of,
    state_rows,
    status_of,
    watermark_of,
)
from headrace.ops.pipeline_facts import PipelineFacts, SourceFacts
from headrace.ops.pipeline_flows import STILL_WAITING
from headrace.ops.signal_facts import hit_rate
from headrace.serve.metric_names import BY_NAME, NAMES
from headrace.store.totals import FATES, Histogram

Labels = tuple[str, ...]
Sample = tuple[str, Labels, float | Histogram | None]  # None: not known, so not said
_SINKS = {"publish": "log", "record": "store"}
_STEPS = ("decode", "judge", "publish", "views", "record")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,255}(:\d{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:\d{1,5})?")


def metrics_router(view: PipelineView) -> APIRouter:
    """GET /metrics."""
    router = APIRouter()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PipelineCollector(view))

    @router.get("/metrics", include_in_schema=False)
    def metrics(request: Request) -> Response:
        found = CollectorRegistry(auto_describe=False)
        found.register(Reached(view.loaded.name, request))
        text = generate_latest(found) + generate_latest(registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return router


class Reached(Collector):
    """Where we are, in the words of the one who asks: it alone knows by which way it comes."""

    def __init__(self, app: str, request: Request) -> None:
        self._app, self._request = app, request

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        host = self._request.headers.get("host", "")
        if _HOST.fullmatch(host):
            url = f"{self._request.scope['scheme']}://{host}"
            yield from families([("headrace_serve_info", (self._app, url), 1)])


class PipelineCollector(Collector):
    """Asks for the facts at every scrape; with the store away it says just that."""

    def __init__(self, view: PipelineView) -> None:
        self._view = view

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        try:
            facts = self._view.facts()
        except ServiceError:
            yield from families([("headrace_up", (self._view.loaded.name, "store"), 0)])
            return
        yield from families(samples(facts))


def families(given: Iterable[Sample]) -> Iterator[Metric]:
    """The samples under their names, in the order of the reference."""
    by_name: dict[str, list[tuple[Labels, float | Histogram]]] = {}
    for name, labels, value in given:
        if value is not None:
            by_name.setdefault(name, []).append((labels, value))
    for named in NAMES:
        if named.name in by_name:
            yield _family(named.name, by_name[named.name])


def _family(name: str, found: list[tuple[Labels, float | Histogram]]) -> Metric:
    named = BY_NAME[name]
    meaning = named.meaning.replace("`", "")
    if named.kind == "histogram":
        histogram = HistogramMetricFamily(name, meaning, labels=named.labels)
        for labels, value in found:
            assert isinstance(value, Histogram)
            limits = [*map(str, value.limits), "+Inf"]
            buckets = list(zip(limits, map(float, accumulate(value.counts)), strict=True))
            histogram.add_metric(labels, buckets, value.total)
        return histogram
    kind = CounterMetricFamily if named.kind == "counter" else GaugeMetricFamily
    family = kind(name, meaning, labels=named.labels)
    for labels, value in found:
        assert not isinstance(value, Histogram)
        family.add_metric(labels, float(value))
    return family


def samples(facts: PipelineFacts) -> Iterator[Sample]:
    running = [status_of(source, facts.at) != "unknown" for source in facts.sources]
    yield "headrace_up", (facts.app, "store"), 1
    yield "headrace_up", (facts.app, "log"), 0 if facts.problems else 1
    yield "headrace_up", (facts.app, "engine"), float(any(running))
    for (alert, severity), count in facts.incidents.items():
        yield "headrace_incidents_open", (facts.app, alert, severity), count
    for outbox, count in facts.waiting.items():
        yield "headrace_outbox_waiting", (facts.app, outbox), count
    yield from _flows(facts)
    yield from _signals(facts)
    yield from _lanes(facts)
    for source in facts.sources:
        mine = (facts.app, source.contract.name)
        yield from _log(source, mine)
        yield from _accounts(source, mine)
        yield from _engine(source, mine, facts)
        yield from _partitions(source, mine, facts)
        yield from _metrics(source, mine)


def _signals(facts: PipelineFacts) -> Iterator[Sample]:
    for (signals, decision), count in facts.signals.decisions.items():
        yield "headrace_signals_total", (facts.app, signals, decision), count
    for (enrich, outcome), count in facts.signals.outcomes.items():
        if outcome == PENDING:
            yield "headrace_enrich_waiting", (facts.app, enrich), count
        else:
            yield "headrace_enriched_total", (facts.app, enrich, outcome), count
    for name, table in facts.signals.tables.items():
        yield "headrace_table_rows", (facts.app, name), table.rows
        yield "headrace_table_loaded_timestamp_seconds", (facts.app, name), table.loaded_at.timestamp()
        yield "headrace_table_up", (facts.app, name), float(not table.problem)
        yield "headrace_table_stale_seconds", (facts.app, name), table.stale_seconds(facts.at)
    for enrich in {name: None for name, _ in facts.signals.outcomes}:
        yield "headrace_enrich_hit_ratio", (facts.app, enrich), hit_rate(facts.signals.outcomes_of(enrich))


def _lanes(facts: PipelineFacts) -> Iterator[Sample]:
    for lane in facts.lanes:
        mine, report = (facts.app, lane.source), lane.report
        yield "headrace_realtime_up", mine, float(status_of(lane, facts.at) == "running")
        if report is None:
            continue
        progress = report.progress
        yield "headrace_realtime_records_read_total", mine, progress.get("received", 0)
        yield "headrace_realtime_signals_sent_total", mine, progress.get("signals", 0)
        for rank, ms in (progress.get("latency_ms") or {}).items():
            yield "headrace_realtime_latency_seconds", (*mine, rank), ms / 1000
        began = progress.get("at")
        yield (
            "headrace_realtime_last_batch_timestamp_seconds",
            mine,
            datetime.fromisoformat(began).timestamp() if began else None,
        )
        yield "headrace_realtime_report_age_seconds", mine, report.age(facts.at)
        yield "headrace_realtime_failures_total", mine, report.failures
        yield "headrace_realtime_restarts_total", mine, report.restarts


def _flows(facts: PipelineFacts) -> Iterator[Sample]:
    sources = {source.query: source.contract.name for source in facts.sources}
    for flow in facts.flows:
        mine = (facts.app, sources[flow.query], flow.flow, flow.kind, flow.side)
        for outcome, count in flow.outcomes.items():
            if outcome not in STILL_WAITING:
                yield "headrace_flow_events_total", (*mine, outcome), count
        yield "headrace_flow_events_total", (*mine, "filtered"), flow.filtered
        yield "headrace_flow_late_events_total", mine, flow.late
        if flow.kind != "enrichment":
            yield "headrace_flow_state_rows", mine, flow.waiting
            yield "headrace_flow_state_bytes", mine, flow.bytes
        if flow.kind == "pattern":
            yield "headrace_pattern_matches_total", (facts.app, flow.flow), flow.counts["matches"]
            yield "headrace_pattern_alerts_total", (facts.app, flow.flow), flow.counts["alerts"]
        if flow.kind == "sessions":
            yield "headrace_sessions_final_total", (facts.app, flow.flow), flow.counts.get("closed", 0)


def _log(source: SourceFacts, mine: Labels) -> Iterator[Sample]:
    if source.lags is None:
        return
    topic, group = source.contract.topics.raw, f"headrace.{source.query}"
    yield "kafka_topic_partitions", (topic,), source.contract.partitions
    yield (
        "kafka_consumergroup_lag_sum",
        (group, group, topic),
        sum(lag.records for lag in source.lags.values()),
    )
    for lag in source.lags.values():
        place = (topic, str(lag.partition))
        yield "kafka_topic_partition_current_offset", place, lag.end
        yield "kafka_topic_partition_oldest_offset", place, lag.oldest
        yield "kafka_consumergroup_current_offset", (group, group, *place), lag.position
        yield "kafka_consumergroup_lag", (group, group, *place), lag.records
        yield "kafka_consumergroup_group_lag_seconds", (group, *place), lag.seconds
        yield "headrace_lag_seconds", (*mine, str(lag.partition)), lag.seconds


def _accounts(source: SourceFacts, mine: Labels) -> Iterator[Sample]:
    fates, promised = source.totals.fates, slo_of(source.contract)
    received = fates.get("received", 0)
    yield "headrace_records_received_total", mine, received
    for fate in FATES[1:]:
        yield "headrace_records_total", (*mine, fate), fates.get(fate, 0)
    yield "headrace_unaccounted_records", mine, received - sum(fates.get(fate, 0) for fate in FATES[1:])
    for reason, count in source.totals.reasons.items():
        yield "headrace_rejections_total", (*mine, reason), count
    of_contract = sum(count for reason, count in source.totals.reasons.items() if reason != "future")
    yield "headrace_schema_failures_total", mine, of_contract
    yield "headrace_rejected_ratio", mine, recent_share(source.recent, "rejected")
    yield "headrace_duplicate_ratio", mine, recent_share(source.recent, "duplicate")
    yield "headrace_latency_slo_seconds", mine, promised["latency_seconds"]
    yield "headrace_error_rate_slo_ratio", mine, promised["error_rate"]


def _engine(source: SourceFacts, mine: Labels, facts: PipelineFacts) -> Iterator[Sample]:
    yield "headrace_query_up", mine, float(status_of(source, facts.at) == "running")
    yield "headrace_end_to_end_latency_seconds", mine, source.totals.latency
    yield "headrace_batch_duration_seconds", mine, source.totals.seconds
    if source.last_batch is not None:
        yield "headrace_last_batch_timestamp_seconds", mine, source.last_batch.at.timestamp()
    report = source.report
    if report is None:
        return
    yield "headrace_failures_total", mine, report.failures
    yield "headrace_restarts_total", mine, report.restarts
    yield "headrace_engine_starts_total", mine, report.starts
    yield "headrace_report_age_seconds", mine, report.age(facts.at)
    progress = report.progress
    yield "headrace_state_rows", mine, state_rows(source)
    yield "headrace_state_bytes", mine, progress.get("state_bytes")
    yield "headrace_input_rows_per_second", mine, progress.get("input_rate")
    yield "headrace_processed_rows_per_second", mine, progress.get("processed_rate")
    yield "headrace_backpressure_ratio", mine, backpressure_of(source)
    for step, seconds in progress.get("spent", {}).items():
        yield "headrace_step_seconds_total", (*mine, step), seconds
    for phase, ms in progress.get("durations_ms", {}).items():
        if phase in _SINKS:
            yield "headrace_sink_seconds", (*mine, _SINKS[phase]), ms / 1000
        if phase not in _STEPS:
            yield "headrace_trigger_duration_seconds", (*mine, phase), ms / 1000


def _partitions(source: SourceFacts, mine: Labels, facts: PipelineFacts) -> Iterator[Sample]:
    idle = idle_partitions(source, facts.at)
    watermark = watermark_of(source, idle)
    yield "headrace_partitions", mine, source.contract.partitions
    yield "headrace_idle_partitions", mine, len(idle)
    yield "headrace_hot_partition_ratio", mine, load_of(source).ratio
    if watermark is not None:
        delay = max(0.0, (facts.at - watermark).total_seconds())
        yield "headrace_watermark_delay_seconds", mine, delay
    for partition, clock in source.clocks.items():
        at = clock.clock.timestamp() if clock.clock is not None else None
        yield "headrace_clock_timestamp_seconds", (*mine, str(partition)), at


def _metrics(source: SourceFacts, mine: Labels) -> Iterator[Sample]:
    promised = slo_of(source.contract)["freshness_seconds"]
    for metric in source.metrics:
        labels = (*mine, metric)
        yield "headrace_metric_late_events_total", labels, source.totals.late.get(metric, 0)
        yield "headrace_metric_corrections_total", labels, source.totals.corrected.get(metric, 0)
        yield "headrace_metric_freshness_seconds", labels, freshness_of(source)
        yield "headrace_metric_freshness_slo_seconds", labels, promised
