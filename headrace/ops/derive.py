"""From declarations to what a batch is reduced by and what merges it: the two halves of every derivation."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from headrace.connections import query_name
from headrace.contracts.model import Contract
from headrace.declared import Declared
from headrace.flows.join_resolve import resolve_join
from headrace.flows.pattern_rule import resolve_patterns
from headrace.flows.signals import resolve_signals
from headrace.flows.taken import TakeReducer, Want
from headrace.joins import Side
from headrace.ops.enrichment import Enrichment
from headrace.store.alert_accounts import AlertAccounts
from headrace.store.dimensions import Dimensions
from headrace.store.enrich_fold import EnrichFold
from headrace.store.enrich_pins import Pins
from headrace.store.join_fold import JoinFold
from headrace.store.metric_fold import MetricFold
from headrace.store.pattern_fold import pattern_fold
from headrace.store.session_fold import SessionFold
from headrace.store.signal_fold import SignalFold
from headrace.store.source_accounts import Fold
from headrace.views.alert_rule import resolve_alerts
from headrace.views.batch import METRICS, MetricReducer, Reducer, Views
from headrace.views.resolve import resolve
from headrace.views.session_pieces import SESSIONS, SessionReducer, resolve_sessions


@dataclass(frozen=True)
class Derivation:
    """What is derived from one source; a part of a batch goes to the fold of its name."""

    views: Views
    folds: dict[str, Fold]
    enrichment: Enrichment | None = None

    @property
    def carried(self) -> tuple[str, ...]:
        """The fields of the contract that all of it needs."""
        asked = self.enrichment.fields if self.enrichment is not None else ()
        return tuple(dict.fromkeys((*self.views.carried, *asked)))


def derive(
    spark: SparkSession,
    app: str,
    query: str,
    contract: Contract,
    declared: Declared,
    dimensions: Dimensions | None = None,
) -> Derivation | None:
    """None if nothing is. Raises AppError for the first declaration that does not fit the contract."""
    reducers: list[Reducer] = []
    folds: dict[str, Fold] = {}
    wants: list[Want] = []
    if declared.metrics:
        metrics = resolve(spark, declared.metrics, contract)
        rules = resolve_alerts(spark, declared.alerts, metrics)
        alerts = AlertAccounts(app, query, rules, declared.keep_alerts)
        reducers.append(MetricReducer(metrics))
        folds[METRICS] = MetricFold(app, query, metrics, alerts)
    for side in declared.joins:
        resolved = resolve_join(spark, side)
        queries: dict[Side, str] = {
            "left": query_name(app, side.left.name),
            "right": query_name(app, side.right.name),
        }
        wants.append(resolved.want(side.side))
        folds[side.name] = JoinFold(app, queries, resolved, side.side)
    if declared.patterns:
        names = [pattern.name for pattern in declared.patterns]
        for pattern in resolve_patterns(spark, declared.patterns, contract):
            wants.append(pattern.want())
            folds[pattern.part] = pattern_fold(app, query, pattern, names, declared.keep_alerts)
    dimensions = dimensions or Dimensions()
    for signals in resolve_signals(spark, declared.signals, contract):
        wants.append(signals.want)
        folds[signals.fold] = SignalFold(app, query, signals, dimensions)
    for enrich in declared.enrich:
        folds[enrich.fold] = EnrichFold(app, query, contract, enrich, dimensions)
    if wants:
        reducers.append(TakeReducer(wants))
    if declared.sessions:
        sessions = resolve_sessions(spark, declared.sessions, contract)
        reducers.append(SessionReducer(sessions))
        folds[SESSIONS] = SessionFold(app, query, sessions)
    enrichment = None
    if declared.enrich:
        pins = Pins(app, query, declared.enrich, dimensions)
        enrichment = Enrichment(contract, declared.enrich, dimensions, pins)
    return Derivation(Views(reducers), folds, enrichment) if folds else None
