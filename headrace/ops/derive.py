"""From declarations to what a batch is reduced by and what merges it: the two halves of every derivation."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from headrace.contracts.model import Contract
from headrace.declared import Declared
from headrace.store.alert_accounts import AlertAccounts
from headrace.store.metric_fold import MetricFold
from headrace.store.session_fold import SessionFold
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


def derive(
    spark: SparkSession, app: str, query: str, contract: Contract, declared: Declared
) -> Derivation | None:
    """None if nothing is. Raises AppError for the first declaration that does not fit the contract."""
    reducers: list[Reducer] = []
    folds: dict[str, Fold] = {}
    if declared.metrics:
        metrics = resolve(spark, declared.metrics, contract)
        rules = resolve_alerts(spark, declared.alerts, metrics)
        alerts = AlertAccounts(app, query, rules, declared.keep_alerts)
        reducers.append(MetricReducer(metrics))
        folds[METRICS] = MetricFold(app, query, metrics, alerts)
    if declared.sessions:
        sessions = resolve_sessions(spark, declared.sessions, contract)
        reducers.append(SessionReducer(sessions))
        folds[SESSIONS] = SessionFold(app, query, sessions)
    return Derivation(Views(reducers), folds) if folds else None
