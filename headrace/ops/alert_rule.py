"""One alert rule for Prometheus, and the series that prove it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Series = Mapping[str, str]  # a series, and its values in promtool's notation, one for each minute
Severity = Literal["critical", "warning"]
SOURCE = "{{ $labels.source }}"  # as Prometheus fills it in


@dataclass(frozen=True)
class AlertRule:
    """Under `bad` it fires, with `fires_with` as labels; under `good` it keeps still."""

    name: str
    expr: str
    wait: str
    severity: Severity
    summary: str
    runbook: str
    fires_with: Mapping[str, str]
    bad: Series
    good: Series
    labels: Mapping[str, str] = field(default_factory=dict)
    minutes: int = 30  # after which the proofs look


def selector(app: str, source: str = "", **more: str) -> str:
    given = {"app": app, **({"source": source} if source else {}), **more}
    return "{" + ",".join(f'{label}="{value}"' for label, value in given.items()) + "}"
