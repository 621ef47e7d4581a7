"""Crash points: named steps at which a test can end a process, as kill -9 would.

`HEADRACE_CRASH=step:pid:file` kills the process `pid` (`self`: the one that reaches the step) the first time
the step is reached; `file` is made first, so that the restarted process passes the step.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

VARIABLE = "HEADRACE_CRASH"

STEPS = (
    "before_publish",
    "before_task_commit",
    "after_task_commit",
    "after_publish",
    "before_store_commit",
    "after_store_commit",
)
# Between the commit of an alert's event in the outbox and the note that it is published.
ALERT_STEPS = ("before_alert_publish", "before_alert_commit", "after_alert_commit")


def crash_point(step: str) -> None:
    """Does nothing unless the environment asks for a crash at this step."""
    wanted = os.environ.get(VARIABLE)
    if wanted is None or not wanted.startswith(f"{step}:"):
        return
    _, pid, file = wanted.split(":", 2)
    try:
        Path(file).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid() if pid == "self" else int(pid), signal.SIGKILL)
