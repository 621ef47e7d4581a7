"""A pattern: what the events of one key do, one after the other. Frozen values, no contract yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal

from headrace.alerts import Alert, Severity, make_alert, message_fields
from headrace.contracts.durations import format_duration, parse_duration
from headrace.errors import AppError, UsageError, known_names
from headrace.sequence_parser import MOST_REPEATS, parse_sequence
from headrace.sequences import Node, Repeat, Symbol, used

Kind = Literal["sequence", "velocity", "absence"]
MOST_SYMBOLS = 10
EACH, START, END = "EACH", "START", "END"  # the symbols of a velocity and of an absence
OWN_VALUES = ("events", "matches", "matched")
ABOUT = ("alert", "severity", "events", "window_start", "window_end")  # what a message may show besides


@dataclass(frozen=True)
class Pattern:
    """`define` has the condition of each symbol; `tree` is None for an absence, which waits for a START."""

    name: str
    of: str
    key: tuple[str, ...]
    kind: Kind
    define: Mapping[str, str]
    tree: Node | None
    within: timedelta
    quiet: timedelta
    alert: Alert
    final_after: timedelta | None = None  # of an absence; None: the lateness of the contract
    show: tuple[str, ...] = ()
    declared_at: str = ""

    @cached_property
    def bits(self) -> dict[str, int]:
        """The symbols that an event fulfils are a number: one bit for each."""
        return {symbol: 1 << n for n, symbol in enumerate(self.define)}

    @property
    def meaning(self) -> dict[str, Any]:
        """What makes it another pattern when it changes; what an alert says and tells may change."""
        return {
            "of": self.of,
            "key": list(self.key),
            "pattern": self.alert.when,
            "define": [[symbol, condition] for symbol, condition in self.define.items()],
            "within": format_duration(self.within),
            "final_after": None if self.final_after is None else format_duration(self.final_after),
        }


@dataclass(frozen=True)
class PatternWords:
    """A pattern as it was declared; which of the three kinds it is, its words tell."""

    sequence: str = ""
    define: Mapping[str, str] | None = None
    where: str = ""
    count: int | None = None
    starts: str = ""
    without: str = ""
    within: str = ""
    quiet: str | None = None
    final_after: str | None = None


@dataclass(frozen=True)
class Told:
    """How an alert is told."""

    severity: Severity = "warning"
    topic: str = ""
    message: str = ""
    runbook: str = ""
    webhook: str = ""


def make_pattern(
    name: str,
    of: str,
    key: str | Sequence[str],
    words: PatternWords,
    show: Sequence[str],
    told: Told,
    declared_at: str,
) -> Pattern:
    """Raises AppError for what is wrong without looking at the contract."""
    what = f"pattern '{name}'"
    keys = (key,) if isinstance(key, str) else tuple(key)
    if not keys or not all(isinstance(field, str) and field for field in keys):
        raise AppError(f"{what} has no key", where=declared_at, hint='key="customer_id"')
    if isinstance(show, str) or len(set(show)) < len(show):
        raise AppError(f"{what}: show is a list of fields", where=declared_at, hint='show=["amount"]')
    within, quiet, final_after = _times(words, what, declared_at)
    kind = _kind(words, what, declared_at)
    define, tree, text = _READ[kind](words, what, declared_at)
    alert = make_alert(
        *(name, name, f"{text} within {words.within}", keys, 1, "preliminary", told.severity),
        *(told.topic, told.message, told.runbook, told.webhook, declared_at),
    )
    pattern = Pattern(
        *(name, of, keys, kind, define, tree, within, quiet, alert, final_after, tuple(show), declared_at)
    )
    _check_names(pattern, what)
    return pattern


def _kind(words: PatternWords, what: str, where: str) -> Kind:
    given = {
        "sequence": words.sequence != "" or words.define is not None,
        "velocity": words.count is not None or words.where != "",
        "absence": words.starts != "" or words.without != "",
    }
    kinds: list[Kind] = [kind for kind in ("sequence", "velocity", "absence") if given[kind]]
    if len(kinds) != 1:
        problem = f"is {' and '.join(kinds)} at once" if kinds else "says nothing to look for"
        hint = "one of: sequence and define; count and where; starts and without"
        raise AppError(f"{what} {problem}", where=where, hint=hint)
    if words.final_after is not None and kinds[0] != "absence":
        raise AppError(
            f"{what}: final_after is for starts and without",
            where=where,
            hint="a match is told at once; only an absence has to wait for late events",
        )
    return kinds[0]


def _times(words: PatternWords, what: str, where: str) -> tuple[timedelta, timedelta, timedelta | None]:
    try:
        within = parse_duration(words.within)
        quiet = within if words.quiet is None else parse_duration(words.quiet)
        final_after = None if words.final_after is None else parse_duration(words.final_after)
    except UsageError as error:
        raise AppError(f"{what}: {error.what}", where=where, hint=error.hint) from error
    if not within:
        raise AppError(f"{what}: within must be longer than nothing", where=where)
    return within, quiet, final_after


def _sequence(words: PatternWords, what: str, where: str) -> tuple[Mapping[str, str], Node, str]:
    define = dict(words.define or {})
    if len(define) > MOST_SYMBOLS:
        raise AppError(f"{what} defines more than {MOST_SYMBOLS} symbols", where=where)
    for symbol, condition in define.items():
        _need(condition, f"{what}, symbol '{symbol}'", where)
    tree = parse_sequence(words.sequence, define, what=f"{what}, sequence", where=where)
    idle = next((symbol for symbol in define if symbol not in used(tree)), None)
    if idle is not None:
        raise AppError(
            f"{what}: '{idle}' is defined and not in the sequence",
            where=where,
            hint=f"remove it, or forbid it: A !{idle} B",
        )
    return define, tree, words.sequence.strip()


def _velocity(words: PatternWords, what: str, where: str) -> tuple[Mapping[str, str], Node, str]:
    count = words.count
    if type(count) is not int or not 1 <= count <= MOST_REPEATS:
        raise AppError(
            f"{what}: count is a whole number from 1 to {MOST_REPEATS}, not {count!r}", where=where
        )
    text = f"{count} times {words.where}" if words.where else f"{count} events"
    return {EACH: words.where or "true"}, Repeat(Symbol(EACH), count, count), text


def _absence(words: PatternWords, what: str, where: str) -> tuple[Mapping[str, str], None, str]:
    _need(words.starts, f"{what}, starts", where)
    _need(words.without, f"{what}, without", where)
    return {START: words.starts, END: words.without}, None, f"{words.starts} without {words.without}"


_READ = {"sequence": _sequence, "velocity": _velocity, "absence": _absence}


def _need(condition: str, what: str, where: str) -> None:
    if not isinstance(condition, str) or not condition.strip():
        raise AppError(f"{what} has no condition", where=where, hint="event_type = 'payment_failed'")


def _check_names(pattern: Pattern, what: str) -> None:
    where = pattern.declared_at
    taken = next((name for name in (*pattern.key, *pattern.show) if name in (*OWN_VALUES, *ABOUT)), None)
    if taken is not None:
        raise AppError(f"{what}: an alert has a '{taken}' of its own", where=where)
    shown = (*ABOUT, *pattern.key, *pattern.show)
    for name in message_fields(pattern.alert):
        if name not in shown:
            hint = f"{known_names(name, shown)} (fields of the last event: show=[...])"
            raise AppError(f"{what}, message: there is no '{name}'", where=where, hint=hint)
