"""Lengths of time as people write them: "10 minutes", "1 hour", "2 days", "90 s"."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

from headrace.errors import UsageError

_NAMES = {
    "millisecond": ("ms", "millisecond", "milliseconds"),
    "second": ("s", "sec", "secs", "second", "seconds"),
    "minute": ("min", "mins", "minute", "minutes"),
    "hour": ("h", "hr", "hrs", "hour", "hours"),
    "day": ("d", "day", "days"),
    "week": ("w", "week", "weeks"),
}
_MILLIS = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_UNIT_OF = {name: unit for unit, names in _NAMES.items() for name in names}
_WRITTEN = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z]+)\s*", re.ASCII)
_LONGEST = timedelta(days=36_500)
_EXAMPLES = 'write a number and a unit, like "10 minutes", "1 hour", "2 days" or "90 s"'


def parse_duration(text: str) -> timedelta:
    """A duration of whole milliseconds, zero allowed. Raises UsageError for anything else."""
    if not isinstance(text, str):
        raise UsageError(f"{text!r} is not a duration", hint=_EXAMPLES)
    written = _WRITTEN.fullmatch(text)
    if written is None:
        raise UsageError(f"'{_short(text)}' is not a duration", hint=_EXAMPLES)
    number, unit_name = written[1], written[2]
    unit = _UNIT_OF.get(unit_name.lower())
    if unit is None:
        raise UsageError(f"'{text.strip()}': '{unit_name}' is not a unit of time", hint=_unit_hint(unit_name))
    millis = Decimal(number) * _MILLIS[unit]
    if millis != millis.to_integral_value():
        raise UsageError(f"'{text.strip()}' is finer than a millisecond", hint="use whole milliseconds")
    if millis > _LONGEST / timedelta(milliseconds=1):
        raise UsageError(f"'{text.strip()}' is longer than 100 years")
    return timedelta(milliseconds=int(millis))


def format_duration(duration: timedelta) -> str:
    """The shortest text that `parse_duration` reads back as the same duration."""
    millis = duration // timedelta(milliseconds=1)
    for unit in ("day", "hour", "minute", "second", "millisecond"):
        count, rest = divmod(millis, _MILLIS[unit])
        if rest == 0 and count:
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    return "0 seconds"


def _unit_hint(name: str) -> str:
    # "m" is a minute to some and a month to others; guessing wrong loses data.
    if name.lower() == "m":
        return "write 'min' for minutes"
    if name.lower().startswith(("mon", "y")):
        return "months and years have no fixed length: count in days"
    return _EXAMPLES


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
