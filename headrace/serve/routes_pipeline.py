"""Routes about the pipeline: how it is right now, and whether all is well."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from headrace.errors import ServiceError
from headrace.ops.health import health_of
from headrace.serve import models, pipeline_models
from headrace.serve.access import Asking
from headrace.serve.answers import answer
from headrace.serve.parameters import only_declared
from headrace.serve.routes_metrics import Served
from headrace.serve.serving import Serving

Probe = Annotated[
    bool, Query(description="`false` answers 200 whatever the status is, to show it.", examples=[True])
]

router = APIRouter(prefix="/api/v1", tags=["pipeline"])


@router.get(
    "/pipeline",
    dependencies=[Depends(only_declared)],
    summary="The pipeline right now",
    response_model=pipeline_models.Pipeline,
    responses=models.problems(),
)
async def pipeline(request: Request, _caller: Asking, serving: Served) -> Response:
    """Fates, rates, lag, clocks and watermarks of every source."""
    return answer(request, await serving.pipeline.now())


@router.get(
    "/health",
    dependencies=[Depends(only_declared)],
    summary="Is all well?",
    response_model=pipeline_models.Health,
    responses={503: {"model": pipeline_models.Health, "description": "Down."}, 422: models.problems()[422]},
)
async def health(request: Request, serving: Served, probe: Probe = True) -> Response:
    """Asks for no token, so that probes can use it. 503 if the status is `down`."""
    try:
        pipeline = health_of(await serving.pipeline.now())["checks"]
    except ServiceError as error:
        pipeline = [_check("store", "down", error.what)]
    checks = [*pipeline, _announcements(serving), _tokens(serving)]
    states = {check["status"] for check in checks}
    status = next((s for s in ("down", "degraded") if s in states), "ok")
    body = {"status": status, "checks": checks, "at": datetime.now(UTC)}
    return answer(request, body, 503 if probe and status == "down" else 200)


def _check(name: str, status: str, detail: str) -> dict[str, Any]:
    return {"name": name, "status": status, "detail": detail, "runbook": None}


def _announcements(serving: Serving) -> dict[str, Any]:
    if serving.hub.listening:
        return _check("live", "ok", f"{serving.hub.clients} clients follow")
    return _check("live", "degraded", "commits are not announced; /live is late")


def _tokens(serving: Serving) -> dict[str, Any]:
    asked = serving.access.asks_for_tokens
    return _check("tokens", "ok", "a token is asked for" if asked else "no token is asked for")
