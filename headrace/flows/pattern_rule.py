"""A pattern that fits its contract: what it takes from a batch, and how its matches are searched."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

from headrace.contracts.model import Contract
from headrace.contracts.spark_schema import spark_type
from headrace.errors import AppError, known_names
from headrace.flows.automaton import Automaton, TooLongError
from headrace.flows.search import Search
from headrace.flows.taken import Want
from headrace.gate.mask import plain_fields
from headrace.patterns import Pattern
from headrace.sequences import elements, needed, shortest
from headrace.views.expressions import fields_used
from headrace.windows import MICROSECOND

PLAIN = ("int", "bigint", "double", "boolean")  # types whose text is JSON; decimals stay text


@dataclass(frozen=True)
class PatternRule:
    """Its times in microseconds, as the engine counts. What is asked for each event is computed once."""

    pattern: Pattern
    lateness: timedelta  # of the contract
    fields: tuple[str, ...]  # of the contract, that it uses
    plain: tuple[bool, ...]  # for each shown field, whether its text is JSON

    @property
    def part(self) -> str:
        """The name of its part of a batch, and of the fold that merges it."""
        return f"pattern.{self.pattern.name}"

    @cached_property
    def within(self) -> int:
        return self.pattern.within // MICROSECOND

    @cached_property
    def quiet(self) -> int:
        return self.pattern.quiet // MICROSECOND

    @cached_property
    def slack(self) -> int:
        """How old an event may be, behind the clock, to be looked at.

        Behind the end of the time for which an absence waits, nothing can change any more; a sequence is
        looked for whenever the gate lets an event through.
        """
        if self.pattern.kind == "absence":
            return self.within + self._final_after // MICROSECOND
        return self.lateness // MICROSECOND

    @cached_property
    def memory(self) -> int:
        """How long, behind the watermark, an event is remembered."""
        return self.slack if self.pattern.kind == "absence" else self.slack + self.within

    @cached_property
    def search(self) -> Search:
        assert self.pattern.tree is not None
        return Search(Automaton(self.pattern.tree, self.pattern.bits), self.elements, self.within)

    @cached_property
    def elements(self) -> int:
        """The bits of the symbols that a match is made of."""
        assert self.pattern.tree is not None
        return sum(self.pattern.bits[symbol] for symbol in elements(self.pattern.tree))

    @cached_property
    def needed(self) -> int:
        assert self.pattern.tree is not None
        return sum(self.pattern.bits[symbol] for symbol in needed(self.pattern.tree))

    @cached_property
    def shortest(self) -> int:
        assert self.pattern.tree is not None
        return shortest(self.pattern.tree)

    def want(self) -> Want:
        """Events with a key that fulfil at least one symbol: which ones, the key, and what an alert shows."""
        pattern = self.pattern
        conditions = [f"coalesce(({condition}), false)" for condition in pattern.define.values()]
        mask = " + ".join(f"IF({condition}, {1 << n}, 0)" for n, condition in enumerate(conditions))
        keys = [f"`{name}`" for name in pattern.key]
        where = " AND ".join([*(f"{key} IS NOT NULL" for key in keys), f"({' OR '.join(conditions)})"])
        columns = {"mask": mask}
        columns |= {f"key{n}": key for n, key in enumerate(keys)}
        columns |= {f"show{n}": f"`{name}`" for n, name in enumerate(pattern.show)}
        closest = self._final_after if pattern.kind == "absence" else None
        return Want(self.part, where, columns, self.fields, closest)

    def key_of(self, values: Sequence[str | None]) -> str:
        """The key of a taken event as one text."""
        if len(self.pattern.key) == 1:
            return storable(values[1] or "")
        labels = [storable(label or "") for label in values[1 : 1 + len(self.pattern.key)]]
        return json.dumps(labels, ensure_ascii=False)

    def labels_of(self, key: str) -> dict[str, str]:
        names = self.pattern.key
        return {names[0]: key} if len(names) == 1 else dict(zip(names, json.loads(key), strict=True))

    def shown_of(self, values: Sequence[str | None]) -> str | None:
        """What an alert shows of a taken event, as JSON."""
        if not self.pattern.show:
            return None
        texts = zip(self.pattern.show, self.plain, values[1 + len(self.pattern.key) :], strict=True)
        return json.dumps({name: _value(text, plain) for name, plain, text in texts}, ensure_ascii=False)

    @property
    def _final_after(self) -> timedelta:
        chosen = self.pattern.final_after
        return self.lateness if chosen is None else chosen


def resolve_patterns(
    spark: SparkSession, patterns: Iterable[Pattern], contract: Contract
) -> list[PatternRule]:
    """Raises AppError, with the line of the declaration, for the first thing that is wrong."""
    fields = plain_fields(contract)
    schema = spark_types.StructType(
        [
            spark_types.StructField(f.name, spark_types.StringType() if f.mask else spark_type(f.type))
            for f in fields
        ]
    )
    frame = spark.createDataFrame([], schema)
    return [_resolve(frame, pattern, contract) for pattern in patterns]


def _resolve(frame: DataFrame, pattern: Pattern, contract: Contract) -> PatternRule:
    what, where = f"pattern '{pattern.name}'", pattern.declared_at
    known = frame.columns
    used: set[str] = set()
    for option, names in (("key", pattern.key), ("show", pattern.show)):
        for name in names:
            if name not in known:
                hint = known_names(name, known)
                raise AppError(f"{what}, {option}: no field '{name}'", where=where, hint=hint)
            used.add(name)
    for symbol, condition in pattern.define.items():
        used |= _condition(frame, condition, f"{what}, {symbol}", where)
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    plain = tuple(types[name] in PLAIN for name in pattern.show)
    rule = PatternRule(pattern, contract.lateness, tuple(name for name in known if name in used), plain)
    try:
        if pattern.tree is not None:
            _ = rule.search
    except TooLongError:
        hint = "use fewer repeats; a count alone is cheaper: count=..., within=..."
        raise AppError(f"{what}: the sequence is too long", where=where, hint=hint) from None
    return rule


def _condition(frame: DataFrame, text: str, what: str, where: str) -> set[str]:
    used = fields_used(text, frame.columns, what=what, where=where)
    try:
        kind = frame.selectExpr(text).schema[0].dataType.simpleString()
    except PySparkException as error:
        problem = str(error).split("\n")[0].split("SQLSTATE")[0].strip()
        raise AppError(f"{what}: {problem}", where=where) from None
    if kind != "boolean":
        raise AppError(f"{what}: '{text}' is not a condition", where=where)
    return used


def storable(text: str) -> str:
    """Postgres keeps every text but those with a zero byte in it."""
    return text.replace("\x00", "\ufffd") if "\x00" in text else text


def _value(text: str | None, plain: bool) -> Any:
    if text is None or not plain:
        return text if text is None else storable(text)
    try:
        return json.loads(text)
    except ValueError:
        return text
