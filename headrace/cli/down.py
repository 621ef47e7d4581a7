"""headrace down: stop the `headrace up` of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.errors import ServiceError


def down(
    seconds: Annotated[float, typer.Option(help="How long to wait for a clean stop.")] = 60.0,
) -> None:
    """Stop what `headrace up` started in this folder; the data stays."""
    import psutil

    from headrace.local.lock import lock_holder

    folder = Path.cwd()
    pid = lock_holder(folder / ".headrace" / "lock")
    if pid is None:
        print("nothing is running in this folder")
        return
    try:
        process = psutil.Process(pid)
        process.terminate()
        process.wait(seconds)
    except psutil.NoSuchProcess:
        pass
    except psutil.AccessDenied as error:
        raise ServiceError(
            f"process {pid} belongs to another user", hint="run headrace down as that user"
        ) from error
    except psutil.TimeoutExpired as error:
        raise ServiceError(
            f"process {pid} has not ended after {seconds:.0f} s",
            hint=f"wait and try again, or end it with: kill -9 {pid} (its services stop by themselves)",
        ) from error
    print(f"stopped (process {pid})")
