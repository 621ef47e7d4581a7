"""What the dashboard shows of a metric: title, value, unit. Frozen values; the drawing follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headrace.contracts.model import Contract
from headrace.errors import AppError, known_names
from headrace.measures import quantile_name
from headrace.metrics import Metric

# number: one value over time; groups: the same for each of a few groups; values: several of the total;
# top: the lists of a top measure; ranking: the largest groups of the newest window, where there are many.
Shape = Literal["number", "groups", "values", "top", "ranking"]
MOST_GROUPS = 12
MOST_VALUES = 4
LONGEST_TITLE, LONGEST_UNIT, LONGEST_NOTE = 60, 24, 200


@dataclass(frozen=True)
class Panel:
    title: str
    metric: str
    value: tuple[str, ...] = ()  # none: the first derived column, or the first measure
    by: tuple[str, ...] | None = None  # None: the total where there is one, or the first grouping
    unit: str = ""
    note: str = ""
    shared_scale: bool = True
    declared_at: str = ""


@dataclass(frozen=True)
class ShownPanel:
    """A panel whose names are known to be right, with everything that its drawing needs."""

    panel: Panel
    metric: Metric
    values: tuple[str, ...]
    grouping: tuple[str, ...]
    groups: tuple[str, ...] | None  # all that the contract allows, if these are few
    shape: Shape


def make_panel(
    title: str,
    metric: str,
    value: str | Sequence[str],
    by: str | Sequence[str] | None,
    unit: str,
    note: str,
    shared_scale: bool,
    declared_at: str,
) -> Panel:
    for what, text, most in (
        ("title", title, LONGEST_TITLE),
        ("unit", unit, LONGEST_UNIT),
        ("note", note, LONGEST_NOTE),
    ):
        if len(text) > most:
            raise AppError(
                f"panel '{title[:LONGEST_TITLE]}': the {what} has {len(text)} characters",
                where=declared_at,
                hint=f"{most} at most",
            )
    if not title.strip():
        raise AppError("a panel needs a title", where=declared_at)
    return Panel(
        title,
        metric,
        _names(value),
        None if by is None else _names(by),
        unit,
        note,
        shared_scale,
        declared_at,
    )


def panels_shown(
    panels: Iterable[Panel], metrics: Mapping[str, Metric], contracts: Mapping[str, Contract]
) -> list[ShownPanel]:
    """Every panel checked against its metric; an app that declares none gets one for each metric."""
    declared = list(panels) or [Panel(name, name, declared_at=m.declared_at) for name, m in metrics.items()]
    return [_shown(panel, metrics, contracts) for panel in declared]


def _shown(panel: Panel, metrics: Mapping[str, Metric], contracts: Mapping[str, Contract]) -> ShownPanel:
    if panel.metric not in metrics:
        hint = known_names(panel.metric, metrics) if metrics else "the app declares none: app.metric(...)"
        raise _wrong(panel, f"no metric '{panel.metric}'", hint)
    metric = metrics[panel.metric]
    values, grouping = _values(panel, metric), _grouping(panel, metric)
    groups = _few(contracts[metric.of], grouping)
    shape = _shape(metric, values, grouping, groups)
    if len(values) > 1 and grouping:
        raise _wrong(panel, "several values are shown for the total only", "choose one value, or by=[]")
    return ShownPanel(panel, metric, values, grouping, groups, shape)


def _values(panel: Panel, metric: Metric) -> tuple[str, ...]:
    if not panel.value:
        return (next(iter(metric.derived), metric.visible[0]),)
    found: list[str] = []
    for name in panel.value:
        measure = metric.measures.get(name)
        columns = [quantile_name(name, rank) for rank in measure.ranks] if measure else []
        columns = columns or [name]
        if columns[0] not in metric.visible:
            known = (*metric.measures, *metric.visible)
            raise _wrong(panel, f"metric '{metric.name}' has no '{name}'", known_names(name, known))
        found += columns
    if len(found) > MOST_VALUES:
        raise _wrong(panel, f"{len(found)} values do not fit into one panel", f"{MOST_VALUES} at most")
    if len(found) > 1 and any(_is_top(metric, name) for name in found):
        raise _wrong(panel, "a top list needs a panel of its own", 'give it alone: value="..."')
    return tuple(found)


def _grouping(panel: Panel, metric: Metric) -> tuple[str, ...]:
    if panel.by is None:
        return () if () in metric.groupings else metric.groupings[0]
    if panel.by not in metric.groupings:
        known = ", ".join(str(list(grouping)) for grouping in metric.groupings)
        raise _wrong(panel, f"metric '{metric.name}' is not grouped by {list(panel.by)}", f"it has: {known}")
    return panel.by


def _few(contract: Contract, grouping: tuple[str, ...]) -> tuple[str, ...] | None:
    """The values of a single dimension that the contract lists, if they fit into a panel."""
    allowed = _allowed(contract, grouping[0]) if len(grouping) == 1 else None
    return allowed if allowed and len(allowed) <= MOST_GROUPS else None


def _allowed(contract: Contract, name: str) -> tuple[str, ...] | None:
    field = next((f for f in contract.fields if f.name == name), None)
    if field is None or field.mask:
        return None
    return ("false", "true") if field.type.kind == "boolean" else field.rules.enum


def _shape(
    metric: Metric, values: tuple[str, ...], grouping: tuple[str, ...], groups: tuple[str, ...] | None
) -> Shape:
    if _is_top(metric, values[0]):
        return "top"
    if len(values) > 1:
        return "values"
    if not grouping:
        return "number"
    return "groups" if groups else "ranking"


def _is_top(metric: Metric, name: str) -> bool:
    return name in metric.measures and metric.measures[name].kind == "top"


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return ((given,) if given else ()) if isinstance(given, str) else tuple(given)


def _wrong(panel: Panel, what: str, hint: str) -> AppError:
    return AppError(f"panel '{panel.title}': {what}", where=panel.declared_at, hint=hint)
