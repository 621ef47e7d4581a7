"""Architecture is a test: a folder imports the foundation and the folders above it, never below."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "headrace"
FOUNDATION = 0
ORDER = ("log", "gate", "views", "flows", "store", "lake", "ops", "serve", "local", "testing", "cli")
# Spark cannot start without the jars and the Java that the local folder finds.
ALLOWED = {("spark", "local")}


def layer(name: str) -> int:
    return ORDER.index(name) + 1 if name in ORDER else FOUNDATION


def imported(file: Path) -> Iterator[tuple[int, str]]:
    """The line and the first name below `headrace` of every import, also inside functions."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module] if node.module != "headrace" else [f"headrace.{a.name}" for a in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "headrace" and len(parts) > 1:
                yield node.lineno, parts[1]


def offences(file: Path, part: str) -> list[str]:
    return [
        f"{file.name}:{line} imports headrace.{target}"
        for line, target in imported(file)
        if layer(target) > layer(part) and (part, target) not in ALLOWED
    ]


@pytest.mark.parametrize(
    "file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: str(file.relative_to(PACKAGE))
)
def test_imports_go_up_the_data_path(file: Path) -> None:
    part = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if part == "__init__":
        pytest.skip("the package's front door opens on everything")
    assert offences(file, part) == []


def test_the_rule_can_be_broken(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text("def later():\n    from headrace.store import merge\n    import headrace.errors\n")
    assert offences(file, "gate") == ["wrong.py:2 imports headrace.store"]
    assert offences(file, "ops") == []


def test_serve_never_loads_pyspark() -> None:
    """In a process of its own: what the modules of `serve` import, they import all the way down."""
    modules = [f"headrace.serve.{file.stem}" for file in (PACKAGE / "serve").glob("*.py")]
    assert len(modules) > 10
    code = f"import sys, {', '.join(modules)}\nprint([m for m in sys.modules if 'spark' in m.split('.')[0]])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
