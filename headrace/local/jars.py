"""JVM jars: resolved once per user by the Ivy inside PySpark, kept in a cache, verified by a manifest."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from headrace.errors import ServiceError
from headrace.local.java import find_java

IVY_FILE = Path(__file__).with_name("ivy.xml")
MANIFEST = "manifest.json"
SPARK_JARS = ("spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10", "commons-pool2", "kafka-clients")
FILES_JAR = "hadoop-bare-naked-local-fs"
SPARK_ONLY = ("spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10", "commons-pool2", FILES_JAR)

Progress = Callable[[str, int], None]


def cache_dir() -> Path:
    """HEADRACE_CACHE, else the platform's cache folder for this user."""
    if chosen := os.environ.get("HEADRACE_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "headrace"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace"


def jars_dir() -> Path:
    key = hashlib.sha256(IVY_FILE.read_bytes()).hexdigest()[:16]
    return cache_dir() / f"jars-{key}"


def spark_jars() -> list[Path]:
    """What Spark needs beyond its own jars to speak Kafka."""
    return [jar for jar in ready_jars() if jar.name.startswith(SPARK_JARS)]


def files_jar() -> Path:
    """Hadoop's local files without a process for each; the JVM must know it before it knows any other jar."""
    return next(jar for jar in ready_jars() if jar.name.startswith(FILES_JAR))


def broker_classpath() -> str:
    return os.pathsep.join(str(jar) for jar in ready_jars() if not jar.name.startswith(SPARK_ONLY))


def ready_jars() -> list[Path]:
    """The jars, fetched now if they are missing or a file has the wrong size."""
    folder = jars_dir()
    return _listed(folder) if is_whole(folder) else ensure_jars()


def ensure_jars(progress: Progress | None = None) -> list[Path]:
    """Check every jar against its checksum and fetch the set again if one is wrong."""
    folder = jars_dir()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _exclusive(folder.parent / f"{folder.name}.lock"):
        if not is_whole(folder, deep=True):
            _fetch(folder, progress or (lambda _name, _count: None))
    return _listed(folder)


def is_whole(folder: Path, *, deep: bool = False) -> bool:
    """Whether the manifest is there and every jar has its size (deep: its SHA-256)."""
    try:
        listed = _read_manifest(folder)
        return bool(listed) and all(_matches(folder / name, *facts, deep) for name, facts in listed.items())
    except (OSError, ValueError, TypeError):
        return False


def _matches(jar: Path, size: int, sha256: str, deep: bool) -> bool:
    return jar.stat().st_size == size and (not deep or _sha256(jar) == sha256)


def _listed(folder: Path) -> list[Path]:
    return [folder / name for name in _read_manifest(folder)]


def _read_manifest(folder: Path) -> dict[str, tuple[int, str]]:
    listed: dict[str, tuple[int, str]] = json.loads((folder / MANIFEST).read_text())
    return listed


def _sha256(jar: Path) -> str:
    with jar.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _fetch(folder: Path, progress: Progress) -> None:
    # Work happens beside the target and is renamed last: whatever stops it, no half set is ever found.
    work = Path(tempfile.mkdtemp(prefix=f"{folder.name}.part-", dir=folder.parent))
    try:
        _resolve_patiently(work / "jars", work / "ivy", progress)
        jars = sorted((work / "jars").glob("*.jar"))
        manifest = {jar.name: (jar.stat().st_size, _sha256(jar)) for jar in jars}
        (work / "jars" / MANIFEST).write_text(json.dumps(manifest, indent=1))
        shutil.rmtree(folder, ignore_errors=True)
        (work / "jars").rename(folder)
    except OSError as broken:
        raise ServiceError(
            f"cannot write the JVM jars: {broken}",
            where=str(folder.parent),
            hint="free some space or set HEADRACE_CACHE to a folder that you can write to",
        ) from broken
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _resolve_patiently(target: Path, ivy_cache: Path, progress: Progress) -> None:
    """A second attempt goes on from what the first one left in Ivy's cache."""
    try:
        _resolve(target, ivy_cache, progress)
    except ServiceError:
        shutil.rmtree(target, ignore_errors=True)
        _resolve(target, ivy_cache, progress)


def _resolve(target: Path, ivy_cache: Path, progress: Progress) -> None:
    command = [
        str(find_java().program),
        "-Divy.checksums=sha1,md5",
        f"-Divy.default.ivy.user.dir={ivy_cache}",
        *("-jar", str(_ivy_jar())),
        *("-ivy", str(IVY_FILE)),
        *("-cache", str(ivy_cache)),
        *("-retrieve", f"{target}/[artifact]-[revision].[ext]"),
        *("-types", "jar", "bundle", "maven-plugin"),
    ]
    said: list[str] = []
    count = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy:
        try:
            for line in ivy.stdout or ():
                said.append(line.rstrip())
                if arrived := re.search(r"\[SUCCESSFUL \] .*!(\S+)", line):
                    count += 1
                    progress(arrived[1], count)
        except BaseException:
            ivy.kill()
            raise
    # Ivy may end with 0 although a module could not be found; its report says so.
    problems = [
        line.strip() for line in said if re.search(r"UNRESOLVED|FAILED|ERROR|WARN.*(bad|invalid)", line)
    ]
    if ivy.returncode or problems:
        detail = "\n    ".join((problems or said)[-8:])
        raise ServiceError(
            f"the JVM jars could not be downloaded\n    {detail}",
            hint="check the network and the proxy settings of Java, then run: make setup",
        )


def _ivy_jar() -> Path:
    spark = find_spec("pyspark")
    places = spark.submodule_search_locations if spark else None
    found = [jar for place in places or () for jar in Path(place).glob("jars/ivy-*.jar")]
    if not found:
        raise ServiceError("PySpark and the Ivy inside it are not installed", hint="run: make setup")
    return found[0]


@contextmanager
def _exclusive(lock: Path) -> Iterator[None]:
    with lock.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
