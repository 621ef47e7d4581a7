from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.contract import app
from headrace.errors import ContractError
from tests.contracts.files import TURANMART, text


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    contents = {
        "old": text(),
        "minor": text("- {name: x, logicalType: string}").replace("1.2.3", "1.3.0"),
        "low": text("- {name: x, logicalType: string}"),
        "major": text("- {name: x, logicalType: string, required: true}").replace("1.2.3", "2.0.0"),
        "broken": text("- {name: x, logicalType: strng}"),
    }
    for name, content in contents.items():
        (tmp_path / f"{name}.yaml").write_text(content)
    return {name: tmp_path / f"{name}.yaml" for name in contents}


def test_check_prints_a_line_for_each_file_of_a_folder() -> None:
    done = run("check", TURANMART, TURANMART / "orders.yaml")
    lines = done.stdout.splitlines()
    assert (done.exit_code, len(lines)) == (0, 4)
    assert lines[0].endswith(
        "clickstream 1.0.0, 16 fields, topics clickstream.raw.v1, clickstream.validated.v1, "
        "clickstream.invalid.v1, clickstream.late.v1"
    )


def test_check_reports_the_errors_of_all_files(files: dict[str, Path], tmp_path: Path) -> None:
    done = run("check", files["broken"], files["old"], tmp_path / "none.yaml", files["minor"])
    assert "old.yaml: taps 1.2.3, 3 fields" in done.stdout
    assert isinstance(done.exception, ContractError)
    message = str(done.exception)
    assert "broken.yaml" in message
    assert "none.yaml: there is no such file" in message
    assert "minor.yaml: the stream 'taps' is already described by" in message


@pytest.mark.parametrize(
    ("new", "options", "code", "said"),
    [
        ("old", [], 0, "no change"),
        ("minor", [], 0, "minor: x: optional field added"),
        ("minor", [], 0, "compatible: full compatibility, a minor change; 1.2.3 → 1.3.0 is enough"),
        ("low", [], 1, "needs version 1.3.0 or higher, the file says 1.2.3"),
        ("major", [], 1, "[breaks backward]"),
        ("major", [], 1, "its topics are taps.*.v2"),
        ("major", ["--allow-major"], 0, "breaking"),
    ],
)
def test_diff(files: dict[str, Path], new: str, options: list[str], code: int, said: str) -> None:
    done = run("diff", files["old"], files[new], *options)
    assert done.exit_code == code
    assert said in done.stdout


def test_diff_as_json(files: dict[str, Path]) -> None:
    done = run("diff", files["old"], files["major"], "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (found["verdict"], found["level"], found["asked_version"]) == ("breaking", "major", "2.0.0")
    assert found["changes"][0]["path"] == "x"
    assert found["changes"][0]["breaks"] == ["backward"]


def test_schema_is_json() -> None:
    assert json.loads(run("schema", TURANMART / "logins.yaml").stdout)["title"] == "logins"


def test_show_names_masks_topics_and_rules() -> None:
    shown = run("show", TURANMART / "orders.yaml").stdout
    assert "shipping_address.phone      hash" in shown
    assert "orders.late.v1" in shown
    assert "items[].quantity" in shown
    assert "no field is masked" in run("show", TURANMART / "clickstream.yaml").stdout


@pytest.mark.parametrize("command", ["check", "diff", "schema", "show"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    done = run(command, "--help")
    assert done.exit_code == 0
    assert f"headrace contract {command} " in done.stdout
