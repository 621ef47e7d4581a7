"""The enrichments of one source on the driver: what workers need, made anew when a table changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from headrace.contracts.model import Contract
from headrace.enrich import Enrich, enriched_contract
from headrace.enricher import Enricher, make_enricher
from headrace.errors import AppError, known_names
from headrace.flows.signals import check_table
from headrace.store.dimensions import Dimensions, LiveDimension


class Enrichment:
    """Raises AppError where a declaration does not fit the contract or a table."""

    def __init__(self, contract: Contract, declared: Sequence[Enrich], dimensions: Dimensions) -> None:
        self._declared, self._contract = declared, contract
        self._live: dict[str, LiveDimension] = {}
        for enrich in declared:
            for table in enrich.tables:
                check_table(table, contract, f"enrich '{enrich.name}'", enrich.declared_at)
                self._live[table.name] = dimensions.live(table)
            enriched_contract(contract, enrich)
            self._check_columns(enrich)
        self._made: list[Enricher] = []
        self._generations: dict[str, int] = {}
        self._broadcast: Any = None

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of an event that the tables are asked with."""
        return tuple(dict.fromkeys(table.on for enrich in self._declared for table in enrich.tables))

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(topic for enrich in self._declared for topic in enrich.topics)

    def enrichers(self) -> list[Enricher]:
        versions = {name: live.current() for name, live in self._live.items()}
        generations = {name: live.generation for name, live in self._live.items()}
        if generations != self._generations:
            self._made = [
                make_enricher(enrich, versions, self._contract.version) for enrich in self._declared
            ]
            self._generations = generations
            if self._broadcast is not None:
                self._broadcast.unpersist(blocking=False)
            self._broadcast = None
        return self._made

    def shared(self, spark: SparkSession) -> Any:
        """The enrichers as a broadcast: a worker reads it once for many batches."""
        made = self.enrichers()
        if self._broadcast is None:
            self._broadcast = spark.sparkContext.broadcast(made)
        return self._broadcast

    def _check_columns(self, enrich: Enrich) -> None:
        for name, (table, column) in enrich.columns.items():
            known = self._live[table].current().columns
            if column not in known:
                raise AppError(
                    f"enrich '{enrich.name}', {name}: table '{table}' has no column '{column}'",
                    where=enrich.declared_at,
                    hint=known_names(column, known),
                )
