"""The documentation is true: examples run, links lead somewhere, everything that exists is described."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import typer

from headrace.cli import app as cli
from headrace.contracts import load_contracts
from headrace.ops.load import load_app
from headrace.settings import fields, load

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "apps/turanmart/README.md",
]
DOCUMENTATION = README + "".join(page.read_text() for page in sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED_BLOCK = re.compile(r"`shop/([\w/.]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str, language: str) -> list[str]:
    return [body for found, body in BLOCK.findall(text) if found == language]


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that call it."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
    else:
        for name, child in inner.items():
            yield from commands(child, (*words, name))


COMMANDS = dict(commands(typer.main.get_command(cli)))


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path) -> list[str]:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", page.read_text())):
        if re.match(r"\w+:", target):
            continue
        place, _, anchor = target.partition("#")
        file = (page.parent / place).resolve() if place else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    return broken


def undocumented(names: list[str], text: str) -> list[str]:
    return [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def unknown_call(line: str) -> str | None:
    """What is wrong with a shell line that calls headrace: the command or an option that does not exist."""
    words = shlex.split(line, comments=True)
    called = [word for word in words[1:] if not word.startswith("-")]
    command = COMMANDS.get(tuple(called[:1])) or COMMANDS.get(tuple(called[:2]))
    if command is None:
        return f"{line.strip()}: no such command"
    known = {option for parameter in command.params for option in parameter.opts}
    wrong = [word for word in words if word.startswith("-") and word.partition("=")[0] not in known]
    if wrong:
        return f"{line.strip()}: no option {wrong[0]}"
    needed = [p.opts[0] for p in command.params if p.required and p.opts[0].startswith("-")]
    missing = [option for option in needed if option not in words]
    return f"{line.strip()}: needs {missing[0]}" if missing else None


def shell_calls(text: str) -> list[str]:
    lines = [line for block in blocks(text, "sh") for line in block.splitlines()]
    return [part for line in lines for part in line.split("&&") if part.strip().startswith("headrace ")]


def test_every_command_is_described() -> None:
    assert undocumented([f"headrace {' '.join(words)}" for words in COMMANDS], DOCUMENTATION) == []


def test_no_command_is_described_that_does_not_exist() -> None:
    table = (ROOT / "docs/operations.md").read_text().partition("\n## What lies where")[0]
    described = re.findall(r"^\| `headrace ([a-z ]+)` \|", table, re.MULTILINE)
    assert len(described) > 8
    assert [name for name in described if tuple(name.split()) not in COMMANDS] == []


def test_every_setting_is_described() -> None:
    assert undocumented([f"`{field.name}`" for field in fields()], DOCUMENTATION) == []


def test_a_name_that_is_nowhere_is_reported() -> None:
    assert undocumented(
        ["headrace up", "headrace upp"], "start it with `headrace up`, not headrace uppp"
    ) == ["headrace upp"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One two\n[a](page.md#one-two) [b](https://x.y) [c](gone.md) [d](#three)\n")
    assert broken_links(page) == ["gone.md", "#three"]


def test_the_first_commands_of_the_readme_are_targets_of_the_makefile() -> None:
    lines = [shlex.split(line, comments=True) for line in blocks(README, "sh")[0].splitlines()]
    assert [words[0] for words in lines] == ["make", "make"]
    assert {words[1] for words in lines} <= make_targets()


def test_contributing_names_ten_commands_that_exist() -> None:
    named = re.findall(r"^\| `([^`]+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)[:10]
    assert {line.split()[1] for line in named if line.startswith("make ")} <= make_targets()
    calls = [line.removeprefix(".venv/bin/") for line in named if "bin/headrace" in line]
    assert len(named) == 10 and calls
    assert [problem for call in calls if (problem := unknown_call(call))] == []


def test_the_readme_calls_commands_and_options_that_exist() -> None:
    calls = shell_calls(README)
    assert calls
    assert [problem for call in calls if (problem := unknown_call(call))] == []


def test_a_wrong_call_is_found() -> None:
    assert unknown_call("headrace fly --high") == "headrace fly --high: no such command"
    assert unknown_call("headrace up --high # why not") == "headrace up --high # why not: no option --high"
    assert unknown_call("headrace contract check contracts") is None


def test_the_app_of_the_readme_loads(tmp_path: Path) -> None:
    files = dict(NAMED_BLOCK.findall(README))
    assert sorted(files) == ["app.py", "contracts/visits.yaml"]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    loaded = load_app(tmp_path)
    assert (loaded.name, loaded.source("visits").max_batch) == ("shop", 200_000)
    assert loaded.contract("visits").lateness == timedelta(minutes=10)
    assert blocks(README, "python") == [files["app.py"]], "a Python block that no test runs"


def test_the_contract_of_the_documentation_loads(tmp_path: Path) -> None:
    [text] = blocks((ROOT / "docs/contracts.md").read_text(), "yaml")
    (tmp_path / "taps.yaml").write_text(text)
    assert set(load_contracts(tmp_path)) == {"taps"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_files_in_the_documentation_are_valid(page: Path, tmp_path: Path) -> None:
    for text in blocks(page.read_text(), "toml"):
        (tmp_path / "headrace.toml").write_text(text)
        load(tmp_path, {}).java_kafka_options()


def test_the_page_of_reasons_is_current() -> None:
    from headrace.gate.reasons import REASONS

    listed = (ROOT / "docs/reasons.md").read_text().partition("\nHow a field is named")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", listed, re.MULTILINE)) == REASONS


def test_decisions_are_numbered_and_listed() -> None:
    folder = ROOT / "docs/decisions"
    pages = sorted(folder.glob("[0-9]*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    listed = dict(
        re.findall(r"^\| \[\d+\]\((.+)\) \| (.+) \|$", (folder / "README.md").read_text(), re.MULTILINE)
    )
    titles = {page.name: page.read_text().splitlines()[0] for page in pages}
    assert {name: f"# {int(name[:4])}. {title}" for name, title in listed.items()} == titles
