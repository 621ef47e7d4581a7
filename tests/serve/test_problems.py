"""Whatever is asked wrongly is a 4xx that says why, in the same shape everywhere; and never a 500."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import ServiceError, UsageError
from headrace.ops.load import load_app
from headrace.serve.access import read_tokens
from headrace.serve.app import make_app
from headrace.serve.parameters import encode_cursor
from headrace.serve.server import listening_socket, refuse_open_door
from tests.serve.conftest import Sample
from tests.serve.running import running_server
from tests.serve.seed import TURANMART, connections_to

ROWS = "/api/v1/metrics/conversion_1m/rows"
LISTS = (
    ROWS,
    "/api/v1/metrics/conversion_1m/latest",
    "/api/v1/metrics/conversion_1m/revisions",
    "/api/v1/metrics/product_revenue_1h/rows",
    "/api/v1/metrics/conversion_1m/late-events",
    "/api/v1/late-events",
    "/api/v1/late-events/delays",
    "/api/v1/ledger",
    "/api/v1/alerts",
    "/api/v1/sessions/visits",
    "/api/v1/joins/order_paid",
    "/api/v1/joins/order_paid/unmatched",
)


SIGNALS = ("/api/v1/signals/fraud", "/api/v1/signals/fraud/activity", "/api/v1/signals/fraud/comparison")


@pytest.mark.parametrize(
    ("path", "status", "parameter", "hint"),
    [
        (f"{ROWS}?regoin=almaty", 422, "regoin", "did you mean 'region'?"),
        (f"{ROWS}?limt=5", 422, "limt", "did you mean 'limit'?"),
        (f"{ROWS}?limit=0", 422, "limit", ""),
        (f"{ROWS}?limit=1001", 422, "limit", ""),
        (f"{ROWS}?limit=5&limit=6", 422, "limit", ""),
        (f"{ROWS}?from=yesterday", 422, "from", "2026-03-01T09:00:00Z"),
        (f"{ROWS}?as_of=soon", 422, "as_of", "2026-03-01T09:00:00Z"),
        (f"{ROWS}?as_of=99999999999", 422, "as_of", ""),
        (f"{ROWS}?state=finel", 422, "state", "did you mean 'final'?"),
        (f"{ROWS}?grouping=page", 422, "grouping", "region,device_type"),
        (f"{ROWS}?order=revenue", 422, "order", ""),
        (f"{ROWS}?cursor=abc", 422, "cursor", "next"),
        (f"{ROWS}?region=%00", 422, "region", ""),
        ("/api/v1/metrics/revenue_10m/latest?order=-revenu", 422, "order", "did you mean 'revenue'?"),
        ("/api/v1/metrics/conversion_2m/rows", 404, "", "did you mean 'conversion_1m'?"),
        ("/api/v1/metrics?limit=5", 422, "limit", ""),
        ("/api/v1/late-events?metric=nothing", 422, "metric", ""),
        ("/api/v1/late-events?source=clickstrem", 422, "source", "did you mean 'clickstream'?"),
        ("/api/v1/dead-letters/histogram?by=colour", 422, "by", ""),
        ("/api/v1/dead-letters/histogram?by=producer&from=2026-01-01", 422, "from", "by=reason"),
        ("/api/v1/ledger?source=x", 422, "source", ""),
        ("/api/v1/sources/payment/contract", 404, "", "did you mean 'payments'?"),
        ("/api/v1/alerts?state=closed", 422, "state", ""),
        ("/api/v1/nothing", 404, "", "/openapi.json"),
        ("/live?metrics=nothing", 404, "", ""),
        ("/live?metrics=conversion_1m:regoin", 422, "metrics", "did you mean 'region'?"),
        ("/live?metrics=conversion_1m:page", 422, "metrics", "all, region, region.device_type"),
        ("/live?metrics=conversion_1m:", 422, "metrics", ""),
        ("/live?metrics=visitors_5m:page.all", 422, "metrics", ""),
        ("/live?metrics=:region", 404, "", ""),
        ("/live?topics=weather", 422, "topics", ""),
    ],
)
def test_a_wrong_request_says_what_is_wrong(
    sample: Sample, path: str, status: int, parameter: str, hint: str
) -> None:
    answer = sample.client.get(path)
    body = answer.json()
    assert (answer.status_code, body["status"], body.get("parameter", "")) == (status, status, parameter)
    assert answer.headers["content-type"] == "application/problem+json"
    assert body["title"] and body["detail"]
    assert hint in body.get("hint", "") + body["detail"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_written(sample: Sample, method: str) -> None:
    answer = sample.client.request(method, "/api/v1/metrics")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_cursor_belongs_to_its_query(sample: Sample) -> None:
    cursor = sample.get(ROWS, limit=1)["next"]
    assert sample.get(ROWS, limit=2, cursor=cursor)["items"]
    sample.get(ROWS, 422, cursor=cursor, state="final")
    sample.get("/api/v1/metrics/revenue_10m/rows", 422, cursor=cursor)


@pytest.mark.parametrize("path", [*LISTS, *SIGNALS])
def test_no_cursor_breaks_anything(sample: Sample, path: str) -> None:
    client = sample.insider if path in SIGNALS else sample.client
    shapes: list[Any] = [[], {}, None, 7, "x", ["x"] * 4, [1, 2, 3, 4, 5, 6], [None] * 6, [{}] * 4, [[]] * 2]
    for shape in shapes:
        assert client.get(path, params={"cursor": encode_cursor(shape)}).status_code == 422


def test_the_sample_has_rows_of_flows_for_those_who_ask(sample: Sample) -> None:
    """Else nothing of a wrong request would reach the store."""
    for path in (*LISTS[-3:], *SIGNALS):
        assert sample.insider.get(path).json()["items"], path


TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["", "all", "final", "-1", "0", "1", "9" * 30, "1e5", "NaN", "null", "' OR 1=1 --", "%s"]
    ),
    st.datetimes().map(lambda t: t.isoformat()),
    st.sampled_from(["0001-01-01", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "2026-02-30"]),
)
DIMENSIONS = ("region", "device_type", "product_id")
ALIKE = settings(
    max_examples=400,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def parameters_of(path: str) -> list[str]:
    """Those that the OpenAPI document has for it, dimensions of metrics, and one that nobody knows."""
    app = make_app(load_app(TURANMART), connections_to("postgresql://nowhere"))
    parts = path.split("/")
    [told] = [
        methods["get"]
        for known, methods in app.openapi()["paths"].items()
        if len(known.split("/")) == len(parts)
        and all(k == p or k.startswith("{") for k, p in zip(known.split("/"), parts, strict=True))
        and (("{" in known) == (path not in app.openapi()["paths"]))
    ]
    given = [each["name"] for each in told.get("parameters", []) if each["in"] == "query"]
    return [*given, *(DIMENSIONS if "/metrics/" in path else ()), "x"]


ASKED = {path: parameters_of(path) for path in (*LISTS, *SIGNALS)}
REQUESTS = st.sampled_from(sorted(ASKED)).flatmap(
    lambda path: st.tuples(st.just(path), st.dictionaries(st.sampled_from(ASKED[path]), TEXTS, max_size=4))
)


@given(request=REQUESTS)
@ALIKE
def test_no_parameter_breaks_anything(sample: Sample, request: tuple[str, dict[str, str]]) -> None:
    path, asked = request
    client = sample.insider if path in SIGNALS else sample.client
    answer = client.get(path, params=asked)
    assert answer.status_code in (200, 422), (path, asked, answer.text)
    if answer.status_code == 422:
        assert answer.headers["content-type"] == "application/problem+json" and answer.json()["detail"]


FOLLOWED = st.one_of(
    TEXTS,
    st.lists(
        st.sampled_from(
            ["conversion_1m", "conversion_1m:region", "visitors_5m:all", "x", ":", "conversion_1m:", ""]
        ),
        max_size=3,
    ).map(",".join),
)
TOPICS = st.one_of(TEXTS, st.lists(st.sampled_from(["metrics", "pipeline", "alerts", "x"])).map(",".join))
KEYS = st.sampled_from(["conversion_1m", "alerts of conversion_1m", "x"])
INTEGERS = st.integers(-(2**63), 2**63 - 1)
SHAPES = st.one_of(
    st.dictionaries(KEYS, st.lists(INTEGERS, min_size=2, max_size=2), max_size=2),
    st.recursive(
        st.one_of(st.none(), INTEGERS, st.text(max_size=5)),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=2),
    ),
)


@given(
    asked=st.fixed_dictionaries(
        {},
        optional={
            "metrics": FOLLOWED,
            "topics": TOPICS,
            "cursor": st.one_of(TEXTS, SHAPES.map(encode_cursor)),
            "x": TEXTS,
        },
    ),
    after=st.one_of(st.none(), SHAPES.map(encode_cursor)),
)
@ALIKE
def test_no_parameter_breaks_live(sample: Sample, asked: dict[str, str], after: str | None) -> None:
    """Either the stream begins, or a problem says why not."""
    headers = {"Last-Event-ID": after} if after is not None else {}
    with sample.client.stream("GET", "/live", params=asked, headers=headers) as answer:
        kind = answer.headers["content-type"].partition(";")[0]
        if answer.status_code == 200:
            first = next(line for line in answer.iter_lines() if line.startswith("event: "))
            assert (kind, first.removeprefix("event: ") in ("ready", "reset", "row", "skipped")) == (
                "text/event-stream",
                True,
            )
        else:
            answer.read()
            assert (kind, answer.status_code in (404, 422)) == ("application/problem+json", True), asked
            assert answer.json()["detail"]


@pytest.mark.parametrize("stamp", ["0001-01-01", "9999-12-31T23:59:59.999999Z"])
def test_the_ends_of_time(sample: Sample, stamp: str) -> None:
    for path in (ROWS, "/api/v1/metrics/conversion_1m/revisions", "/api/v1/late-events/delays"):
        sample.get(path, **{"from": stamp, "to": stamp})
    sample.get(ROWS, **{"from": stamp}, as_of="1")
    sample.get(ROWS, as_of=stamp)
    answer = sample.client.get("/api/v1/metrics/conversion_1m/revisions", params={"window_start": stamp})
    assert answer.status_code == 200


def test_a_defect_is_a_problem_without_details(
    sample: Sample, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_loaded: object) -> list[object]:
        raise RuntimeError("-".join(["hush", "hush"]))

    monkeypatch.setattr("headrace.serve.sources.catalogue", broken)
    with caplog.at_level(logging.ERROR):
        answer = sample.client.get("/api/v1/sources")
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "hush-hush" not in answer.text + caplog.text
    assert "RuntimeError" in caplog.text and "GET /api/v1/sources" in caplog.text


def test_a_name_that_leads_here_from_elsewhere_is_refused(sample: Sample) -> None:
    answer = httpx.get(f"{sample.address}/api/v1/metrics", headers={"Host": "evil.example:80"})
    assert (answer.status_code, answer.json()["status"]) == (421, 421)
    port = sample.address.rpartition(":")[2]
    assert httpx.get(f"http://localhost:{port}/api/v1/metrics").status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "::", "example.org"])
def test_other_machines_need_tokens(host: str) -> None:
    with pytest.raises(UsageError, match="without tokens"):
        refuse_open_door(host, with_tokens=False, allowed=False)
    refuse_open_door(host, with_tokens=True, allowed=False)
    refuse_open_door(host, with_tokens=False, allowed=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_this_machine_needs_none(host: str) -> None:
    refuse_open_door(host, with_tokens=False, allowed=False)


def test_a_port_that_is_taken_is_told() -> None:
    with listening_socket("127.0.0.1", 0) as first:
        first.listen()
        with pytest.raises(ServiceError, match="cannot listen"):
            listening_socket("127.0.0.1", first.getsockname()[1])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('"short" = ["a"]', "entry 1 is not the sha256 of a token"),
        ("sesame = [", "not valid TOML"),
        (f'{"0" * 64} = "a"', "entry 1 has no list of roles"),
        (f"{'0' * 64} = [1]", "entry 1 has no list of roles"),
        ("", "no token in it"),
    ],
)
def test_a_wrong_file_of_tokens_is_told_without_repeating_it(
    tmp_path: Path, text: str, complaint: str
) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=complaint) as told:
        read_tokens(file)
    assert "sesame" not in str(told.value) and '"short"' not in str(told.value)


def test_without_a_store_the_answer_says_so() -> None:
    nowhere = connections_to("postgresql://headrace:hush@127.0.0.1:1/headrace")
    loaded = load_app(TURANMART)
    assert "hush" not in repr(make_app(loaded, nowhere).state.serving.connections)
    with running_server(loaded, nowhere) as address:
        answer = httpx.get(f"{address}/api/v1/metrics", timeout=20)
        health = httpx.get(f"{address}/api/v1/health", timeout=20)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert (health.status_code, health.json()["status"]) == (503, "down")
    assert "hush" not in answer.text + health.text
