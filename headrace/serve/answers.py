"""Answers as JSON: times in UTC with a Z, decimals as text, and an ETag for each body."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

_OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS


def to_json(body: Any) -> bytes:
    return orjson.dumps(body, default=_plain, option=_OPTIONS)


def answer(request: Request, body: Any, status: int = 200) -> Response:
    """The body, or 304 if the client has it already."""
    content = to_json(body)
    tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if status == 200 and tag in known_tags(request):
        return Response(status_code=304, headers=headers)
    return Response(content, status_code=status, media_type="application/json", headers=headers)


def known_tags(request: Request) -> set[str]:
    given = request.headers.get("if-none-match", "")
    return {tag.strip().removeprefix("W/") for tag in given.split(",")}


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise TypeError(type(value).__name__)
