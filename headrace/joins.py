"""A join of two streams: pairs of events with the same key, close in time. Frozen values, no Spark.

Semantics, in one place: a left and a right event are a *pair* if their keys are equal and their event times
are at most `within` apart. Which pairs become results depends on the kind; a pair that fails a check never
does, goes to the dead letters and uses up nobody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, get_args

from headrace.alerts import TOPIC
from headrace.contracts.durations import parse_duration
from headrace.contracts.model import Contract
from headrace.errors import AppError, UsageError, known_names
from headrace.metrics import NAME

Kind = Literal["one_to_one", "one_to_many", "first_match"]
Order = Literal["log", "event_time"]
On = str | tuple[str, str] | Sequence[str | tuple[str, str]]
Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")
OWN_COLUMNS = (
    *("id", "key", "left_id", "right_id", "left_time", "right_time"),
    *("event_time", "matched_at"),
)
REASON = re.compile(r"[a-z][a-z0-9_]{0,60}")
NO_KEY = "no_key"
LONGEST_NAME = 48  # its tables are named after it


@dataclass(frozen=True)
class Join:
    name: str
    left: str
    right: str
    on: tuple[tuple[str, str], ...]  # a field of the left, a field of the right
    within: timedelta
    kind: Kind = "one_to_one"
    order: Order | None = None  # None: as the contracts allow
    where: Mapping[Side, str] = field(default_factory=dict)
    checks: Mapping[str, str] = field(default_factory=dict)  # reason → condition
    columns: Mapping[str, str] = field(default_factory=dict)
    unmatched: Mapping[Side, str | None] = field(default_factory=dict)  # reason; None: only counted
    topic: str = ""
    dead_letters: str = ""
    retain: timedelta = timedelta(days=7)
    declared_at: str = ""

    def stream(self, side: Side) -> str:
        return self.left if side == "left" else self.right

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(topic for topic in (self.topic, self.dead_letters) if topic)


@dataclass(frozen=True)
class JoinSide:
    """One stream's part in a join, with the contracts of both."""

    join: Join
    side: Side
    left: Contract
    right: Contract

    @property
    def name(self) -> str:
        return f"{self.join.name}:{self.side}"


def other(side: Side) -> Side:
    return "right" if side == "left" else "left"


def lane_name(app: str, join: str) -> str:
    """Under which a join writes to the outbox: two queries write, one after the other, and neither is it."""
    return f"{app}.join.{join}"


def make_join(
    name: str,
    left: str,
    right: str,
    on: On,
    *,
    within: str,
    kind: Kind,
    order: Order | None,
    where: Mapping[Side, str],
    check: str | Mapping[str, str],
    columns: Mapping[str, str],
    unmatched: Mapping[Side, str | None],
    topic: str,
    dead_letters: str,
    retain: str,
    declared_at: str,
) -> Join:
    """Raises AppError for what is wrong without looking at the contracts."""
    what = f"join '{name}'"
    usual: dict[Side, str] = {"left": f"no_{right}", "right": f"no_{left}"}
    if left == right:
        usual = {"left": "no_right", "right": "no_left"}
    reasons: dict[Side, str | None] = {s: usual[s] if unmatched[s] == "" else unmatched[s] for s in SIDES}
    try:
        times = [parse_duration(text) for text in (within, retain)]
    except UsageError as error:
        raise AppError(f"{what}: {error.what}", where=declared_at, hint=error.hint) from error
    join = Join(
        *(name, left, right, _on(on, what, declared_at), times[0], kind, order, dict(where)),
        {"check_failed": check} if isinstance(check, str) and check else dict(check or {}),
        *(dict(columns), reasons, topic, dead_letters, times[1], declared_at),
    )
    _check_names(join)
    for option, value, known in (("kind", kind, get_args(Kind)), ("order", order, (*get_args(Order), None))):
        if value not in known:
            hint = known_names(str(value), [each for each in known if each])
            raise AppError(f"{what}: there is no {option} {value!r}", where=declared_at, hint=hint)
    if join.topic and join.topic == join.dead_letters:
        raise AppError(f"{what}: results and dead letters need two topics", where=declared_at)
    return join


def _on(on: On, what: str, where: str) -> tuple[tuple[str, str], ...]:
    """`"order_id"`; `("order_id", "order_ref")`, left and right; a list of such for several fields."""
    one = isinstance(on, str) or (isinstance(on, tuple) and len(on) == 2)
    parts: list[Any] = [on] if one else list(on)
    pairs = tuple((part, part) if isinstance(part, str) else tuple(part) for part in parts)
    if not pairs or not all(len(pair) == 2 and all(isinstance(n, str) for n in pair) for pair in pairs):
        hint = 'on="order_id", on=("order_id", "order_ref"), or on=["session_id", "product_id"]'
        raise AppError(f"{what}: on names the fields that must be equal", where=where, hint=hint)
    return tuple((pair[0], pair[1]) for pair in pairs)


def _check_names(join: Join) -> None:
    where, what = join.declared_at, f"join '{join.name}'"
    hint = "lower-case letters, digits and _, a letter first"
    if not NAME.fullmatch(join.name) or len(join.name) > LONGEST_NAME:
        raise AppError(
            f"'{join.name}' is no name for a join",
            where=where,
            hint=f"{hint}, at most {LONGEST_NAME}: it names tables",
        )
    for column in join.columns:
        if not NAME.fullmatch(column) or column in OWN_COLUMNS:
            about = f"; every join has {', '.join(OWN_COLUMNS)}"
            raise AppError(f"{what}: '{column}' is no name for a column", where=where, hint=hint + about)
    for reason in (*join.checks, *(reason for reason in join.unmatched.values() if reason is not None)):
        if not REASON.fullmatch(reason):
            raise AppError(f"{what}: '{reason}' is no name for a reason", where=where, hint=hint)
    reasons = [*join.checks, *(r for r in join.unmatched.values() if r is not None), NO_KEY]
    twice = next((reason for reason in reasons if reasons.count(reason) > 1), None)
    if twice:
        raise AppError(f"{what}: two things have the reason '{twice}'", where=where)
    for topic in join.topics:
        if not TOPIC.fullmatch(topic):
            raise AppError(
                f"{what}: '{topic}' is no name for a topic",
                where=where,
                hint="letters, digits, dots, _ and -, at most 200 of them",
            )
