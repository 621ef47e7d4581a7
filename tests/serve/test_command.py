"""`headrace serve` as a user runs it, and the page of the API, which is true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from headrace.local.serve import ServeProcess
from headrace.serve.access import read_tokens
from tests.serve.conftest import Sample
from tests.serve.running import following
from tests.serve.seed import TURANMART

PAGE = (Path(__file__).parent.parent.parent / "docs" / "api.md").read_text()
ASKED = re.findall(r'^curl (?:-N )?"\$API(/[^"]*)"', PAGE, re.MULTILINE)


@contextmanager
def served(folder: Path, store_url: str, *options: str, **settings: str) -> Iterator[tuple[str, str]]:
    """What the command says, and its address; it must stop cleanly, while a client follows."""
    environment = {"HEADRACE_STORE_URL": store_url, "HEADRACE_KAFKA_BOOTSTRAP": "127.0.0.1:1", **settings}
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", "serve", str(TURANMART), "--port", "0", *options],
        env={**os.environ, **environment},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        told = process.stdout.readline()
        yield told, told.split()[1]
        process.terminate()
        assert process.wait(10) == 0
    finally:
        process.kill()
        _, complaints = process.communicate()
    assert "Traceback" not in complaints and "hush" not in complaints


def test_the_command_serves_says_that_no_token_is_asked_for_and_stops(sample: Sample, tmp_path: Path) -> None:
    with served(tmp_path, sample.store_url) as (told, address):
        assert told.endswith("(no token is asked for)\n") and "127.0.0.1" in address
        with following(address, metrics="conversion_1m") as follower:
            assert follower.next().name == "ready"
        with httpx.stream("GET", f"{address}/live") as still_open:
            assert still_open.status_code == 200


def test_tokens_of_a_file(sample: Sample, tmp_path: Path) -> None:
    digest = sha256(b"hush").hexdigest()
    (tmp_path / "tokens.toml").write_text(f'"{digest}" = ["finance-analyst"]\n')
    with served(tmp_path, sample.store_url, HEADRACE_SERVE_TOKENS="tokens.toml") as (told, address):
        assert told.endswith("(a token is asked for)\n")
        rows = f"{address}/api/v1/metrics/payment_errors_15m/rows"
        assert httpx.get(rows).status_code == 401
        assert httpx.get(rows, headers={"Authorization": "Bearer hush"}).status_code == 200


def test_the_server_under_a_keeper_stops_with_it(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STORE_URL", sample.store_url)
    monkeypatch.setenv("HEADRACE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    service = ServeProcess(tmp_path / ".headrace", TURANMART)
    service.start()
    try:
        assert httpx.get(f"{service.url}/api/v1/sources").status_code == 200
    finally:
        service.stop()
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{service.url}/api/v1/sources")


def test_other_machines_are_not_let_in_by_accident(tmp_path: Path) -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "headrace.cli", "serve", str(TURANMART), "--host", "0.0.0.0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 2 and "--without-tokens" in refused.stderr


@pytest.mark.parametrize("path", ASKED)
def test_the_page_asks_what_can_be_asked(sample: Sample, path: str) -> None:
    if path.startswith("/live"):
        with following(f"{sample.address}", **dict(httpx.URL(path).params)) as follower:
            assert follower.next().name == "ready"
    else:
        assert sample.client.get(path).status_code == 200


def test_the_page_lists_every_route(sample: Sample) -> None:
    assert len(ASKED) > 8
    document = sample.get("/openapi.json")
    described = PAGE.replace("`…/{name}", "`/api/v1/sources/{name}")
    missing = [path for path in document["paths"] if f"`{path}`" not in described]  # type: ignore[attr-defined]
    assert missing == []


def test_the_line_of_tokens_on_the_page_can_be_read(tmp_path: Path) -> None:
    [line] = re.findall(r'^    ("[0-9a-f]{64}" = .*)$', PAGE, re.MULTILINE)
    (tmp_path / "tokens.toml").write_text(line)
    assert list(read_tokens(tmp_path / "tokens.toml").values()) == [frozenset({"finance-analyst"})]
