"""Crash points: named steps at which a test can end a process, as kill -9 would.

`HEADRACE_CRASH` names a file, in which a test writes `step pid` whenever it likes: the process `pid` (`self`:
the one that reaches the step) is killed the first time the step is reached. The file is renamed to
`<file>.<step>` first, so that the next one to come by passes the step.
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
# Between the commit of an alert or a result in an outbox and the note that it is published.
OUTBOX_STEPS = ("before_outbox_publish", "before_outbox_commit", "after_outbox_commit")


def arm(file: Path, step: str, pid: int | str) -> Path:
    """Ask for a crash; returns the file that will be there once it has happened."""
    draft = file.with_suffix(".draft")
    draft.write_text(f"{step} {pid}")
    draft.rename(file)
    return _done(file, step)


def crash_point(step: str) -> None:
    """Does nothing unless the environment asks for a crash at this step."""
    named = os.environ.get(VARIABLE)
    if named is None:
        return
    file = Path(named)
    try:
        wanted, pid = file.read_text().split()
        if wanted != step:
            return
        file.rename(_done(file, step))
    except FileNotFoundError:
        return
    os.kill(os.getpid() if pid == "self" else int(pid), signal.SIGKILL)


def _done(file: Path, step: str) -> Path:
    return file.with_name(f"{file.name}.{step}")
