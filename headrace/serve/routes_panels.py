"""What the dashboard shows, as the app declares it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from headrace.panels import ShownPanel
from headrace.serve import models, pipeline_models
from headrace.serve.access import Asking
from headrace.serve.answers import answer
from headrace.serve.parameters import only_declared
from headrace.serve.routes_metrics import Served

router = APIRouter(prefix="/api/v1", tags=["dashboard"])


@router.get(
    "/panels",
    dependencies=[Depends(only_declared)],
    summary="What the dashboard shows",
    response_model=pipeline_models.Panels,
    responses=models.problems(),
)
async def panels(request: Request, caller: Asking, serving: Served) -> Response:
    """The panels of the metrics that the caller may see, in the order of their declaration."""
    visible = {metric.name for metric in serving.access.visible_metrics(caller)}
    items = [panel_item(shown) for shown in serving.loaded.panels() if shown.metric.name in visible]
    return answer(request, {"app": serving.loaded.name, "items": items})


def panel_item(shown: ShownPanel) -> dict[str, Any]:
    panel, metric = shown.panel, shown.metric
    return {
        "title": panel.title,
        "metric": metric.name,
        "source": metric.of,
        "shape": shown.shape,
        "values": shown.values,
        "grouping": shown.grouping,
        "groups": shown.groups,
        "unit": panel.unit,
        "note": panel.note,
        "shared_scale": panel.shared_scale,
        "window": {
            "kind": metric.window.kind,
            "size_seconds": metric.window.size.total_seconds(),
            "hop_seconds": metric.window.hop.total_seconds(),
            "trigger_seconds": metric.window.trigger.total_seconds() if metric.window.trigger else None,
        },
        "preliminary_after_seconds": metric.preliminary_after.total_seconds(),
        "final_after_seconds": metric.final_after.total_seconds(),
    }
