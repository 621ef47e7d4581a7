"""The events that flows take from a batch: one job for all flows of a source, only the columns they use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from headrace.views.accepted import FEW, accepted_events

OWN = ("__partition", "__offset", "substring(__id, 2)", "__event_time", "__clock", "__log_time")


@dataclass(frozen=True)
class Want:
    """What one side of a flow takes: events that fulfil a condition, and expressions over their fields.

    `name` is that of the fold it goes to. `closest` is the age (behind its partition's clock) from which on
    an event is handed over with the clock that stood before it; younger ones have none.
    """

    name: str
    where: str
    columns: Mapping[str, str]  # name → Spark SQL; handed over as text
    fields: tuple[str, ...]  # of the contract, that both use
    closest: timedelta | None = None


class TakenRow(NamedTuple):
    """An event, with its times in microseconds and its values as texts, in the order of the columns."""

    partition: int
    offset: int
    event_id: str
    event_time: int
    clock: int | None
    log_time: int | None
    values: tuple[str | None, ...]


@dataclass(frozen=True)
class Taken:
    """What a flow gets from a batch, in order of partition and offset."""

    rows: Sequence[TakenRow] = field(default_factory=list)


class TakeReducer:
    """All wants of a source."""

    def __init__(self, wants: Sequence[Want]) -> None:
        self._wants = wants

    @property
    def carried(self) -> tuple[str, ...]:
        return tuple(name for want in self._wants for name in want.fields)

    @property
    def closest(self) -> timedelta | None:
        return min((want.closest for want in self._wants if want.closest is not None), default=None)

    def reduce(
        self, session: SparkSession, watermarks: Mapping[str, int | None], rows: int
    ) -> Mapping[str, Any]:
        table = (
            session.sql(self._text(rows < FEW)).toArrow().sort_by([("c0", "ascending"), ("c1", "ascending")])
        )
        columns = [column.to_pylist() for column in table.columns]
        own, rest = list(zip(*columns[: len(OWN)], strict=True)), columns[len(OWN) :]
        parts = {}
        for want in self._wants:
            chosen, rest = rest[0], rest[1:]
            mine, rest = rest[: len(want.columns)], rest[len(want.columns) :]
            values = zip(*mine, strict=True) if mine else ((),) * len(own)
            found = zip(chosen, own, values, strict=True)
            parts[want.name] = Taken([TakenRow._make((*row, texts)) for yes, row, texts in found if yes])
        return parts

    def _text(self, few: bool) -> str:
        shown = [f"{text} AS c{n}" for n, text in enumerate(OWN)]
        wanted = []
        for n, want in enumerate(self._wants):
            condition = f"coalesce(({want.where}), false)" if want.where else "true"
            wanted.append(f"w{n}")
            shown.append(f"{condition} AS w{n}")
            shown += [
                f"CAST(CASE WHEN {condition} THEN ({text}) END AS STRING) AS w{n}_{i}"
                for i, text in enumerate(want.columns.values())
            ]
        return (
            f"WITH {accepted_events(few)} SELECT * FROM (SELECT {', '.join(shown)} FROM accepted)"
            f" WHERE {' OR '.join(wanted)}"
        )
