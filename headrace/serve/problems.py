"""Errors as application/problem+json (RFC 9457): what is wrong, with which parameter, and what to do."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.errors import HeadraceError, ServiceError

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
TITLES = {
    400: "The request cannot be read",
    401: "A token is needed",
    403: "The token's roles are not enough",
    404: "Not found",
    405: "Method not allowed",
    421: "This host name is not served",
    422: "A parameter is wrong",
    500: "Unexpected error",
    503: "Not available right now",
}


class Problem(Exception):
    """An answer that is an error; raised anywhere below a route."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        parameter: str = "",
        hint: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.parameter, self.hint = status, detail, parameter, hint
        self.headers = dict(headers or {})


def wrong(parameter: str, detail: str, hint: str = "") -> Problem:
    return Problem(422, detail, parameter=parameter, hint=hint)


def unavailable(detail: str, hint: str = "") -> Problem:
    return Problem(503, detail, hint=hint, headers={"Retry-After": "2"})


def problem_response(problem: Problem, **more: Any) -> Response:
    body = {
        "type": "about:blank",
        "title": TITLES.get(problem.status, "The request failed"),
        "status": problem.status,
        "detail": problem.detail,
    }
    body |= {name: text for name in ("parameter", "hint") if (text := getattr(problem, name))}
    return Response(
        orjson.dumps(body | more),
        status_code=problem.status,
        media_type=MEDIA_TYPE,
        headers={"Cache-Control": "no-store", **problem.headers},
    )


def handle_problems(app: FastAPI) -> None:
    """Every error leaves as a problem: ours, the framework's, and those that nobody expected."""
    app.add_exception_handler(Problem, _own)
    app.add_exception_handler(HTTPException, _framework)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HeadraceError, _known)


async def _own(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return problem_response(error)


async def _framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = str(error.detail)
    if error.status_code == 404:
        detail = f"nothing is served at {request.url.path}"
    elif error.status_code == 405:
        detail = f"{request.method} is not possible here"
    return problem_response(
        Problem(error.status_code, detail, headers=dict(error.headers or {}), hint=_hint(error.status_code))
    )


def _hint(status: int) -> str:
    return "/openapi.json lists what there is" if status in (404, 405) else ""


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # Never the given input: it may be long, or something that was pasted by mistake.
    found = [{"parameter": str(e["loc"][-1]), "detail": str(e["msg"])} for e in error.errors()]
    first = found[0]
    return problem_response(
        Problem(422, f"{first['parameter']}: {first['detail']}", parameter=first["parameter"]), errors=found
    )


async def _known(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HeadraceError)
    if isinstance(error, ServiceError):
        return problem_response(unavailable(error.what, error.hint))
    logger.error("%s: %s", type(error).__name__, error.what)
    return problem_response(Problem(500, error.what, hint=error.hint))


class CatchUnexpected:
    """The outermost layer: a defect is logged without its values, and is still a problem document."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            # The message of an error may carry data, so only its type and its places are kept.
            places = "".join(traceback.format_tb(error.__traceback__)[-6:])
            logger.error(
                "%s %s: %s\n%s", scope.get("method"), scope.get("path"), type(error).__name__, places
            )
            if scope["type"] == "http" and not started:
                detail = "this is a defect; the log of the server says where it happened"
                await problem_response(Problem(500, detail))(scope, receive, send)
