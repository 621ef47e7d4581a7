"""The jar cache: whatever breaks it, the next start has a whole set or a clear error."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from headrace.errors import ServiceError
from headrace.local import jars, java

NAMES = ("kafka-clients-1.jar", "kafka_2.13-1.jar", "spark-sql-kafka-0-10_2.13-1.jar")


class Remote:
    """Stands in for the run of Ivy: counts the downloads, and may break in the middle."""

    def __init__(self) -> None:
        self.runs = 0
        self.breaks = False
        self.second_run = threading.Event()

    def resolve(self, target: Path, _cache: Path, progress: jars.Progress) -> None:
        self.runs += 1
        if self.runs > 1:
            self.second_run.set()
        target.mkdir()
        for count, name in enumerate(NAMES, 1):
            (target / name).write_text(f"bytes of {name}")
            progress(name, count)
            if self.breaks:
                raise ServiceError("the line went dead")


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Remote:
    remote = Remote()
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "_resolve", remote.resolve)
    return remote


def test_jars_are_fetched_once(remote: Remote) -> None:
    assert [jar.name for jar in jars.ready_jars()] == sorted(NAMES)
    jars.ready_jars()
    assert remote.runs == 1


def test_spark_and_the_broker_get_what_they_need(remote: Remote) -> None:
    assert [jar.name for jar in jars.spark_jars()] == [NAMES[0], NAMES[2]]
    on_path = [Path(part).name for part in jars.broker_classpath().split(os.pathsep)]
    assert on_path == [NAMES[0], NAMES[1]]


@pytest.mark.parametrize("damage", ["missing", "short", "no manifest", "manifest is not JSON"])
def test_a_broken_folder_is_repaired_at_start(remote: Remote, damage: str) -> None:
    jar = jars.ready_jars()[0]
    manifest = jar.parent / jars.MANIFEST
    match damage:
        case "missing":
            jar.unlink()
        case "short":
            jar.write_text("byt")
        case "no manifest":
            manifest.unlink()
        case _:
            manifest.write_text("{")
    assert all(jar.exists() for jar in jars.ready_jars())
    assert jar.read_text() == f"bytes of {jar.name}"
    assert remote.runs == 2


def test_set_up_finds_a_wrong_byte(remote: Remote) -> None:
    jar = jars.ready_jars()[0]
    jar.write_text(jar.read_text().swapcase())
    jars.ensure_jars()
    assert jar.read_text() == f"bytes of {jar.name}"
    assert remote.runs == 2


def test_an_interrupted_download_leaves_nothing_and_is_redone(remote: Remote) -> None:
    remote.breaks = True
    with pytest.raises(ServiceError, match="the line went dead"):
        jars.ready_jars()
    assert [path.suffix for path in jars.cache_dir().iterdir()] == [".lock"]
    remote.breaks = False
    assert len(jars.ready_jars()) == len(NAMES)


def test_two_set_ups_at_once_download_once(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    fetch = remote.resolve

    def slow_fetch(target: Path, cache: Path, progress: jars.Progress) -> None:
        fetch(target, cache, progress)
        # Long enough for the others to come in, if nothing holds them back.
        remote.second_run.wait(0.3)

    monkeypatch.setattr(jars, "_resolve", slow_fetch)
    threads = [threading.Thread(target=lambda: found.append(len(jars.ready_jars()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (found, remote.runs) == ([len(NAMES)] * 4, 1)


def test_other_requirements_are_another_set(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars.ready_jars()
    changed = tmp_path / "ivy.xml"
    changed.write_text("<ivy-module/>")
    monkeypatch.setattr(jars, "IVY_FILE", changed)
    jars.ready_jars()
    assert remote.runs == 2


def test_no_java_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "find_spec", lambda _name: None)
    with pytest.raises(ServiceError, match=f"JAVA_HOME={tmp_path} has no Java") as caught:
        java.find_java()
    assert "OpenJDK 17 or 21" in caught.value.hint


def test_a_java_of_the_wrong_version_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("1.8.0_402", "21.0.2"):
        program = tmp_path / version / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "1.8.0_402"))
    monkeypatch.setenv("PATH", f"{tmp_path}/21.0.2/bin{os.pathsep}{os.environ['PATH']}")
    found = java.find_java()
    assert (found.version, found.home) == (21, tmp_path / "21.0.2")
