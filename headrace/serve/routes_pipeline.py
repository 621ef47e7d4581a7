"""Routes about the pipeline: how it is right now, and whether all is well."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from headrace.errors import ServiceError
from headrace.serve import models
from headrace.serve.access import Asking
from headrace.serve.answers import answer
from headrace.serve.parameters import only_declared
from headrace.serve.problems import Problem
from headrace.serve.routes_metrics import Served
from headrace.serve.serving import Serving

router = APIRouter(prefix="/api/v1", tags=["pipeline"])


@router.get(
    "/pipeline",
    dependencies=[Depends(only_declared)],
    summary="The pipeline right now",
    response_model=models.Pipeline,
    responses=models.problems(),
)
async def pipeline(request: Request, _caller: Asking, serving: Served) -> Response:
    """Fates, rates, lag, clocks and watermarks of every source."""
    return answer(request, await serving.pipeline.now())


@router.get(
    "/health",
    dependencies=[Depends(only_declared)],
    summary="Is all well?",
    response_model=models.Health,
    responses={503: {"model": models.Health, "description": "Down."}, 422: models.problems()[422]},
)
async def health(request: Request, serving: Served) -> Response:
    """Asks for no token, so that probes can use it. 503 if the status is `down`."""
    checks = [await _store(serving), _announcements(serving), await _pipeline(serving), _tokens(serving)]
    states = {check["status"] for check in checks}
    status = next((s for s in ("down", "degraded") if s in states), "ok")
    body = {"status": status, "checks": checks, "at": datetime.now(UTC)}
    return answer(request, body, 503 if status == "down" else 200)


def _check(name: str, status: str, detail: str) -> dict[str, Any]:
    return {"name": name, "status": status, "detail": detail, "runbook": None}


async def _store(serving: Serving) -> dict[str, Any]:
    try:
        await serving.database.rows("SELECT 1")
    except Problem as problem:
        return _check("store", "down", problem.detail)
    return _check("store", "ok", "Postgres answers")


def _announcements(serving: Serving) -> dict[str, Any]:
    if serving.hub.listening:
        return _check("live", "ok", f"{serving.hub.clients} clients follow")
    return _check("live", "degraded", "commits are not announced; /live is late")


async def _pipeline(serving: Serving) -> dict[str, Any]:
    try:
        now = await serving.pipeline.now()
    except ServiceError as error:
        return _check("pipeline", "degraded", error.what)
    lost = sum(source["unaccounted"] for source in now["sources"])
    if lost:
        return _check("pipeline", "degraded", f"{lost} records are unaccounted for")
    return _check("pipeline", "ok", "every record has a fate")


def _tokens(serving: Serving) -> dict[str, Any]:
    asked = serving.access.asks_for_tokens
    return _check("tokens", "ok", "a token is asked for" if asked else "no token is asked for")
