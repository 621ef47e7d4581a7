"""Loading a user's app file, and finding mistakes in it before anything starts."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from headrace.alerts import Alert
from headrace.app import App, Source
from headrace.contracts import Contract, load_contracts
from headrace.declared import Declared, FlowTopic
from headrace.enrich import Enrich, enriched_contract
from headrace.errors import AppError, HeadraceError, known_names
from headrace.joins import SIDES, Join, JoinSide, lane_name
from headrace.metrics import Metric
from headrace.panels import ShownPanel, panels_shown
from headrace.patterns import Pattern
from headrace.sessions import Sessions
from headrace.signals import Signals
from headrace.views.alert_check import check_alert


@dataclass(frozen=True)
class LoadedApp:
    """An app with its contracts: what every command works on."""

    app: App
    contracts: dict[str, Contract]

    @property
    def name(self) -> str:
        return self.app.name

    def source(self, stream: str) -> Source:
        return self.app.choices(stream)

    def contract(self, stream: str) -> Contract:
        if stream not in self.contracts:
            raise AppError(
                f"no stream '{stream}'",
                where=str(self.app.contracts_dir),
                hint=known_names(stream, self.contracts),
            )
        return self.contracts[stream]

    def metric(self, name: str) -> Metric:
        if name not in self.app.metrics:
            known = self.app.metrics
            hint = known_names(name, known) if known else "the app declares none: app.metric(...)"
            raise AppError(f"no metric '{name}'", where=str(self.app.file), hint=hint)
        return self.app.metrics[name]

    def metrics_of(self, stream: str) -> list[Metric]:
        return [metric for metric in self.app.metrics.values() if metric.of == stream]

    def sessions_of(self, stream: str) -> list[Sessions]:
        return [sessions for sessions in self.app.all_sessions.values() if sessions.of == stream]

    def accounts_of(self, stream: str) -> list[str]:
        """The names of all that say, batch by batch, what became of the stream's accepted events."""
        metrics = [metric.name for metric in self.metrics_of(stream)]
        return metrics + [sessions.name for sessions in self.sessions_of(stream)]

    def flow_accounts_of(self, stream: str) -> list[str]:
        """The names under which the flows of a stream stand in the ledger of flows."""
        joins = [join.name for join in self.app.joins.values() if stream in (join.left, join.right)]
        patterns = [pattern.name for pattern in self.patterns_of(stream)]
        signals = [f"signals.{signals.name}" for signals in self.signals_of(stream)]
        return [*joins, *patterns, *signals, *(enrich.fold for enrich in self.enrich_of(stream))]

    def enriched_topics_of(self, stream: str) -> dict[str, tuple[str, ...]]:
        """The topics of the enrichments of a stream, by their names."""
        return {enrich.name: enrich.topics for enrich in self.enrich_of(stream)}

    def alert(self, name: str) -> Alert:
        """Of a threshold, or of a pattern."""
        known = self.app.alerts | {pattern.name: pattern.alert for pattern in self.app.patterns.values()}
        if name not in known:
            hint = known_names(name, known) if known else "the app declares none: app.alert(...)"
            raise AppError(f"no alert '{name}'", where=str(self.app.file), hint=hint)
        return known[name]

    def alerts_of(self, stream: str) -> list[Alert]:
        """The alerts on metrics of the stream."""
        mine = {metric.name for metric in self.metrics_of(stream)}
        return [alert for alert in self.app.alerts.values() if alert.metric in mine]

    def patterns_of(self, stream: str) -> list[Pattern]:
        return [pattern for pattern in self.app.patterns.values() if pattern.of == stream]

    def declared(self, stream: str, keep_alerts: timedelta = timedelta(days=90)) -> Declared:
        """Everything that rides on the gate of the stream."""
        return Declared(
            *(tuple(self.metrics_of(stream)), tuple(self.alerts_of(stream)), keep_alerts),
            sessions=tuple(self.sessions_of(stream)),
            joins=tuple(self.join_sides_of(stream)),
            patterns=tuple(self.patterns_of(stream)),
            signals=tuple(self.signals_of(stream)),
            enrich=tuple(self.enrich_of(stream)),
        )

    def join(self, name: str) -> Join:
        if name not in self.app.joins:
            known = self.app.joins
            hint = known_names(name, known) if known else "the app declares none: app.join(...)"
            raise AppError(f"no join '{name}'", where=str(self.app.file), hint=hint)
        return self.app.joins[name]

    def join_sides_of(self, stream: str) -> list[JoinSide]:
        """In the order of declaration, which is also the order in which two queries take hold of them."""
        return [
            JoinSide(join, side, self.contract(join.left), self.contract(join.right))
            for join in self.app.joins.values()
            for side in SIDES
            if join.stream(side) == stream
        ]

    def flow_topics(self, streams: Collection[str]) -> list[FlowTopic]:
        """The topics of flows for which the queries of these streams answer, each once."""
        found: dict[str, FlowTopic] = {}
        for join in self.app.joins.values():
            if join.left in streams:
                contract = self.contract(join.left)
                for topic in join.topics:
                    found.setdefault(topic, FlowTopic(topic, contract.partitions, contract.retention))
        return list(found.values())

    def flow_lanes(self, streams: Collection[str]) -> list[str]:
        """Under which names, besides their queries, the flows of these streams write to the outbox."""
        return [lane_name(self.name, join.name) for join in self.app.joins.values() if join.left in streams]

    def enrich_of(self, stream: str) -> list[Enrich]:
        return [enrich for enrich in self.app.enrichments.values() if enrich.of == stream]

    def signals_of(self, stream: str) -> list[Signals]:
        return [signals for signals in self.app.signal_sets.values() if signals.of == stream]

    def lane_of(self, stream: str) -> list[Signals]:
        """The signals of the stream that run in the real-time lane."""
        return [signals for signals in self.signals_of(stream) if signals.lane == "realtime"]

    def panels(self) -> list[ShownPanel]:
        return panels_shown(self.app.panels.values(), self.app.metrics, self.contracts)


def load_app(path: Path) -> LoadedApp:
    """Import the app file (or the app.py of a folder), read its contracts, check its declarations."""
    file = path / "app.py" if path.is_dir() else path
    if not file.is_file():
        raise AppError(
            "no app file",
            where=str(file),
            hint="give a folder with an app.py, or make one: headrace init NAME",
        )
    app = _app_in(file)
    loaded = LoadedApp(app, load_contracts(app.contracts_dir))
    for source in app.sources.values():
        if source.name not in loaded.contracts:
            raise AppError(
                f"source '{source.name}' has no contract in {app.contracts_dir}",
                where=source.where,
                hint=known_names(source.name, loaded.contracts),
            )
    for metric in app.metrics.values():
        if metric.of not in loaded.contracts:
            raise AppError(
                f"metric '{metric.name}': no stream '{metric.of}' in {app.contracts_dir}",
                where=metric.declared_at,
                hint=known_names(metric.of, loaded.contracts),
            )
    for sessions in app.all_sessions.values():
        _check_sessions(sessions, loaded)
    for alert in app.alerts.values():
        check_alert(alert, app.metrics)
        _refuse_stream_topic(f"alert '{alert.name}'", alert.topic, alert.declared_at, loaded.contracts)
    for join in app.joins.values():
        _check_join(join, app, loaded.contracts)
    for pattern in app.patterns.values():
        _check_pattern(pattern, loaded)
    for enrich in app.enrichments.values():
        _check_enrich(enrich, loaded)
    for signals in app.signal_sets.values():
        if signals.of not in loaded.contracts:
            raise AppError(
                f"signals '{signals.name}': no stream '{signals.of}' in {app.contracts_dir}",
                where=signals.declared_at,
                hint=known_names(signals.of, loaded.contracts),
            )
        if signals.name in app.metrics:
            raise AppError(
                f"signals and a metric have the same table '{signals.name}'",
                where=signals.declared_at,
                hint=f"the metric is at {app.metrics[signals.name].declared_at}",
            )
        _refuse_stream_topic(
            f"signals '{signals.name}'", signals.topic, signals.declared_at, loaded.contracts
        )
    loaded.panels()
    return loaded


def _check_join(join: Join, app: App, contracts: dict[str, Contract]) -> None:
    for stream in (join.left, join.right):
        if stream not in contracts:
            raise AppError(
                f"join '{join.name}': no stream '{stream}' in {app.contracts_dir}",
                where=join.declared_at,
                hint=known_names(stream, contracts),
            )
    if join.name in app.metrics:
        raise AppError(
            f"join '{join.name}' and a metric have the same name",
            where=join.declared_at,
            hint=f"a name is a table; the metric is at {app.metrics[join.name].declared_at}",
        )
    for contract in contracts.values():
        for topic in join.topics:
            if topic in (contract.topics.raw, *contract.topics.outputs):
                raise AppError(
                    f"join '{join.name}': {topic} is a topic of the stream '{contract.name}'",
                    where=join.declared_at,
                    hint="joins need topics of their own",
                )


def _check_pattern(pattern: Pattern, loaded: LoadedApp) -> None:
    if pattern.of not in loaded.contracts:
        raise AppError(
            f"pattern '{pattern.name}': no stream '{pattern.of}' in {loaded.app.contracts_dir}",
            where=pattern.declared_at,
            hint=known_names(pattern.of, loaded.contracts),
        )
    for kind, names in (("metric", loaded.app.metrics), ("alert", loaded.app.alerts)):
        if pattern.name in names:
            raise AppError(
                f"pattern '{pattern.name}' has the name of {'an' if kind == 'alert' else 'a'} {kind}",
                where=pattern.declared_at,
                hint="their alerts could not be told apart: choose another name",
            )
    _refuse_stream_topic(
        f"pattern '{pattern.name}'", pattern.alert.topic, pattern.declared_at, loaded.contracts
    )


def _check_sessions(sessions: Sessions, loaded: LoadedApp) -> None:
    if sessions.of not in loaded.contracts:
        raise AppError(
            f"sessions '{sessions.name}': no stream '{sessions.of}' in {loaded.app.contracts_dir}",
            where=sessions.declared_at,
            hint=known_names(sessions.of, loaded.contracts),
        )
    if sessions.name in loaded.app.metrics:
        raise AppError(
            f"'{sessions.name}' is the name of a metric and of sessions: a name is a table",
            where=sessions.declared_at,
            hint=f"the metric is declared at {loaded.app.metrics[sessions.name].declared_at}",
        )


def _refuse_stream_topic(what: str, topic: str, declared_at: str, contracts: dict[str, Contract]) -> None:
    for contract in contracts.values():
        if topic in (contract.topics.raw, *contract.topics.outputs):
            raise AppError(
                f"{what}: {topic} is a topic of the stream '{contract.name}'",
                where=declared_at,
                hint="what is derived from a stream needs a topic of its own",
            )


def _check_enrich(enrich: Enrich, loaded: LoadedApp) -> None:
    what, where = f"enrich '{enrich.name}'", enrich.declared_at
    if enrich.of not in loaded.contracts:
        hint = known_names(enrich.of, loaded.contracts)
        raise AppError(f"{what}: no stream '{enrich.of}'", where=where, hint=hint)
    if enrich.name in loaded.contracts:
        raise AppError(f"{what}: there is a stream of that name", where=where)
    for topic in enrich.topics:
        _refuse_stream_topic(what, topic, where, loaded.contracts)
    enriched_contract(loaded.contract(enrich.of), enrich)


def _app_in(file: Path) -> App:
    module_name = f"headrace_app_{file.resolve().parent.name}"
    spec = importlib.util.spec_from_file_location(module_name, file.resolve())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except HeadraceError as error:
        if error.where:
            raise
        raise AppError(error.what, where=_line_of(error, file), hint=error.hint) from error
    except SyntaxError as error:
        raise AppError(f"syntax error: {error.msg}", where=f"{file}:{error.lineno}") from error
    except Exception as error:
        raise AppError(f"{type(error).__name__}: {error}", where=_line_of(error, file)) from error
    apps = [value for value in vars(module).values() if isinstance(value, App)]
    if len(apps) != 1:
        raise AppError(
            f"found {len(apps)} apps, expected one",
            where=str(file),
            hint='declare it once: app = App("name", contracts="contracts")',
        )
    return apps[0]


def _line_of(error: Exception, file: Path) -> str:
    """The place in the app file where an error came from."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file.resolve())]
    return f"{file}:{frames[-1].lineno}" if frames else str(file)
