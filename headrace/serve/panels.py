"""What the dashboard shows, as the app declares it."""

from __future__ import annotations

from typing import Any

from headrace.ops.load import LoadedApp
from headrace.panels import ShownPanel


def panels_of(loaded: LoadedApp) -> dict[str, Any]:
    return {"app": loaded.name, "items": [_panel(shown) for shown in loaded.panels()]}


def _panel(shown: ShownPanel) -> dict[str, Any]:
    panel, metric = shown.panel, shown.metric
    return {
        "title": panel.title,
        "metric": metric.name,
        "source": metric.of,
        "shape": shown.shape,
        "values": list(shown.values),
        "grouping": list(shown.grouping),
        "groups": None if shown.groups is None else list(shown.groups),
        "unit": panel.unit,
        "note": panel.note,
        "shared_scale": panel.shared_scale,
        "window": {
            "kind": metric.window.kind,
            "size_seconds": metric.window.size.total_seconds(),
            "hop_seconds": metric.window.hop.total_seconds(),
        },
        "preliminary_after_seconds": metric.preliminary_after.total_seconds(),
        "final_after_seconds": metric.final_after.total_seconds(),
    }
