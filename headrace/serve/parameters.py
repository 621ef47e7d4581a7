"""What a request may ask: times, pages and names, each checked before it comes near the database."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Annotated, Any

import orjson
from fastapi import Query, Request
from fastapi.dependencies.models import Dependant

from headrace.errors import known_names
from headrace.serve.problems import Problem, wrong

MOST, USUAL = 1000, 100
# A year from the ends of what a time can be, so that windows fit before and after.
FIRST, LAST = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 1, 1, tzinfo=UTC)
Row = dict[str, Any]
_LOST_PLUS = re.compile(r" (\d\d:?\d\d)$")


def parse_time(parameter: str, text: str | None) -> datetime | None:
    """ISO 8601; UTC without a zone."""
    if text is None:
        return None
    # An unescaped + of a zone arrives as a space.
    given = _LOST_PLUS.sub(r"+\1", text)
    try:
        time = datetime.fromisoformat(given)
        time = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
        return min(max(time, FIRST), LAST)
    except (ValueError, OverflowError):
        raise wrong(parameter, f"'{parameter}' is not a time", "write it like 2026-03-01T09:00:00Z") from None


def known_parameters(request: Request, more: Collection[str] = ()) -> None:
    """An unknown parameter would silently be ignored, and the answer be about something else."""
    known = {*_declared(request.scope["route"].dependant), *more}
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in known:
            raise wrong(name, f"no parameter '{name[:80]}' here", known_names(name[:80], known))
        if given.count(name) > 1:
            raise wrong(name, f"'{name}' is given more than once")
        if "\0" in request.query_params[name]:
            raise wrong(name, f"'{name}' holds a NUL character")


async def only_declared(request: Request) -> None:
    known_parameters(request)


def _declared(dependant: Dependant) -> set[str]:
    inner = (name for child in dependant.dependencies for name in _declared(child))
    return {*(field.alias for field in dependant.query_params), *inner}


@dataclass(frozen=True)
class Page:
    """A part of a list. A cursor belongs to the query it came from, whatever the limit is."""

    limit: int
    cursor: str | None
    query: str

    def after(self, kinds: Sequence[type]) -> list[Any] | None:
        """The values that the cursor carries, one of each kind."""
        if self.cursor is None:
            return None
        values = decode_cursor(self.cursor)
        if not isinstance(values, list) or len(values) != len(kinds) + 1 or values[0] != self.query:
            raise wrong("cursor", "this cursor belongs to another query", "begin again without it")
        return [_of_kind(value, kind) for value, kind in zip(values[1:], kinds, strict=True)]

    def cut(self, rows: list[Row], keys: Sequence[str]) -> tuple[list[Row], str | None]:
        """The rows of this page, and the cursor of the next one if one more row was found."""
        if len(rows) <= self.limit:
            return rows, None
        return rows[: self.limit], self.next(*(rows[self.limit - 1][key] for key in keys))

    def next(self, *values: Any) -> str:
        plain = [value.isoformat() if isinstance(value, datetime) else value for value in values]
        return encode_cursor([self.query, *plain])


async def page_of(
    request: Request,
    limit: Annotated[
        int, Query(ge=1, le=MOST, description="How many items at most.", examples=[100])
    ] = USUAL,
    cursor: Annotated[
        str | None, Query(max_length=4000, description="`next` of the page before.", examples=[None])
    ] = None,
) -> Page:
    asked = sorted(pair for pair in request.query_params.multi_items() if pair[0] not in ("limit", "cursor"))
    about = orjson.dumps([request.url.path, asked])
    return Page(limit, cursor, blake2b(about, digest_size=6).hexdigest())


def encode_cursor(values: Any) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(values)).rstrip(b"=").decode()


def decode_cursor(text: str) -> Any:
    try:
        return orjson.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error):
        raise wrong("cursor", "this is no cursor", "pass `next` on as it is") from None


def _of_kind(value: Any, kind: type) -> Any:
    unreadable: Problem = wrong("cursor", "this is no cursor", "pass `next` on as it is")
    if kind is datetime:
        if not isinstance(value, str):
            raise unreadable
        return parse_time("cursor", value)
    too_large = isinstance(value, int) and not -(2**63) <= value < 2**63
    if type(value) is not kind or too_large or (isinstance(value, str) and "\0" in value):
        raise unreadable
    return value
