"""One `headrace up` for each folder: a lock that the system lets go when its holder dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from headrace.errors import ServiceError


def take_lock(file: Path) -> IO[str]:
    """Hold the lock until the returned stream is closed; if another process has it, say which."""
    stream = file.open("a+")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        stream.seek(0)
        holder = stream.read().strip() or "unknown"
        stream.close()
        raise ServiceError(
            f"headrace already runs in this folder (process {holder})",
            where=str(file.parent.parent),
            hint="use it as it is, or stop it with: headrace down",
        ) from error
    stream.seek(0)
    stream.truncate()
    stream.write(str(os.getpid()))
    stream.flush()
    return stream


def lock_holder(file: Path) -> int | None:
    """The process that holds the lock, or None if nobody does."""
    try:
        with file.open() as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(stream.read().strip() or 0) or None
    except FileNotFoundError:
        pass
    return None
