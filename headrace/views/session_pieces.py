"""A batch reduced to pieces of sessions: for every key and cell of time, partial results that can be merged.

A cell is as long as the gap, so that all events of a key in one cell belong to one session: a piece never has
to be taken apart. An event so old that a session next to it may be over for it (a suspect) cannot be judged
without the sessions that are there: all events of its key in this batch are handed over one by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.contracts.model import Contract
from headrace.errors import AppError, known_names
from headrace.gate.mask import plain_fields
from headrace.sessions import Sessions
from headrace.views.accepted import FEW, accepted_events
from headrace.views.aggregates import EVENTS, aggregates
from headrace.views.formulas import with_texts_in_postgres
from headrace.views.pane_plan import Watermarks
from headrace.views.resolve import NUMBERS, PG_TYPES, Part, ResolvedMetric, resolve
from headrace.windows import MICROSECOND

SESSIONS = "sessions"
SUSPECTS = "session_suspects"
KEYS = "keys"
FEW_KEYS = 200
TEXTS = ("min", "max", "first", "last")  # measures that may show a text
# What COPY reads as something else; a NUL cannot be kept in Postgres at all.
SPECIAL = ((r"'\\'", r"'\\\\'"), (r"'\t'", r"'\\t'"), (r"'\n'", r"'\\n'"), (r"'\r'", r"'\\r'"))
NUL, INSTEAD = "char(0)", "'\N{REPLACEMENT CHARACTER}'"


@dataclass(frozen=True)
class ResolvedSessions:
    """Sessions that fit their contract; `derived` are the formulas and types of derived columns."""

    sessions: Sessions
    measured: ResolvedMetric
    derived: Mapping[str, tuple[str, str]]

    @property
    def parts(self) -> list[Part]:
        return self.measured.parts

    @property
    def formulas(self) -> dict[str, tuple[str, str]]:
        """Columns that Postgres computes from others: formula and type, by name."""
        means = {name: (text, "double precision") for name, text in self.measured.computed.items()}
        return means | dict(self.derived)


class SuspectEvent(NamedTuple):
    """An event of a key that has suspects. Times in microseconds; `line` is it as a piece, without a seal.

    `clock` is None for an event that is no suspect itself; `own_clock` is that of its partition alone.
    """

    partition: int
    offset: int
    event_id: str
    event_time: int
    clock: int | None
    own_clock: int | None
    key: str
    cell: int
    line: str


@dataclass
class Pieces:
    """What one declaration gets from a batch. A line: key, cell, first and last event, events, parts."""

    resolved: ResolvedSessions
    lines: list[str] = field(default_factory=list)
    suspects: list[SuspectEvent] = field(default_factory=list)  # in order of partition and offset
    accepted: int = 0
    filtered: int = 0
    in_lines: int = 0  # events


class SessionReducer:
    """All sessions of a source, a job for each."""

    def __init__(self, resolved: Sequence[ResolvedSessions]) -> None:
        self._resolved = resolved

    @property
    def carried(self) -> tuple[str, ...]:
        return tuple(name for resolved in self._resolved for name in resolved.measured.fields)

    @property
    def closest(self) -> timedelta | None:
        """A session may be over for an event that is as old as `final_after`, to the microsecond."""
        return min((r.sessions.final_after - MICROSECOND for r in self._resolved), default=None)

    def reduce(self, session: SparkSession, watermarks: Watermarks, rows: int) -> Mapping[str, Any]:
        known = watermarks.get("event")
        return {SESSIONS: [_Job(r, known, rows < FEW).reduce(session) for r in self._resolved]}


class _Job:
    """One declaration in one batch."""

    def __init__(self, resolved: ResolvedSessions, watermark: int | None, few: bool) -> None:
        self._resolved, self._sessions, self._few = resolved, resolved.sessions, few
        self._clock = "__clock" if watermark is None else f"greatest(__clock, {watermark}L)"

    def reduce(self, session: SparkSession) -> Pieces:
        found = session.sql(f"{self._taken()} {self._pieces()} UNION ALL {self._totals()}")
        columns: list[list[Any]] = [column.to_pylist() for column in found.toArrow().columns]
        keys, suspect, counts, lines = columns
        pieces = Pieces(self._resolved)
        totals = keys.index(None)
        pieces.accepted, pieces.filtered = int(lines.pop(totals)), counts.pop(totals)
        del keys[totals], suspect[totals]
        if not any(suspect):
            pieces.lines, pieces.in_lines = lines, sum(counts)
            return pieces
        apart = {key for key, is_suspect in zip(keys, suspect, strict=True) if is_suspect}
        for key, count, line in zip(keys, counts, lines, strict=True):
            if key not in apart:
                pieces.lines.append(line)
                pieces.in_lines += count
        pieces.suspects = self._events(session, apart)
        return pieces

    def _events(self, session: SparkSession, keys: set[str]) -> list[SuspectEvent]:
        own = f"__partition, __offset, {_without_nul('substring(__id, 2)')}, __event_time"
        clocks = f"CASE WHEN __suspect THEN {self._clock} END, __clock"
        text = (
            f"{self._taken()} SELECT {own}, {clocks}, __key, __cell, {self._line()} AS line"
            f" FROM taken {_only(session, keys)}"
            f" GROUP BY __partition, __offset, __id, __event_time, __clock, __suspect, __key, __cell"
        )
        found = session.sql(text, {KEYS: json.dumps(list(keys))} if len(keys) <= FEW_KEYS else None).toArrow()
        columns = [column.to_pylist() for column in found.columns]
        return sorted(SuspectEvent._make(row) for row in zip(*columns, strict=True))

    def _taken(self) -> str:
        gap, final = self._sessions.gap_us, self._sessions.final_us
        place = f"(__event_time - pmod(__event_time, {gap}L)) AS __cell"
        suspect = f"coalesce(__event_time + {final}L <= {self._clock}, false) AS __suspect"
        return (
            f"WITH {accepted_events(self._few)},"
            f" taken AS (SELECT *, {self._key()} AS __key, {place}, {suspect}"
            f" FROM accepted WHERE {self._takes()})"
        )

    def _pieces(self) -> str:
        return (
            f"SELECT __key AS key, bool_or(__suspect) AS suspect, count(*) AS n, {self._line()} AS line"
            " FROM taken GROUP BY __key, __cell"
        )

    def _totals(self) -> str:
        return (
            f"SELECT NULL AS key, false AS suspect, count_if(NOT {self._takes()}) AS n,"
            " CAST(count(*) AS STRING) AS line FROM accepted"
        )

    def _takes(self) -> str:
        """An event without a key belongs to nobody's session."""
        where = f" AND coalesce(({self._sessions.where}), false)" if self._sessions.where else ""
        return f"({self._key()} IS NOT NULL{where})"

    def _key(self) -> str:
        return _without_nul(f"CAST(`{self._sessions.key}` AS STRING)")

    def _line(self) -> str:
        """A piece as COPY reads it."""
        texts = [
            *(_escaped("__key"), "CAST(__cell AS STRING)"),
            *("CAST(min(__event_time) AS STRING)", "CAST(max(__event_time) AS STRING)", EVENTS.text),
        ]
        for name, measure in self._sessions.measures.items():
            type_ = self._resolved.measured.types.get(name, "")
            for n, aggregate in enumerate(aggregates(measure, type_)):
                shows_text = n == 0 and measure.kind in TEXTS and type_ == "string"
                text = _escaped(_without_nul(aggregate.text)) if shows_text else aggregate.text
                texts.append(rf"coalesce({text}, '\\N')")
        return rf"concat_ws('\t', {', '.join(texts)})"


def _only(session: SparkSession, keys: set[str]) -> str:
    """Few keys are looked up in an array, which costs neither a job of its own nor new code."""
    if len(keys) <= FEW_KEYS:
        return f"WHERE array_contains(from_json(:{KEYS}, 'array<string>'), __key)"
    session.createDataFrame([(key,) for key in keys], "__key string").createOrReplaceTempView(SUSPECTS)
    return f"LEFT SEMI JOIN {SUSPECTS} USING (__key)"


def _escaped(text: str) -> str:
    for found, written in SPECIAL:
        text = f"replace({text}, {found}, {written})"
    return text


def _without_nul(text: str) -> str:
    return f"replace({text}, {NUL}, {INSTEAD})"


def resolve_sessions(
    spark: SparkSession, declared: Iterable[Sessions], contract: Contract
) -> list[ResolvedSessions]:
    """Raises AppError, with the line of the declaration, for the first thing that is wrong."""
    names = [f.name for f in plain_fields(contract)]
    found = []
    for sessions in declared:
        if sessions.key not in names:
            raise AppError(
                f"sessions '{sessions.name}', key: no field '{sessions.key}'",
                where=sessions.declared_at,
                hint=known_names(sessions.key, names),
            )
        [measured] = resolve(spark, [sessions.measured], contract)
        found.append(ResolvedSessions(sessions, measured, _derived(spark, sessions, measured)))
    return found


def _derived(spark: SparkSession, sessions: Sessions, measured: ResolvedMetric) -> dict[str, tuple[str, str]]:
    """Formulas over measures: numbers are doubles in them, texts and times are what they are."""
    kinds = {name: _kind(measured, name) for name in sessions.measures}
    stored = {name: measured.computed.get(name, name) for name in sessions.measures}
    columns = {
        name: f"(({stored[name]})::double precision)" if kind == "double" else stored[name]
        for name, kind in kinds.items()
    }
    frame = spark.createDataFrame([], ", ".join(f"`{name}` {kind}" for name, kind in kinds.items()))
    found = {}
    for name, text in sessions.derived.items():
        what = f"sessions '{sessions.name}', {name}"
        formula = with_texts_in_postgres(text, columns, what=what, where=sessions.declared_at)
        try:
            type_ = frame.selectExpr(text).schema[0].dataType.simpleString()
        except PySparkException as error:
            problem = str(error).split("\n")[0].split("SQLSTATE")[0].strip()
            raise AppError(f"{what}: {problem}", where=sessions.declared_at) from None
        is_number = type_ in NUMBERS or type_.startswith("decimal")
        if not is_number and type_ not in ("boolean", "string"):
            raise AppError(f"{what}: a derived column of {type_} is not possible", where=sessions.declared_at)
        found[name] = (formula, "double precision" if is_number else PG_TYPES[type_])
    return found


def _kind(measured: ResolvedMetric, name: str) -> str:
    """The type of a measure in a formula, as Spark names it."""
    type_ = measured.types.get(name, "")
    shows_value = measured.metric.measures[name].kind in TEXTS
    return type_ if shows_value and type_ in ("string", "boolean", "timestamp", "date") else "double"
