"""Records as JSON lines: one file for a stream, a folder for several, or standard output."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from headrace.errors import UsageError
from headrace.log.record import Record


def write_lines(records: Iterable[Record], output: str, streams: Sequence[str]) -> dict[str, Any]:
    """Write the bytes of each record as they are, without line breaks, and return what was written where."""
    folder = output.endswith("/") or Path(output).is_dir()
    if not folder and len(streams) > 1:
        raise UsageError(
            "one file holds one stream",
            hint=f"choose one of {', '.join(streams)}, or name a folder, with a / at its end",
        )
    began = time.monotonic()
    counts = dict.fromkeys(streams, 0)
    with ExitStack() as files:
        writes: dict[str, Callable[[bytes], object]] = {
            stream: files.enter_context(_opened(output, stream if folder else "")).write for stream in streams
        }
        for stream, _, value, _ in records:
            writes[stream]((value or b"").replace(b"\n", b"").replace(b"\r", b"") + b"\n")
            counts[stream] += 1
    return {"written": sum(counts.values()), "seconds": time.monotonic() - began, "streams": counts}


def _opened(output: str, stream: str) -> IO[bytes]:
    if output == "-":
        return open(sys.stdout.fileno(), "wb", closefd=False)
    path = Path(output)
    try:
        if stream:
            path.mkdir(parents=True, exist_ok=True)
        return (path / f"{stream}.jsonl" if stream else path).open("wb")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from error
