"""Routes about sessions: what there is, rows, events that came too late for them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from headrace.errors import known_names
from headrace.serve import models, session_models
from headrace.serve.access import Asking, Caller
from headrace.serve.answers import answer
from headrace.serve.parameters import only_declared
from headrace.serve.problems import Problem
from headrace.serve.routes_metrics import Paged, Served, State, wanted_states
from headrace.serve.serving import Serving
from headrace.sessions import Sessions

router = APIRouter(prefix="/api/v1/sessions", tags=["sessions"], dependencies=[Depends(only_declared)])
Name = Annotated[str, Path(description="A declaration of sessions.", examples=["visits"])]
Key = Annotated[
    str | None, Query(max_length=1000, description="Only sessions of this key.", examples=["c-104233"])
]


@router.get(
    "",
    summary="The sessions of the app",
    response_model=session_models.AllSessions,
    responses=models.problems(),
)
async def sessions(request: Request, caller: Asking, serving: Served) -> Response:
    """Every declaration of sessions that the caller may see."""
    items = [await serving.sessions.declared(s) for s in _visible(serving, caller)]
    return answer(request, {"items": items, "next": None})


@router.get(
    "/{name}",
    summary="Sessions, the latest first",
    response_model=session_models.SessionRows,
    responses=models.problems(403, 404),
)
async def rows(
    request: Request,
    name: Name,
    caller: Asking,
    serving: Served,
    page: Paged,
    key: Key = None,
    state: State = None,
) -> Response:
    """By the time of their last event. Those that are `open` may still be running."""
    declared = visible_sessions(serving, caller, name)
    return answer(request, await serving.sessions.page(declared, key, wanted_states(state), page))


@router.get(
    "/{name}/summary",
    summary="The sessions of the last hour in a few numbers",
    response_model=session_models.SessionSummary,
    responses=models.problems(403, 404),
)
async def summary(request: Request, name: Name, caller: Asking, serving: Served) -> Response:
    """How many run, how long they are and what they led to; in all, and by a text with few values."""
    declared = visible_sessions(serving, caller, name)
    measured = serving.sessions.measured(declared)
    return answer(request, await serving.session_summaries.of(declared, measured))


@router.get(
    "/{name}/late-events",
    summary="Events that came too late for any session",
    response_model=models.LateEvents,
    responses=models.problems(403, 404),
)
async def late_events(request: Request, name: Name, caller: Asking, serving: Served, page: Paged) -> Response:
    """Newest first. The window is the session that the event would have opened."""
    declared = visible_sessions(serving, caller, name)
    return answer(request, await serving.late_events.page(caller, [declared.name], page))


def visible_sessions(serving: Serving, caller: Caller, name: str) -> Sessions:
    """Raises a problem for sessions that do not exist, or that the caller may not see."""
    declared = serving.loaded.app.all_sessions.get(name)
    if declared is None:
        seen = [sessions.name for sessions in _visible(serving, caller)]
        raise Problem(404, f"no sessions '{name[:80]}'", hint=known_names(name[:80], seen) if seen else "")
    if not serving.access.sees_metric(caller, serving.sessions.measured(declared)):
        raise serving.access.refusal(declared.of)
    return declared


def _visible(serving: Serving, caller: Caller) -> list[Sessions]:
    return [
        sessions
        for sessions in serving.loaded.app.all_sessions.values()
        if serving.access.sees_metric(caller, serving.sessions.measured(sessions))
    ]
