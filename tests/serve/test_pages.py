"""The page and its assets as they are served, and the panels behind them."""

from __future__ import annotations

import re
from hashlib import sha256

import httpx
import pytest

from headrace.serve.pages import ASSETS, STATIC
from tests.serve.conftest import Sample
from tests.serve.running import running_server
from tests.serve.seed import connections_to


def test_the_page_and_everything_it_names_is_there(sample: Sample) -> None:
    page = sample.client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    named = re.findall(r'(?:href|src)="(static/[^"]+)"', page.text)
    assert len(named) > 6
    for name in named:
        assert sample.client.get(f"/{name}").status_code == 200


def test_modules_import_only_what_is_shipped() -> None:
    modules = [file for file in ASSETS.values() if file.suffix == ".js" and file.parent != STATIC]
    assert len(modules) > 15
    for file in modules:
        for name in re.findall(r'from "([^"]+)"', file.read_text()):
            assert (file.parent / name).resolve() in {asset.resolve() for asset in ASSETS.values()}


def test_nothing_of_the_page_needs_a_weaker_policy() -> None:
    """No inline script or style, no markup made from text, no other host."""
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<script>|<style|\son\w+=|\sstyle=", page)
    for file in [STATIC / "index.html", *ASSETS.values()]:
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|https?://", text
        ), file


@pytest.mark.parametrize("name", ["", "index.html", "../app.py", "js/../../app.py", "js", "%2e%2e/app.py"])
def test_only_assets_are_served(sample: Sample, name: str) -> None:
    assert sample.client.get(f"/static/{name}").status_code == 404


def test_an_asset_is_sent_once(sample: Sample) -> None:
    first = sample.client.get("/static/base.css")
    again = sample.client.get("/static/base.css", headers={"If-None-Match": first.headers["etag"]})
    assert first.headers["content-type"].startswith("text/css")
    assert (again.status_code, again.content) == (304, b"")


def test_panels_say_how_a_metric_is_shown(sample: Sample) -> None:
    found = sample.get("/api/v1/panels")
    assert found["app"] == "turanmart"
    [conversion] = [item for item in found["items"] if item["title"] == "Conversion"]  # type: ignore[attr-defined]
    assert conversion["shape"] == "groups" and conversion["values"] == ["conversion_rate"]
    shape = {"kind": "tumbling", "size_seconds": 60.0, "hop_seconds": 60.0, "trigger_seconds": None}
    assert conversion["window"] == shape
    assert sample.get("/api/v1/panels", 422, colour="red")["parameter"] == "colour"


def test_a_panel_is_left_out_where_its_metric_may_not_be_seen(sample: Sample) -> None:
    tokens = {sha256(b"guest").hexdigest(): frozenset[str]()}
    with running_server(sample.seed.loaded, connections_to(sample.store_url), tokens) as address:
        headers = {"Authorization": "Bearer guest"}
        items = httpx.get(f"{address}/api/v1/panels", headers=headers).json()["items"]
        page = httpx.get(address)
    assert {item["source"] for item in items} == {"clickstream"}
    assert page.status_code == 200, "the page itself asks for no token"
