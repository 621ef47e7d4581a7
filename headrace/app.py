"""What a user declares: an app, its sources, and what to derive from them. No Spark, no side effects."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.alerts import Alert, Severity, State, make_alert
from headrace.dimensions import Dimension
from headrace.enrich import End, Enrich, Unknown, make_enrich
from headrace.errors import AppError
from headrace.joins import Join, Kind, On, Order, make_join
from headrace.lanes import check_lane
from headrace.measures import Measure
from headrace.metrics import LIMIT, Metric, make_metric
from headrace.models import Model
from headrace.panels import Panel, make_panel
from headrace.patterns import Pattern, PatternWords, Told, make_pattern
from headrace.sessions import Sessions, make_sessions
from headrace.signals import Feature, Lane, Publish, Rule, Signals, make_signals
from headrace.windows import Window


@dataclass(frozen=True)
class Source:
    """Choices about one stream. `publish=False` keeps accepted events out of the validated topic."""

    name: str
    publish: bool = True
    max_batch: int | None = None  # None: the setting max_batch
    where: str = ""


class App:
    """An app: a name, a folder of contracts, and declarations. Declaring starts nothing."""

    def __init__(self, name: str, contracts: str = "contracts") -> None:
        caller = inspect.stack()[1]
        self.name = name
        self.file = Path(caller.filename)
        self.contracts_dir = self.file.parent / contracts
        self.sources: dict[str, Source] = {}
        self.metrics: dict[str, Metric] = {}
        self.alerts: dict[str, Alert] = {}
        self.panels: dict[str, Panel] = {}
        self.joins: dict[str, Join] = {}
        self.patterns: dict[str, Pattern] = {}
        self.all_sessions: dict[str, Sessions] = {}
        self.signal_sets: dict[str, Signals] = {}
        self.enrichments: dict[str, Enrich] = {}

    def source(self, name: str, *, publish: bool = True, max_batch: int | None = None) -> Source:
        """Set the choices for one stream; a stream without a declaration has the defaults."""
        where = _callers_line()
        if name in self.sources:
            raise _twice("source", name, where, self.sources[name].where)
        if max_batch is not None and max_batch < 1:
            raise AppError(f"max_batch must be at least 1, not {max_batch}", where=where)
        source = Source(name, publish, max_batch, where)
        self.sources[name] = source
        return source

    def metric(
        self,
        name: str,
        *,
        of: str,
        window: Window,
        measures: Mapping[str, Measure],
        by: str | Sequence[str] | Sequence[Sequence[str]] = (),
        where: str = "",
        derived: Mapping[str, str] | None = None,
        preliminary_after: str = "0 seconds",
        final_after: str = "1 minute",
        retain: str = "7 days",
        limit: int = LIMIT,
    ) -> Metric:
        """Declare a windowed number of a stream; its name is its table."""
        line = _callers_line()
        if name in self.metrics:
            raise _twice("metric", name, line, self.metrics[name].declared_at)
        metric = make_metric(
            *(name, of, window, by, measures, where, derived or {}),
            *(preliminary_after, final_after, retain, limit, line),
        )
        self.metrics[name] = metric
        return metric

    def sessions(
        self,
        name: str,
        *,
        of: str,
        key: str,
        gap: str,
        max_length: str,
        measures: Mapping[str, Measure],
        where: str = "",
        derived: Mapping[str, str] | None = None,
        preliminary_after: str = "0 seconds",
        final_after: str = "5 minutes",
        retain: str = "7 days",
    ) -> Sessions:
        """Declare the visits of a key: events that follow one another within `gap`; its name is its table."""
        line = _callers_line()
        if name in self.all_sessions:
            raise _twice("sessions", name, line, self.all_sessions[name].declared_at)
        sessions = make_sessions(
            *(name, of, key, gap, max_length, measures, where, derived or {}),
            *(preliminary_after, final_after, retain, line),
        )
        self.all_sessions[name] = sessions
        return sessions

    def alert(
        self,
        name: str,
        *,
        on: str,
        when: str,
        by: Sequence[str] = (),
        windows: int = 1,
        state: State = "preliminary",
        severity: Severity = "warning",
        topic: str = "",
        message: str = "",
        runbook: str = "",
        webhook: str = "",
    ) -> Alert:
        """Declare a threshold on a metric; `by` is the grouping whose rows it looks at."""
        line = _callers_line()
        if name in self.alerts:
            raise _twice("alert", name, line, self.alerts[name].declared_at)
        alert = make_alert(
            *(name, on, when, by, windows, state, severity),
            *(topic, message, runbook, webhook, line),
        )
        self.alerts[name] = alert
        return alert

    def join(
        self,
        name: str,
        *,
        left: str,
        right: str,
        on: On,
        within: str,
        kind: Kind = "one_to_one",
        order: Order | None = None,
        left_where: str = "",
        right_where: str = "",
        check: str | Mapping[str, str] = "",
        columns: Mapping[str, str] | None = None,
        left_unmatched: str | None = "",
        right_unmatched: str | None = "",
        topic: str = "",
        dead_letters: str = "",
        retain: str = "7 days",
    ) -> Join:
        """Declare pairs of events of two streams with the same key, at most `within` apart.

        `check` is a condition, or several by the reason for which a pair fails. `left_unmatched` is the
        reason of a left event that met nobody; None counts such events without writing them.
        """
        line = _callers_line()
        if name in self.joins:
            raise _twice("join", name, line, self.joins[name].declared_at)
        join = make_join(
            *(name, left, right, on),
            within=within,
            kind=kind,
            order=order,
            where={"left": left_where, "right": right_where},
            check=check,
            columns=columns or {},
            unmatched={"left": left_unmatched, "right": right_unmatched},
            topic=topic,
            dead_letters=dead_letters,
            retain=retain,
            declared_at=line,
        )
        self.joins[name] = join
        return join

    def pattern(
        self,
        name: str,
        *,
        of: str,
        key: str | Sequence[str],
        within: str,
        sequence: str = "",
        define: Mapping[str, str] | None = None,
        where: str = "",
        count: int | None = None,
        starts: str = "",
        without: str = "",
        quiet: str | None = None,
        final_after: str | None = None,
        show: Sequence[str] = (),
        severity: Severity = "warning",
        topic: str = "",
        message: str = "",
        runbook: str = "",
        webhook: str = "",
    ) -> Pattern:
        """Declare what to look for in the events of one key, in one of three ways.

        `sequence` and `define`: events in an order; `count` and `where`: so many of them; `starts` and
        `without`: one that is not followed by another. Each match raises an alert, at most one in `quiet`.
        """
        line = _callers_line()
        if name in self.patterns:
            raise _twice("pattern", name, line, self.patterns[name].declared_at)
        words = PatternWords(*(sequence, define, where, count, starts, without, within, quiet, final_after))
        told = Told(severity, topic, message, runbook, webhook)
        pattern = make_pattern(name, of, key, words, show, told, line)
        self.patterns[name] = pattern
        return pattern

    def signals(
        self,
        name: str,
        *,
        of: str,
        key: str,
        features: Mapping[str, Feature | Measure | str],
        decision: Mapping[str, float],
        score: str | Rule | None = None,
        model: Model | None = None,
        where: str = "",
        memory: str = "5 minutes",
        shadow: str | Rule | Model | None = None,
        with_: Dimension | Sequence[Dimension] = (),
        activity_by: str = "",
        topic: str = "",
        publish: Publish = "decisions",
        retain: str = "7 days",
        lane: Lane = "normal",
    ) -> Signals:
        """Score every event of a stream against what its key did in the time before; a table and a topic.

        The score is an SQL expression over the features (`score`), or what an artefact says (`model`).
        `decision` gives thresholds of the score; below all of them an event is allowed. A `shadow` scores
        beside the live one and decides nothing. A feature `"customers.risk"` is a column of a table that
        `with_` names. Suspicious activity is counted for `activity_by`, or the key. `lane="realtime"` writes
        the topic within milliseconds and at least once, where no feature needs a memory.
        """
        line = _callers_line()
        before = self.signal_sets.get(name) or self.metrics.get(name)
        if before is not None:
            raise _twice("table", name, line, before.declared_at)
        signals = make_signals(
            *(name, of, key, where, memory, features),
            *(self._scorer(score, model, line), decision, self._found(shadow)),
            tables=self._tables(with_),
            activity_by=activity_by,
            topic=topic,
            publish=publish,
            retain=retain,
            declared_at=line,
            lane=lane,
        )
        check_lane(signals)
        self.signal_sets[name] = signals
        return signals

    def enrich(
        self,
        name: str,
        *,
        of: str,
        with_: Dimension | Sequence[Dimension],
        columns: Mapping[str, str],
        topic: str,
        unknown: Unknown = "keep",
        retry_for: str | None = None,
        then: End | None = None,
        waiting_limit: int | None = None,
    ) -> Enrich:
        """Publish every accepted event again, with columns of tables as they were at its time.

        An event whose key a table does not know is kept with a marker, goes to a dead-letter topic, or
        (`unknown="retry"`) waits until the table knows it: for `retry_for` after its arrival ("10 minutes"),
        at most `waiting_limit` events (100,000); after that it is kept, or what `then` says.
        """
        line = _callers_line()
        if name in self.enrichments:
            raise _twice("enrich", name, line, self.enrichments[name].declared_at)
        retry = (retry_for, then, waiting_limit)
        enrich = make_enrich(name, of, self._tables(with_), columns, unknown, topic, line, retry)
        self.enrichments[name] = enrich
        return enrich

    def panel(
        self,
        title: str,
        *,
        metric: str,
        value: str | Sequence[str] = (),
        by: str | Sequence[str] | None = None,
        unit: str = "",
        note: str = "",
        shared_scale: bool = True,
    ) -> Panel:
        """Show a metric on the dashboard, in the order of declaration.

        `unit="percent"` shows 0.031 as 3.1 %; `shared_scale=False` is for groups that cannot be compared.
        """
        line = _callers_line()
        if title in self.panels:
            raise _twice("panel", title, line, self.panels[title].declared_at)
        panel = make_panel(title, metric, value, by, unit, note, shared_scale, line)
        self.panels[title] = panel
        return panel

    def _scorer(self, score: str | Rule | None, model: Model | None, line: str) -> str | Rule | Model | None:
        if score is not None and model is not None:
            raise AppError("a score or a model, not both", where=line, hint="shadow= compares the two")
        return self._found(model) if model is not None else score

    def _found(self, given: str | Rule | Model | None) -> str | Rule | Model | None:
        """A model with its file found beside the app."""
        return replace(given, file=self.file.parent / given.file) if isinstance(given, Model) else given

    def _tables(self, given: Dimension | Sequence[Dimension]) -> list[Dimension]:
        """With their files found beside the app."""
        tables = [given] if isinstance(given, Dimension) else list(given)
        return [table.beside(self.file.parent) for table in tables]

    def choices(self, name: str) -> Source:
        return self.sources.get(name, Source(name))


def _callers_line() -> str:
    frame = inspect.stack()[2]
    return f"{frame.filename}:{frame.lineno}"


def _twice(what: str, name: str, here: str, before: str) -> AppError:
    return AppError(
        f"{what} '{name}' is declared twice", where=here, hint=f"the first declaration is at {before}"
    )
