"""Accepted events through everything that an app derives from a stream, batch by batch, on a real store."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from pyspark.sql import SparkSession

from headrace.contracts import Contract, load_contract
from headrace.declared import Declared
from headrace.ops.derive import derive
from headrace.store.connection import Store
from headrace.store.source_accounts import SourceAccounts
from tests.views.stream import CONTRACT, Stream

_numbers = itertools.count()


class DerivedStream(Stream):
    """As Stream, with any declarations; `feed` is one batch."""

    def __init__(self, spark: SparkSession, store_url: str, declared: Declared, app: str = "") -> None:
        self.app = app or f"derived_{next(_numbers)}_{datetime.now(UTC):%H%M%S%f}"
        self.contract: Contract = load_contract(CONTRACT)
        self._spark, self._url = spark, store_url
        self.store = Store(store_url)
        self.store.prepare()
        derivation = derive(spark, self.app, self.app, self.contract, declared)
        assert derivation is not None
        self.views, self.folds = derivation.views, derivation.folds
        self.accounts = SourceAccounts(self.store, self.app, self.contract, self.folds)
        self.accounts.prepare()
        self._clocks: dict[int, int | None] = {}
        self._batches = 0

    def table(self, name: str) -> list[dict[str, Any]]:
        with psycopg.connect(self._url, row_factory=dict_row) as connection:
            return connection.execute(
                sql.SQL("SELECT * FROM {}").format(sql.Identifier(self.app, name))
            ).fetchall()

    def outbox(self, topic: str) -> list[tuple[str, str]]:
        with psycopg.connect(self._url) as connection:
            return connection.execute(
                "SELECT key, value FROM headrace.outbox WHERE query = %s AND topic = %s ORDER BY position",
                (self.app, topic),
            ).fetchall()
