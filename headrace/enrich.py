"""Enrichment: every accepted event again, with what a table knew at its time. Declarations, no Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from headrace.alerts import TOPIC
from headrace.contracts.model import Contract, Field, Type
from headrace.dimensions import Dimension
from headrace.errors import AppError, known_names
from headrace.metrics import NAME

Unknown = Literal["keep", "dead_letter"]
_VERSION = re.compile(r"(\.v\d+)?$")


@dataclass(frozen=True)
class Enrich:
    """`columns` are the fields that an event gains: name → table and column."""

    name: str
    of: str
    tables: tuple[Dimension, ...]
    columns: Mapping[str, tuple[str, str]]
    topic: str
    unknown: Unknown = "keep"
    declared_at: str = ""

    @property
    def fold(self) -> str:
        return f"enrich.{self.name}"

    @property
    def dead_letters(self) -> str:
        """`clickstream.enriched.v1` → `clickstream.enriched.unknown.v1`."""
        return _VERSION.sub(lambda found: f".unknown{found[0]}", self.topic, count=1)

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.topic, *([self.dead_letters] if self.unknown == "dead_letter" else []))

    @property
    def added(self) -> dict[str, Field]:
        """The fields of an enriched event that the original does not have."""
        found: dict[str, Field] = {}
        for table in self.tables:
            for name, (owner, column) in self.columns.items():
                if owner == table.name:
                    found[name] = Field(
                        name, Type(table.type_of(column)), description=f"{column} of {owner} at {table.as_of}"
                    )
            since, known = f"{table.name}_valid_from", f"{table.name}_found"
            found[since] = Field(
                since, Type("timestamp"), description=f"since when the version of {table.name} was valid"
            )
            found[known] = Field(
                known,
                Type("boolean"),
                description=f"whether {table.name} had a version; null where {table.on} is absent",
            )
        return found


def make_enrich(
    name: str,
    of: str,
    tables: Sequence[Dimension],
    columns: Mapping[str, str],
    unknown: Unknown,
    topic: str,
    declared_at: str,
) -> Enrich:
    """Raises AppError for what is wrong without looking at a contract."""
    what = f"enrich '{name}'"
    if not NAME.fullmatch(name):
        raise AppError(f"'{name}' is no name", where=declared_at, hint="lower-case letters, digits and _")
    if not tables or not columns:
        raise AppError(
            f"{what} adds nothing",
            where=declared_at,
            hint='with_=table("products", …), columns={"category": "products.category"}',
        )
    if unknown not in get_args(Unknown):
        hint = known_names(str(unknown), get_args(Unknown))
        raise AppError(f"{what}: there is no unknown={unknown!r}", where=declared_at, hint=hint)
    if not TOPIC.fullmatch(topic):
        raise AppError(f"{what}: '{topic}' is no name for a topic", where=declared_at)
    names = [table.name for table in tables]
    split = {}
    for column, source in columns.items():
        owner, dot, of_table = source.partition(".")
        if not dot or owner not in names:
            raise AppError(
                f"{what}, {column}: '{source}' is no column of a table",
                where=declared_at,
                hint=f'like "{names[0]}.{source.rpartition(".")[2]}"',
            )
        split[column] = (owner, of_table)
    return Enrich(name, of, tuple(tables), split, topic, unknown, declared_at)


def enriched_contract(contract: Contract, enrich: Enrich) -> Contract:
    """What the topic of enriched events promises. Masked fields are texts; dropped ones are gone."""
    fields = [
        replace(f, type=Type("string"), mask=None) if f.mask is not None else f
        for f in contract.fields
        if f.mask is None or f.mask.how != "drop"
    ]
    twice = next((f.name for f in fields if f.name in enrich.added), None)
    if twice is not None:
        raise AppError(
            f"enrich '{enrich.name}': the events of '{contract.name}' have a field '{twice}' already",
            where=enrich.declared_at,
            hint="give the column another name",
        )
    return replace(
        contract,
        name=enrich.name,
        fields=(*fields, *enrich.added.values()),
        description=f"{contract.name}, with {', '.join(t.name for t in enrich.tables)} at the event's time",
    )
