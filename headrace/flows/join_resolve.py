"""A declared join against its two contracts: every name, type and condition checked beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types
from sqlglot import exp

from headrace.contracts.model import Contract
from headrace.contracts.spark_schema import spark_type
from headrace.errors import AppError, known_names
from headrace.flows.join_terms import fields_of, in_store, on_one_side, over_pairs, parsed, sides_of
from headrace.flows.taken import Want
from headrace.gate.mask import plain_fields
from headrace.joins import SIDES, Join, JoinSide, Order, Side
from headrace.views.expressions import fields_used
from headrace.views.resolve import PG_TYPES


@dataclass
class SideColumns:
    """What one side hands over: its key, and expressions with the types they have in the store."""

    where: str
    key: str
    taken: dict[str, tuple[str, str]] = field(default_factory=dict)  # name → Spark SQL, type in Postgres
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResolvedJoin:
    """A join that fits its contracts; `columns` and `checks` are in the words of Postgres."""

    join: Join
    left: Contract
    right: Contract
    order: Order
    sides: dict[Side, SideColumns]
    columns: dict[str, tuple[str, str, Side | None]]  # name → SQL, type, whose it is
    checks: dict[str, str]

    def contract(self, side: Side) -> Contract:
        return self.left if side == "left" else self.right

    def want(self, side: Side) -> Want:
        mine = self.sides[side]
        name = f"{self.join.name}:{side}"
        columns = {"key": mine.key, **{column: text for column, (text, _) in mine.taken.items()}}
        return Want(name, mine.where, columns, mine.fields)


def resolve_join(spark: SparkSession, side: JoinSide) -> ResolvedJoin:
    """Raises AppError, with the line of the declaration, for the first thing that is wrong."""
    return _Resolving(spark, side.join, side.left, side.right).result()


class _Resolving:
    def __init__(self, spark: SparkSession, join: Join, left: Contract, right: Contract) -> None:
        self._spark, self._join, self._where = spark, join, join.declared_at
        self._contracts: dict[Side, Contract] = {"left": left, "right": right}
        self._frames: dict[Side, DataFrame] = {s: _frame(spark, self._contracts[s]) for s in SIDES}
        self._known: dict[Side, list[str]] = {s: self._frames[s].columns for s in SIDES}
        self._used: dict[Side, set[str]] = {"left": set(), "right": set()}
        self._sides: dict[Side, SideColumns] = {}

    def result(self) -> ResolvedJoin:
        join = self._join
        keys = self._keys()
        for side in SIDES:
            self._condition(side)
            self._sides[side] = SideColumns(join.where.get(side, ""), keys[side])
        columns = {name: self._column(name, text) for name, text in join.columns.items()}
        checks = {reason: self._check(reason, text) for reason, text in join.checks.items()}
        for side in SIDES:
            self._sides[side].fields = tuple(n for n in self._known[side] if n in self._used[side])
        order = join.order or ("log" if all(map(self._stays_in_one_partition, SIDES)) else "event_time")
        contracts = self._contracts
        return ResolvedJoin(join, contracts["left"], contracts["right"], order, self._sides, columns, checks)

    def _stays_in_one_partition(self, side: Side) -> bool:
        """Whether the contract says that all events of a key share a partition, and with it an order."""
        return self._contracts[side].key in [pair[SIDES.index(side)] for pair in self._join.on]

    def _keys(self) -> dict[Side, str]:
        types: dict[Side, list[str]] = {"left": [], "right": []}
        for pair in self._join.on:
            for side, name in zip(SIDES, pair, strict=True):
                if name not in self._known[side]:
                    raise AppError(
                        f"{self._what('on')}: '{self._join.stream(side)}' has no field '{name}'",
                        where=self._where,
                        hint=known_names(name, self._known[side]),
                    )
                self._used[side].add(name)
                types[side].append(self._frames[side].schema[name].dataType.simpleString())
        for n, (left, right) in enumerate(self._join.on):
            if types["left"][n] != types["right"][n]:
                raise AppError(
                    f"{self._what('on')}: left.{left} is {types['left'][n]},"
                    f" right.{right} is {types['right'][n]}: they are never equal as texts",
                    where=self._where,
                )
        names: dict[Side, list[str]] = {s: [pair[SIDES.index(s)] for pair in self._join.on] for s in SIDES}
        return {side: _key(names[side]) for side in SIDES}

    def _condition(self, side: Side) -> None:
        text = self._join.where.get(side, "")
        if not text:
            return
        what = self._what(f"{side}_where")
        self._used[side] |= fields_used(text, self._known[side], what=what, where=self._where)
        if self._type(self._frames[side], text, what) != "boolean":
            raise AppError(f"{what}: '{text}' is not a condition", where=self._where)

    def _column(self, name: str, text: str) -> tuple[str, str, Side | None]:
        what = self._what(name)
        tree = parsed(text, self._known, what, self._where)
        sides = sides_of(tree)
        if len(sides) == 1:
            [side] = sides
            column = self._take(side, on_one_side(tree), fields_of(tree, side), what)
            return self._held(side, column), self._sides[side].taken[column][1], side
        type_ = self._stored_type(self._type(self._pairs(tree), over_pairs(tree, _pair_name), what), what)
        rendered = in_store(tree, lambda s, n: self._field(s, n, what), what, self._where)
        return f"CAST({rendered} AS {type_})", type_, None

    def _check(self, reason: str, text: str) -> str:
        what = self._what(f"check '{reason}'")
        tree = parsed(text, self._known, what, self._where)
        if self._type(self._pairs(tree), over_pairs(tree, _pair_name), what) != "boolean":
            raise AppError(f"{what}: '{text}' is not a condition", where=self._where)
        return in_store(tree, lambda s, n: self._field(s, n, what), what, self._where)

    def _field(self, side: Side, name: str, what: str) -> str:
        """A field inside a formula of the store: whole numbers there must not overflow."""
        column = self._take(side, f"`{name}`", {name}, what)
        held, type_ = self._held(side, column), self._sides[side].taken[column][1]
        return f"CAST({held} AS NUMERIC)" if type_ == "bigint" else held

    def _take(self, side: Side, text: str, fields: set[str], what: str) -> str:
        """The name under which a side hands an expression over; the same for the same expression."""
        self._used[side] |= fields
        type_ = self._type(self._frames[side], text, what)
        stored = self._stored_type(type_, what)
        shown = f"unix_micros({text})" if type_ == "timestamp" else text
        taken = self._sides[side].taken
        found = next((name for name, (known, _) in taken.items() if known == shown), None)
        if found is None:
            found = f"v{len(taken)}"
            taken[found] = (shown, stored)
        return found

    def _held(self, side: Side, column: str) -> str:
        return f'{side[0]}."{column}"'

    def _stored_type(self, type_: str, what: str) -> str:
        if type_.startswith("decimal"):
            return "numeric"
        if type_ not in PG_TYPES:
            raise AppError(f"{what}: a column of {type_} is not possible", where=self._where)
        return PG_TYPES[type_]

    def _pairs(self, tree: exp.Expr) -> DataFrame:
        schema = spark_types.StructType()
        for side in SIDES:
            for name in sorted(fields_of(tree, side)):
                schema.add(_pair_name(side, name), self._frames[side].schema[name].dataType)
        return self._spark.createDataFrame([], schema)

    def _type(self, frame: DataFrame, text: str, what: str) -> str:
        try:
            return frame.selectExpr(text).schema[0].dataType.simpleString()
        except PySparkException as error:
            problem = str(error).split("\n")[0].split("SQLSTATE")[0].strip()
            raise AppError(f"{what}: {problem}", where=self._where) from None

    def _what(self, part: str) -> str:
        return f"join '{self._join.name}', {part}"


def _frame(spark: SparkSession, contract: Contract) -> DataFrame:
    fields = [
        spark_types.StructField(f.name, spark_types.StringType() if f.mask else spark_type(f.type))
        for f in plain_fields(contract)
    ]
    return spark.createDataFrame([], spark_types.StructType(fields))


def _key(names: list[str]) -> str:
    """One text for the whole key; null if a part of it is: such an event has no partner."""
    parts = [f"CAST(`{name}` AS STRING)" for name in names]
    if len(parts) == 1:
        return parts[0]
    there = " AND ".join(f"{part} IS NOT NULL" for part in parts)
    return f"CASE WHEN {there} THEN to_json(array({', '.join(parts)})) END"


def _pair_name(side: Side, name: str) -> str:
    return f"{side}__{name}"
