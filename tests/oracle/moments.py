"""RFC 3339 date-times and dates by the calendar, as integers: no platform's range, no platform's leniency."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

_DATE_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_WIDEST_ZONE = 18 * 60


def micros_of(text: str) -> int | None:
    """Microseconds since 1970 in UTC (finer digits are cut off), or None when it is not a date-time."""
    found = _DATE_TIME.fullmatch(text)
    if not found:
        return None
    year, month, day, hour, minute, second = (int(g) for g in found.groups()[:6])
    fraction, sign, zone_hour, zone_minute = found.groups()[6:]
    on = _day(year, month, day)
    if on is None or hour > 23 or minute > 59 or second > 59:
        return None
    zone = 0
    if sign:
        zone = int(zone_hour) * 60 + int(zone_minute)
        if int(zone_minute) > 59 or zone > _WIDEST_ZONE:
            return None
        zone = -zone if sign == "-" else zone
    seconds = ((on * 24 + hour) * 60 + minute - zone) * 60 + second
    if not 0 < seconds // 86_400 + _EPOCH_DAY <= date.max.toordinal():
        return None  # its zone pushes it out of the calendar
    return seconds * 1_000_000 + int((fraction or "0").ljust(9, "0")[:6])


def is_date(text: str) -> bool:
    found = _DATE.fullmatch(text)
    return found is not None and _day(*(int(g) for g in found.groups())) is not None


def micros(moment: datetime) -> int:
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _day(year: int, month: int, day: int) -> int | None:
    try:
        return date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:
        return None
