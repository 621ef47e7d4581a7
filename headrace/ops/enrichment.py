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
from headrace.store.enrich_pins import Pin, Pins, pin_now


class Enrichment:
    """Raises AppError where a declaration does not fit the contract or a table."""

    def __init__(
        self,
        contract: Contract,
        declared: Sequence[Enrich],
        dimensions: Dimensions,
        pins: Pins | None = None,
    ) -> None:
        self._declared, self._contract, self._pins = declared, contract, pins
        self._live: dict[str, LiveDimension] = {}
        for enrich in declared:
            for table in enrich.tables:
                check_table(table, contract, f"enrich '{enrich.name}'", enrich.declared_at)
                self._live[table.name] = dimensions.live(table)
            enriched_contract(contract, enrich)
            self._check_columns(enrich)
        self._made: list[Enricher] = []
        self._made_of: object = None
        self._broadcast: Any = None

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of an event that the tables are asked with."""
        return tuple(dict.fromkeys(table.on for enrich in self._declared for table in enrich.tables))

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(topic for enrich in self._declared for topic in enrich.topics)

    def enrichers(self, batch_id: int) -> list[Enricher]:
        """With the tables that the batch is to use; asked for once, before anything of it is published."""
        assert self._pins is not None, "only what runs is pinned"
        return self._made_for(self._pins.of(batch_id, self._live))

    def prepare(self, spark: SparkSession) -> None:
        """Make what the first batch most likely needs: for a large table that takes longer than a batch."""
        waits = frozenset(enrich.name for enrich in self._declared if enrich.retry is not None)
        self._sent(spark, self._made_for(pin_now(self._live, waits)))

    def shared(self, spark: SparkSession, batch_id: int) -> Any:
        """The enrichers as a broadcast: a worker reads it once for many batches."""
        return self._sent(spark, self.enrichers(batch_id))

    def _made_for(self, pin: Pin) -> list[Enricher]:
        if (pin.editions, pin.waits) != self._made_of:
            self._made = [
                make_enricher(enrich, pin.tables, self._contract.version, enrich.name in pin.waits)
                for enrich in self._declared
            ]
            self._made_of = (pin.editions, pin.waits)
            if self._broadcast is not None:
                self._broadcast.unpersist(blocking=False)
            self._broadcast = None
        return self._made

    def _sent(self, spark: SparkSession, made: list[Enricher]) -> Any:
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
