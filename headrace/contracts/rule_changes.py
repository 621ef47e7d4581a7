"""Differences between the rules of two fields: tightened, loosened, or impossible to tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from headrace.contracts.changes import Change
from headrace.contracts.model import Field, Rules
from headrace.contracts.values import Ordered, ordered

_TIGHTER = "old events may break it, and writers that go by the old rule are rejected"
_LOOSER = "old readers may meet values they do not know: upgrade readers first"


@dataclass(frozen=True)
class _Bound:
    value: Ordered
    open: bool  # the value itself is outside

    def allows_less_than(self, other: _Bound, lower: bool) -> bool:
        if self.value == other.value:
            return self.open and not other.open
        higher: bool = self.value > other.value  # type: ignore[operator]
        return higher if lower else not higher


def rule_changes(old: Field, new: Field, path: str) -> Iterator[Change]:
    yield from _enum_changes(old.rules, new.rules, path)
    yield from _pattern_changes(old.rules, new.rules, path)
    for lower, word in ((True, "minimum"), (False, "maximum")):
        yield from _bound_changes(_bound(old, lower), _bound(new, lower), lower, path, word)
    yield from _length_changes(old.rules, new.rules, path)


def span(field: Field) -> tuple[Decimal | None, Decimal | None]:
    """The smallest and largest value that a numeric field allows, where it has limits."""
    low, high = _bound(field, lower=True), _bound(field, lower=False)
    return (
        low.value if low and isinstance(low.value, Decimal) else None,
        high.value if high and isinstance(high.value, Decimal) else None,
    )


def _enum_changes(old: Rules, new: Rules, path: str) -> Iterator[Change]:
    if old.enum is None or new.enum is None:
        if new.enum is not None:
            yield _tightened(path, f"enum added: {', '.join(new.enum)}")
        if old.enum is not None:
            yield _loosened(path, "enum removed")
        return
    gone = [value for value in old.enum if value not in new.enum]
    added = [value for value in new.enum if value not in old.enum]
    if gone:
        yield _tightened(path, f"enum narrowed: {', '.join(gone)} removed")
    if added:
        yield _loosened(path, f"enum widened: {', '.join(added)} added")


def _pattern_changes(old: Rules, new: Rules, path: str) -> Iterator[Change]:
    if old.pattern == new.pattern:
        return
    if new.pattern is None:
        yield _loosened(path, "pattern removed")
    elif old.pattern is None:
        yield _tightened(path, f"pattern added: {new.pattern}")
    else:
        why = "whether one pattern includes the other cannot be told, so neither side is safe"
        what = f"pattern {old.pattern} → {new.pattern}"
        yield Change(path, what, why, "major", ("backward", "forward"))


def _bound(field: Field, lower: bool) -> _Bound | None:
    """The tighter of the inclusive and the exclusive limit."""
    rules, kind = field.rules, field.type.kind
    closed = ordered(rules.minimum if lower else rules.maximum, kind)
    opened = ordered(rules.exclusive_minimum if lower else rules.exclusive_maximum, kind)
    if kind == "integer" and isinstance(opened, Decimal):
        # "above 0" and "at least 1" are the same rule for integers.
        opened, is_open = opened + (1 if lower else -1), False
    else:
        is_open = True
    bounds = [_Bound(v, o) for v, o in ((closed, False), (opened, is_open)) if v is not None]
    if len(bounds) == 2:
        return bounds[1] if bounds[1].allows_less_than(bounds[0], lower) else bounds[0]
    return bounds[0] if bounds else None


def _bound_changes(
    old: _Bound | None, new: _Bound | None, lower: bool, path: str, word: str
) -> Iterator[Change]:
    if old == new:
        return
    what = f"{word} {_bound_name(old)} → {_bound_name(new)}"
    if new is not None and (old is None or new.allows_less_than(old, lower)):
        yield _tightened(path, what)
    else:
        yield _loosened(path, what)


def _length_changes(old: Rules, new: Rules, path: str) -> Iterator[Change]:
    shortest = (old.min_length or 0, new.min_length or 0)
    if shortest[0] != shortest[1]:
        change = _tightened if shortest[1] > shortest[0] else _loosened
        yield change(path, f"shortest length {shortest[0]} → {shortest[1]}")
    if old.max_length != new.max_length:
        before, after = (float("inf") if n is None else n for n in (old.max_length, new.max_length))
        change = _tightened if after < before else _loosened
        yield change(path, f"longest length {_or_none(old.max_length)} → {_or_none(new.max_length)}")


def _tightened(path: str, what: str) -> Change:
    return Change(path, what, _TIGHTER, "major", ("backward",))


def _loosened(path: str, what: str) -> Change:
    return Change(path, what, _LOOSER, "minor", ("forward",))


def _bound_name(bound: _Bound | None) -> str:
    if bound is None:
        return "none"
    return f"{bound.value} (excluded)" if bound.open else str(bound.value)


def _or_none(length: int | None) -> str:
    return "none" if length is None else str(length)
