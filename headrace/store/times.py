"""Microseconds since 1970, as the engine counts, and times as Postgres keeps them.

Events have dates of the years 1 to 9999, which Python can name as well as Postgres. What is counted from
them, like the start of a window or a watermark less what is retained, may lie outside: it is held at the
first or the last of these dates.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import overload

from psycopg import sql

from headrace.windows import MICROSECOND

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
LAST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND


@overload
def to_time(micros: int) -> datetime: ...
@overload
def to_time(micros: int | None) -> datetime | None: ...
def to_time(micros: int | None) -> datetime | None:
    return None if micros is None else EPOCH + timedelta(microseconds=max(FIRST, min(micros, LAST)))


def to_end(micros: int) -> datetime:
    """The last end that a moment has passed: an end that is held at the last date is never passed."""
    return to_time(min(micros, LAST - 1))


@overload
def to_micros(time: datetime) -> int: ...
@overload
def to_micros(time: datetime | None) -> int | None: ...
def to_micros(time: datetime | None) -> int | None:
    return None if time is None else (time - EPOCH) // MICROSECOND


def moved(time: datetime, by: timedelta) -> datetime:
    """So much later; earlier, if it is negative."""
    return to_time(to_micros(time) + by // MICROSECOND)


def time_of(micros: sql.Composable) -> sql.Composed:
    """In Postgres what `to_time` is here. So many microseconds in one go would be a float, and inexact."""
    held = sql.SQL("greatest({}, least({}, {}))").format(sql.Literal(FIRST), micros, sql.Literal(LAST))
    return sql.SQL(
        "('epoch'::timestamptz + {0} / 1000000 * interval '1 second'"
        " + {0} % 1000000 * interval '1 microsecond')"
    ).format(held)
