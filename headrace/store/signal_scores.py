"""Scoring a batch: features into a staging table, then one statement for each scorer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import psycopg
from psycopg import sql

from headrace.errors import AppError
from headrace.flows.models import load_model
from headrace.flows.signals import ResolvedSignals
from headrace.models import Model
from headrace.signals import Rule
from headrace.store.connection import Connection
from headrace.store.signal_tables import columns_sql

FEATURES_FROM = 7  # what comes before the labels in a row
STAGED = sql.Identifier("signals_staged")


class Scores:
    """Fills the staging table, and the columns `score` and `shadow_score` of it."""

    def __init__(self, resolved: ResolvedSignals) -> None:
        self._resolved, self._signals = resolved, resolved.signals
        scorers = {"score": self._signals.scorer, "shadow_score": self._signals.shadow}
        self._rules = {column: s for column, s in scorers.items() if isinstance(s, Rule)}
        self._models = {column: load_model(s) for column, s in scorers.items() if isinstance(s, Model)}
        names = list(self._signals.features)
        self._places = {
            column: [FEATURES_FROM + len(self._signals.labels) + names.index(f) for f in loaded.features]
            for column, loaded in self._models.items()
        }

    def check(self, connection: Connection) -> None:
        """Raises AppError for an expression that Postgres does not understand."""
        try:
            with connection.transaction():
                self.compute(connection, [])
        except psycopg.Error as error:
            problem = str(error).split("\n")[0]
            raise AppError(
                f"signals '{self._signals.name}', score: {problem}", where=self._signals.declared_at
            ) from error
        self.drop(connection)

    def compute(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        self._stage(connection, rows)
        self._score(connection, len(rows))

    def drop(self, connection: Connection) -> None:
        connection.execute(sql.SQL("DROP TABLE {}").format(STAGED))

    def _stage(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        connection.execute(
            sql.SQL(
                "CREATE TEMPORARY TABLE {} (__n int PRIMARY KEY, id text, event_id text, partition int,"
                ' "offset" bigint, event_time timestamptz, log_time timestamptz, {}, complete boolean,'
                " score double precision, shadow_score double precision) ON COMMIT DROP"
            ).format(STAGED, columns_sql(self._resolved))
        )
        columns = (
            *("__n", "id", "event_id", "partition", "offset", "event_time", "log_time"),
            *(*self._signals.labels, *self._signals.features, "complete", *self._models),
        )
        scores = [self._scores_of(column, rows) for column in self._models]
        with (
            connection.cursor() as cursor,
            cursor.copy(
                sql.SQL("COPY {} ({}) FROM STDIN").format(
                    STAGED, sql.SQL(", ").join(map(sql.Identifier, columns))
                )
            ) as copy,
        ):
            for n, row in enumerate(rows):
                copy.write_row((*row, *(column[n] for column in scores)))

    def _score(self, connection: Connection, count: int) -> None:
        for column, rule in self._rules.items():
            statement = sql.SQL("UPDATE {} SET {} = {} WHERE __n >= %s AND __n < %s").format(
                STAGED, sql.Identifier(column), sql.SQL(self._resolved.score_sql(rule))
            )
            _evaluate(connection, statement, 0, count)

    def _scores_of(self, column: str, rows: Sequence[tuple[Any, ...]]) -> list[float | None]:
        """What a model says, of all rows at once; a score that is no number is none."""
        if not rows:
            return []
        places = self._places[column]
        matrix = np.array([[_number(row[place]) for place in places] for row in rows], dtype=float)
        found = self._models[column].score(matrix)
        return [float(score) if math.isfinite(score) else None for score in found]


def _number(value: Any) -> float:
    """Features are numbers, or the texts of numbers and truths."""
    if value is None:
        return math.nan
    return {"true": 1.0, "false": 0.0}[value] if value in ("true", "false") else float(value)


def _evaluate(connection: Connection, statement: sql.Composed, start: int, end: int) -> None:
    """An event on which a formula fails (a logarithm of zero) has no score; the others of the batch do."""
    try:
        with connection.transaction():
            connection.execute(statement, (start, end))
    except psycopg.DataError:
        if end - start > 1:
            middle = (start + end) // 2
            _evaluate(connection, statement, start, middle)
            _evaluate(connection, statement, middle, end)
