"""What a worker needs to know to reduce the events of a batch to panes; it travels with the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.metrics import Metric
from headrace.views.aggregates import EVENTS, Aggregate, aggregates
from headrace.views.resolve import ResolvedMetric

Watermarks = dict[str, int | None]  # of the source before the batch, by kind of time


@dataclass(frozen=True)
class Place:
    """Where an event belongs in a metric: its pane, and after when its windows are over. In microseconds."""

    by_event: bool
    hop: int
    panes: int  # of a window
    final: int


@dataclass(frozen=True)
class Branch:
    """One aggregation: whose rows they are, by what they are grouped, and what is computed of them.

    Columns are named as the job names them: `takes` is the condition, or empty; `inputs` those of aggregates.
    """

    metric: int
    grouping: int
    top: str  # the measure whose items are counted, or empty
    takes: str
    dims: tuple[str, ...]
    hows: tuple[str, ...]
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class PanePlan:
    places: tuple[Place, ...]  # of each metric
    takes: tuple[str, ...]  # of each metric
    branches: tuple[Branch, ...]


@dataclass
class Columns:
    """The distinct expressions over an event that anything is computed from, each evaluated once by Spark."""

    names: dict[str, str] = field(default_factory=dict)

    def name(self, expression: str) -> str:
        return self.names.setdefault(expression, f"x{len(self.names)}")

    def select(self) -> list[str]:
        return [f"{text} AS {name}" for text, name in self.names.items()]


def make_plan(metrics: Sequence[ResolvedMetric], columns: Columns) -> PanePlan:
    branches = [b for n, r in enumerate(metrics) for b in _branches(n, r, columns)]
    takes = tuple(_condition(r.metric.where, columns) for r in metrics)
    return PanePlan(tuple(_place(r.metric) for r in metrics), takes, tuple(branches))


def _place(metric: Metric) -> Place:
    window = metric.window
    return Place(window.time == "event", window.hop_us, window.panes, metric.final_us)


def _condition(where: str, columns: Columns) -> str:
    return columns.name(f"coalesce(({where}), false)") if where else ""


def _branches(number: int, resolved: ResolvedMetric, columns: Columns) -> list[Branch]:
    metric = resolved.metric
    takes = _condition(metric.where, columns)
    values = [EVENTS]
    for name, measure in metric.measures.items():
        values += aggregates(measure, resolved.types.get(name, ""))
    found = []
    for n, grouping in enumerate(metric.groupings):
        dims = tuple(columns.name(f"CAST(`{name}` AS STRING)") for name in grouping)
        found.append(_branch(number, n, takes, dims, values, columns))
        for name, measure in metric.measures.items():
            if measure.kind == "top":
                item = f"({measure.expression})"
                conditions = (metric.where, measure.where, f"{item} IS NOT NULL")
                kept = _condition(" AND ".join(f"({each})" for each in conditions if each), columns)
                group = (*dims, columns.name(f"CAST({item} AS STRING)"))
                found.append(_branch(number, n, kept, group, [EVENTS], columns, name))
    return found


def _branch(
    metric: int,
    grouping: int,
    takes: str,
    dims: tuple[str, ...],
    values: Sequence[Aggregate],
    columns: Columns,
    top: str = "",
) -> Branch:
    inputs = tuple("" if value == EVENTS else columns.name(_sent(value)) for value in values)
    return Branch(metric, grouping, top, takes, dims, tuple(value.how for value in values), inputs)


def _sent(value: Aggregate) -> str:
    """A first or last value is shown as a text, whatever it is."""
    is_shown = value.how in ("first", "first_at", "last", "last_at")
    return f"CAST({value.input} AS STRING)" if is_shown else value.input
