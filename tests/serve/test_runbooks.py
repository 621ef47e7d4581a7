"""The runbooks as pages: safe, linked to each other, and true about the commands they name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from headrace.ops.alert_rules import alert_rules
from headrace.ops.load import load_app
from headrace.serve.markdown import as_html
from headrace.serve.runbooks import pages, runbooks_router
from tests.test_docs import shell_calls, unknown_call

ROOT = Path(__file__).parents[2]
NAMES = sorted(file.stem for file in (ROOT / "docs/runbooks").glob("*.md") if file.stem != "README")


@pytest.fixture(scope="module")
def client() -> TestClient:
    app = FastAPI()
    app.include_router(runbooks_router())
    return TestClient(app)


@pytest.mark.parametrize("name", NAMES)
def test_every_page_is_served_and_its_links_lead_somewhere(client: TestClient, name: str) -> None:
    answer = client.get(f"/runbooks/{name}")
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for part in ("Symptom", "Likely cause", "First check", "Fix"):
        assert f"<h2>{part}</h2>" in answer.text
    assert "<script" not in answer.text and "style=" not in answer.text
    for target in set(re.findall(r'href="(/runbooks[^"]*)"', answer.text)):
        assert client.get(target).status_code == 200, target


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_exist(name: str) -> None:
    calls = shell_calls(pages()[name])
    assert calls
    assert [problem for call in calls if "--help" not in call and (problem := unknown_call(call))] == []


def test_every_alert_has_its_page_and_every_page_is_listed(client: TestClient) -> None:
    linked = {rule.runbook for rule in alert_rules(load_app(ROOT / "apps/turanmart"))}
    assert linked <= set(NAMES)
    assert set(re.findall(r'href="/runbooks/([\w-]+)"', client.get("/runbooks").text)) == set(NAMES)


def test_an_unknown_name_is_not_found(client: TestClient) -> None:
    for name in ("nothing", "..%2F..%2Fpyproject", "%00", "<script>"):
        answer = client.get(f"/runbooks/{name}")
        assert answer.status_code == 404
        assert "<script>" not in answer.text


def test_markdown_is_escaped() -> None:
    text = (
        '# <b>\n\n<script>x</script> `<i>` [<u>](x"onclick="y) **<u>**\n- <li>\n  more\n\n'
        "```\n</pre>\n```\n| <a> | b |\n|---|---|\n"
    )
    html = as_html(text, lambda target: target)
    tags = set(re.findall(r"</?([a-z0-9]+)", html))
    assert tags == {"h1", "p", "code", "a", "strong", "ul", "li", "pre", "table", "tr", "th"}
    assert set(re.findall(r"<[a-z0-9]+ ([a-z]+)=", html)) == {"href"}
    assert 'href="x&quot;onclick=&quot;y"' in html


def test_blocks() -> None:
    text = (
        "A line\nand *more*.\n- one\n  goes on\n- [two](growing-lag.md)\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    )
    assert as_html(text, lambda target: f"/{target}") == (
        "<p>A line and <em>more</em>.</p>\n"
        '<ul><li>one goes on</li><li><a href="/growing-lag.md">two</a></li></ul>\n'
        "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>"
    )


def test_a_wheel_carries_the_pages(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("*.whl")
    carried = {Path(name).stem for name in ZipFile(wheel).namelist() if "/runbook_pages/" in name}
    assert carried == set(pages())
