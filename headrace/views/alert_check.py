"""A declared alert against its metric: names, grouping and message. Needs neither Spark nor a contract."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.alerts import Alert, message_fields
from headrace.contracts.durations import format_duration
from headrace.errors import AppError, known_names
from headrace.metrics import Metric
from headrace.views.expressions import fields_used

ABOUT = ("alert", "severity", "windows", "window_start", "window_end")  # what a message may show besides


def check_alert(alert: Alert, metrics: Mapping[str, Metric]) -> Metric:
    """The metric of the alert; raises AppError, with the line of the declaration, for what does not fit."""
    where = alert.declared_at
    metric = metrics.get(alert.metric)
    if metric is None:
        hint = known_names(alert.metric, metrics) if metrics else "the app declares none: app.metric(...)"
        raise AppError(f"alert '{alert.name}': no metric '{alert.metric}'", where=where, hint=hint)
    grouping_of(alert, metric)
    columns = condition_columns(alert, metric)
    fields_used(alert.when, columns, what=f"alert '{alert.name}', when", where=where)
    shown = (*ABOUT, *columns)
    for name in message_fields(alert):
        if name not in shown:
            hint = known_names(name, shown)
            raise AppError(f"alert '{alert.name}', message: there is no '{name}'", where=where, hint=hint)
    needed = metric.final_after + metric.window.hop * (alert.windows + 1)
    if metric.retain < needed:
        raise AppError(
            f"alert '{alert.name}' looks back further than metric '{metric.name}' keeps its rows",
            where=where,
            hint=f"{alert.windows} windows need retain of at least {format_duration(needed)}",
        )
    return metric


def grouping_of(alert: Alert, metric: Metric) -> tuple[str, ...]:
    """The metric's grouping that the alert looks at, in the metric's order of names."""
    for grouping in metric.groupings:
        if set(grouping) == set(alert.by) and len(grouping) == len(alert.by):
            return grouping
    for name in alert.by:
        if name not in metric.dimensions:
            hint = known_names(name, metric.dimensions) if metric.dimensions else "it has only a total"
            raise AppError(
                f"alert '{alert.name}', by: metric '{metric.name}' has no dimension '{name}'",
                where=alert.declared_at,
                hint=hint,
            )
    there = "; ".join(str(list(grouping)) for grouping in metric.groupings)
    raise AppError(
        f"alert '{alert.name}', by: metric '{metric.name}' has no grouping {list(alert.by)}",
        where=alert.declared_at,
        hint=f"its groupings are: {there}",
    )


def condition_columns(alert: Alert, metric: Metric) -> tuple[str, ...]:
    """What a condition may use. Not `late_events`: it still moves when a row is final."""
    lists = [name for name, measure in metric.measures.items() if measure.kind == "top"]
    results = [name for name in metric.visible if name not in lists]
    return (*grouping_of(alert, metric), *results, "events")
