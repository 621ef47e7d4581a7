"""The archive of classes makes a start shorter, and is never in its way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.local import class_archive
from headrace.local.class_archive import archive_options, archive_path, make_archive
from headrace.local.java import find_java


def test_without_an_archive_nothing_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert archive_options() == ()


def test_an_archive_that_does_not_fit_is_left_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    archive_path().write_bytes(b"of another Java")
    command = [str(find_java().program), *archive_options(), "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "archive" not in (done.stdout + done.stderr).lower()


def test_what_cannot_be_archived_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    archive_path().write_bytes(b"an old one")

    def fail(*_: object) -> None:
        raise subprocess.CalledProcessError(1, "headrace")

    monkeypatch.setattr(class_archive, "_run", fail)
    assert make_archive() is False
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(
    not (Path(sys.prefix) / "headrace.stamp").exists(), reason="this environment is not of make setup"
)
def test_the_set_up_made_one_that_fits() -> None:
    options = [option for option in archive_options() if "SharedArchiveFile" in option]
    assert options, "make setup has written no archive"
    command = [str(find_java().program), *options, "-Xshare:auto", "-Xlog:cds=info", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "not a valid archive" not in done.stdout.lower()
