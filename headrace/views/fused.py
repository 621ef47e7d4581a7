"""Many aggregations as one: every event becomes one narrow row for each, and one aggregation does them all.

Spark plans, compiles and runs two operators (Expand and HashAggregate) however many metrics there are. A row
says for which branch it is, whether the branch takes the event, its pane, its group, and the inputs of the
branch's aggregates in slots that the branches share; an aggregate gives the same slot another meaning only
if input type and function are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.views.aggregates import Aggregate

OWN = ("int", "boolean", "bigint", "int")  # branch, whether it takes the event, pane, missed windows


@dataclass(frozen=True)
class FusedBranch:
    """One aggregation, with the expressions of its row over the accepted events."""

    number: int
    takes: str
    pane: str
    missed: str
    dims: Sequence[str]
    aggregates: Sequence[Aggregate]


@dataclass
class Wide:
    """The distinct expressions that the rows are made of, computed once for every event."""

    names: dict[str, str] = field(default_factory=dict)

    def name(self, expression: str) -> str:
        return self.names.setdefault(expression, f"x{len(self.names)}")

    def columns(self) -> str:
        return ", ".join(f"{text} AS {name}" for text, name in self.names.items())


class Fused:
    """The SQL of all branches together, and where each finds its results."""

    def __init__(self, branches: Sequence[FusedBranch]) -> None:
        self._branches = branches
        self._dims = max((len(branch.dims) for branch in branches), default=0)
        self._slots = _slots(branches)
        self._places = {branch.number: _places(branch, self._slots) for branch in branches}

    @property
    def width(self) -> tuple[int, int]:
        """How many dims and items a row has."""
        return self._dims, len(self._slots)

    def select(self, source: str, shown: Callable[[list[str], list[str]], str]) -> str:
        """`shown` makes the end of the SELECT clause, from the names of dims and the texts of items."""
        wide = Wide()
        rows = [self._row(branch, wide) for branch in self._branches]
        dims = [f"d{n}" for n in range(self._dims)]
        slots = [f"s{n}" for n in range(len(self._slots))]
        columns = ", ".join(["branch", "takes", "pane", "missed", *dims, *slots])
        unpivoted = (
            f"(SELECT {wide.columns()} FROM {source})"
            f" UNPIVOT INCLUDE NULLS (({columns}) FOR named IN ({', '.join(rows)}))"
        )
        items = [how.format(slot) for (how, _), slot in zip(self._slots, slots, strict=True)]
        keys = ["branch", "pane", "missed", *dims]
        return (
            f"SELECT branch, pane, missed, {shown(dims, items)} FROM {unpivoted}"
            f" WHERE takes GROUP BY {', '.join(keys)}"
        )

    def places(self, number: int) -> list[int]:
        """Which items are the results of a branch, in the order of its aggregates."""
        return self._places[number]

    def _row(self, branch: FusedBranch, wide: Wide) -> str:
        nulls = [f"CAST(NULL AS {type_})" for _, type_ in self._slots]
        for place, aggregate in zip(self._places[branch.number], branch.aggregates, strict=True):
            nulls[place] = f"CAST({aggregate.input} AS {aggregate.type})"
        dims = [f"CAST({dim} AS STRING)" for dim in branch.dims]
        dims += ["CAST(NULL AS STRING)"] * (self._dims - len(dims))
        own = (str(branch.number), branch.takes, branch.pane, branch.missed)
        typed = [f"CAST({text} AS {type_})" for text, type_ in zip(own, OWN, strict=True)]
        names = ", ".join(wide.name(text) for text in (*typed, *dims, *nulls))
        return f"({names}) AS b{branch.number}"


def _slots(branches: Sequence[FusedBranch]) -> list[tuple[str, str]]:
    """As many slots of a function and type as the branch with the most of them needs."""
    needed: dict[tuple[str, str], int] = {}
    for branch in branches:
        mine: dict[tuple[str, str], int] = {}
        for aggregate in branch.aggregates:
            kind = (aggregate.how, aggregate.type)
            mine[kind] = mine.get(kind, 0) + 1
        for kind, count in mine.items():
            needed[kind] = max(count, needed.get(kind, 0))
    return [kind for kind, count in needed.items() for _ in range(count)]


def _places(branch: FusedBranch, slots: list[tuple[str, str]]) -> list[int]:
    free = list(range(len(slots)))
    found = []
    for aggregate in branch.aggregates:
        place = next(n for n in free if slots[n] == (aggregate.how, aggregate.type))
        free.remove(place)
        found.append(place)
    return found
