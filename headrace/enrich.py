"""Enrichment: every accepted event again, with what a table knew at its time. Declarations, no Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal, get_args

from headrace.alerts import TOPIC
from headrace.contracts.durations import parse_duration
from headrace.contracts.model import Contract, Field, Type
from headrace.dimensions import Dimension
from headrace.errors import AppError, UsageError, known_names
from headrace.metrics import NAME

End = Literal["keep", "dead_letter"]
Unknown = Literal["keep", "dead_letter", "retry"]
RETRY_FOR = "10 minutes"
WAITING_LIMIT = 100_000
_VERSION = re.compile(r"(\.v\d+)?$")


@dataclass(frozen=True)
class Retry:
    """How long an event waits for a table that does not know its key yet, what then, and how many may."""

    horizon: timedelta
    then: End
    limit: int


@dataclass(frozen=True)
class Enrich:
    """`columns` are the fields that an event gains: name → table and column."""

    name: str
    of: str
    tables: tuple[Dimension, ...]
    columns: Mapping[str, tuple[str, str]]
    topic: str
    unknown: Unknown = "keep"
    retry: Retry | None = None
    declared_at: str = ""

    @property
    def fold(self) -> str:
        return f"enrich.{self.name}"

    @property
    def dead_letters(self) -> str:
        """`clickstream.enriched.v1` → `clickstream.enriched.unknown.v1`."""
        return _VERSION.sub(lambda found: f".unknown{found[0]}", self.topic, count=1)

    @property
    def ends_dead(self) -> bool:
        """Whether an event that no table knows, now or after its wait, goes to the dead letters."""
        return "dead_letter" in (self.unknown, self.retry.then if self.retry is not None else "")

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.topic, *([self.dead_letters] if self.ends_dead else []))

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
    retry: tuple[str | None, End | None, int | None] = (None, None, None),
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
    waits = _retry(what, unknown, *retry, declared_at)
    return Enrich(name, of, tuple(tables), split, topic, unknown, waits, declared_at)


def _retry(
    what: str,
    unknown: Unknown,
    retry_for: str | None,
    then: End | None,
    limit: int | None,
    declared_at: str,
) -> Retry | None:
    if unknown != "retry":
        given = {"retry_for": retry_for, "then": then, "waiting_limit": limit}
        extra = next((name for name, value in given.items() if value is not None), None)
        if extra is not None:
            raise AppError(
                f"{what}: {extra} is for unknown='retry', and unknown is {unknown!r}", where=declared_at
            )
        return None
    try:
        horizon = parse_duration(RETRY_FOR if retry_for is None else retry_for)
    except UsageError as error:
        raise AppError(f"{what}, retry_for: {error.what}", where=declared_at, hint=error.hint) from error
    if not horizon:
        raise AppError(
            f"{what}: retry_for is nothing", where=declared_at, hint="unknown='keep' or 'dead_letter'"
        )
    if then is not None and then not in get_args(End):
        hint = known_names(str(then), get_args(End))
        raise AppError(f"{what}: there is no then={then!r}", where=declared_at, hint=hint)
    if limit is not None and limit < 1:
        raise AppError(f"{what}: waiting_limit must be at least 1, not {limit}", where=declared_at)
    return Retry(horizon, then or "keep", limit or WAITING_LIMIT)


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
