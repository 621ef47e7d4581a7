"""Spark's classes, loaded and checked once, so that every JVM of a session starts in half the time.

The JVM writes the archive itself when it ends (class data sharing). It fits one Java and the jars of one
virtual environment, so it lies in that environment; a JVM that it does not fit starts without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

SECONDS = 300.0
INPUT = "visits=sample/events.jsonl"
METRIC = """
from headrace import count, tumbling
app.metric("visits_1m", of="visits", window=tumbling("1 minute"), measures={"n": count()})
"""
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


def archive_path() -> Path:
    return Path(sys.prefix) / "headrace-classes.jsa"


def archive_options() -> tuple[str, ...]:
    """What tells a JVM to start from the archive, if there is one."""
    path = archive_path()
    return (f"-XX:SharedArchiveFile={path}", *QUIET) if path.is_file() else ()


def make_archive() -> bool:
    """Run a small app over its sample events and keep the classes that it took; False if that fails.

    Nothing depends on it but the time of a start.
    """
    path = archive_path()
    part = path.with_name(f"{path.name}.part-{os.getpid()}")
    with suppress(OSError):
        path.unlink(missing_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-classes-") as folder:
            _run(folder, {}, "init", "sample")
            with (Path(folder) / "sample" / "app.py").open("a") as app:
                app.write(METRIC)
            options = {"SPARK_SUBMIT_OPTS": " ".join((f"-XX:ArchiveClassesAtExit={part}", *QUIET))}
            _run(folder, options, "simulate", "sample", "--input", INPUT, "--output", "output")
        part.rename(path)
    except (OSError, subprocess.SubprocessError):
        part.unlink(missing_ok=True)
        return False
    return True


def _run(folder: str, environment: dict[str, str], *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "headrace.cli", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,  # whose end comes with that of the JVM, which outlives the command
        stderr=subprocess.DEVNULL,
        timeout=SECONDS,
        check=True,
    )
