"""Routes about joins: what there is, what met, and what did not."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from headrace.errors import known_names
from headrace.joins import Join
from headrace.serve import flow_models, models
from headrace.serve.access import Asking, Caller
from headrace.serve.answers import answer
from headrace.serve.joins import Wanted
from headrace.serve.parameters import only_declared, parse_time
from headrace.serve.problems import Problem
from headrace.serve.routes_metrics import Paged, Served
from headrace.serve.serving import Serving

router = APIRouter(prefix="/api/v1/joins", tags=["joins"], dependencies=[Depends(only_declared)])
From = Annotated[
    str | None,
    Query(alias="from", description="Event time, inclusive.", examples=["2026-03-01T09:00:00Z"]),
]
To = Annotated[
    str | None, Query(alias="to", description="Event time, exclusive.", examples=["2026-03-01T10:00:00Z"])
]
Name = Annotated[str, Path(description="A join.", examples=["order_paid"])]
Key = Annotated[str | None, Query(max_length=500, description="Only of this key.", examples=["o-883201"])]


@router.get("", summary="The joins of the app", response_model=flow_models.Joins, responses=models.problems())
async def joins(request: Request, caller: Asking, serving: Served) -> Response:
    """Every join that the caller may see, with what became of the events of each side."""
    return answer(request, {"items": await serving.joins.catalogue(caller), "next": None})


@router.get(
    "/{name}",
    summary="What met, newest first",
    response_model=flow_models.Matches,
    responses=models.problems(403, 404),
)
async def matches(
    request: Request,
    name: Name,
    caller: Asking,
    serving: Served,
    page: Paged,
    start: From = None,
    end: To = None,
    key: Key = None,
) -> Response:
    """By event time, which is that of the later of the two. Values of classified fields are left out."""
    join = _visible(serving, caller, name)
    wanted = Wanted(parse_time("from", start), parse_time("to", end), key)
    return answer(request, await serving.joins.matches(caller, join, wanted, page))


@router.get(
    "/{name}/unmatched",
    summary="What met nobody, or failed a check",
    response_model=flow_models.Unmatched,
    responses=models.problems(403, 404),
)
async def unmatched(
    request: Request,
    name: Name,
    caller: Asking,
    serving: Served,
    page: Paged,
    start: From = None,
    end: To = None,
    key: Key = None,
    reason: Annotated[
        str | None, Query(max_length=80, description="Only with this reason.", examples=["no_payment"])
    ] = None,
    side: Annotated[
        Literal["left", "right", "pair"] | None,
        Query(description="`pair` for two that met and failed a check.", examples=["left"]),
    ] = None,
) -> Response:
    """The dead letters of the join, newest first, with their reasons."""
    join = _visible(serving, caller, name)
    wanted = Wanted(parse_time("from", start), parse_time("to", end), key, reason, side)
    return answer(request, await serving.joins.unmatched(caller, join, wanted, page))


def _visible(serving: Serving, caller: Caller, name: str) -> Join:
    declared = serving.loaded.app.joins
    if name not in declared:
        seen = [join.name for join in serving.joins.visible(caller)]
        raise Problem(404, f"no join '{name[:80]}'", hint=known_names(name[:80], seen) if seen else "")
    refused = serving.joins.refused(caller, declared[name])
    if refused is not None:
        raise serving.access.refusal(refused)
    return declared[name]
