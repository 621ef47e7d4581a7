"""The Spark engine of an app as one more service under a keeper."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.local.service import Service

READY = "engine.ready"


class EngineProcess(Service):
    """`headrace run` in the working folder; healthy once its queries have started."""

    name = "engine"
    start_seconds = 120.0
    stop_seconds = 45.0  # running batches finish first
    nice = 5  # Spark takes every core it finds; broker, store and API answer at once all the same

    def __init__(self, state: Path, app: Path) -> None:
        super().__init__(state)
        self._state, self._app = state, app.resolve()

    @property
    def runs_in(self) -> Path:
        return self._state.parent

    def prepare(self) -> list[str]:
        (self._state / READY).unlink(missing_ok=True)
        return [sys.executable, "-m", "headrace.cli", "run", str(self._app)]

    def is_healthy(self) -> bool:
        return (self._state / READY).exists()
