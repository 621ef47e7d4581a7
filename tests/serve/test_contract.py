"""The OpenAPI document is true: schemathesis asks everything in it; no 5xx, no answer of another shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import httpx
import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from headrace.ops.load import load_app
from headrace.serve.app import make_app
from tests.serve.conftest import Sample
from tests.serve.described import Document
from tests.serve.seed import TURANMART, connections_to

# These ask the broker, which is away here: test_broker.py asks them.
BROKER = ("/api/v1/dead-letters", "/api/v1/audit", "/api/v1/pipeline", "/api/v1/health", "/metrics")
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


ENDLESS = ("/live",)


def paths() -> list[str]:
    return list(make_app(load_app(TURANMART), connections_to("postgresql://nowhere")).openapi()["paths"])


def names_in(path: str) -> list[str]:
    """The names that are there, for a path that has one in it."""
    app = load_app(TURANMART).app
    named = {
        "metrics": app.metrics,
        "sessions": app.all_sessions,
        "joins": app.joins,
        "signals": app.signal_sets,
        "sources": load_app(TURANMART).contracts,
    }
    return sorted(named[path.split("/")[3]]) if "{name}" in path else []


def call_and_validate(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS)


def ask_everything(
    document: schemathesis.BaseSchema,
    path: str,
    examples: int,
    call: Callable[[schemathesis.Case], None] = call_and_validate,
) -> None:
    """As many requests as asked for, the same ones each time; most for what is there."""
    known = names_in(path)

    @given(document[path]["GET"].as_strategy(), st.sampled_from([*known, *known, ""]))
    @settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: schemathesis.Case, name: str) -> None:
        if name:
            case.path_parameters["name"] = name
        call(case)

    ask()


def with_token(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS, headers={"Authorization": "Bearer all"})


def begin_to_follow(address: str, case: schemathesis.Case) -> None:
    """Reads no more than the first event, since there is no last one."""
    asked = case.as_transport_kwargs(base_url=address)
    with httpx.stream(
        "GET", asked["url"], params=asked.get("params"), headers=asked["headers"], timeout=20
    ) as answer:
        told = case.operation.definition.raw["responses"]
        assert str(answer.status_code) in told and answer.status_code < 500, asked
        [kind] = told[str(answer.status_code)]["content"]
        assert answer.headers["content-type"].partition(";")[0] == kind, asked
        if answer.status_code == 200:
            assert next(line for line in answer.iter_lines() if line.startswith("event: "))
        else:
            answer.read()
            assert answer.json()["status"] == answer.status_code and answer.json()["detail"]


@pytest.fixture(scope="module")
def document(sample: Sample) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(f"{sample.address}/openapi.json")


@pytest.mark.parametrize("path", [path for path in paths() if not path.startswith((*BROKER, *ENDLESS))])
def test_no_request_makes_the_server_fail(document: schemathesis.BaseSchema, path: str) -> None:
    ask_everything(document, path, 30)


@pytest.mark.parametrize("path", [path for path in paths() if path.startswith("/api/v1/signals/")])
def test_no_request_of_those_who_see_signals_makes_the_server_fail(sample: Sample, path: str) -> None:
    document = schemathesis.openapi.from_url(f"{str(sample.insider.base_url).rstrip('/')}/openapi.json")
    ask_everything(document, path, 30, with_token)


def test_no_request_to_follow_makes_the_server_fail(
    sample: Sample, document: schemathesis.BaseSchema
) -> None:
    for path in ENDLESS:
        ask_everything(document, path, 60, partial(begin_to_follow, sample.address))


def test_every_route_and_parameter_is_described(sample: Sample) -> None:
    found = httpx.get(f"{sample.address}/openapi.json").json()
    assert set(paths()) == set(found["paths"])
    for path, methods in found["paths"].items():
        for told in methods.values():
            assert told.get("summary"), path
            for parameter in told.get("parameters", []):
                known = parameter.get("description") or parameter["in"] in ("path", "header")
                assert known, f"{path}: {parameter['name']}"


def test_everything_has_an_example_that_fits(sample: Sample) -> None:
    raw = sample.client.get("/openapi.json").json()
    document = Document(raw)
    assert list(document.without_example()) == []
    found = list(document.examples())
    assert len(found) > 200
    for place, schema, example in found:
        validator = jsonschema.Draft202012Validator({**schema, "components": raw["components"]})
        assert list(validator.iter_errors(example)) == [], place


@pytest.mark.parametrize(
    "path", [path for path in paths() if not path.startswith((*BROKER, *ENDLESS)) and "event_id" not in path]
)
def test_an_answer_has_nothing_that_is_not_described(sample: Sample, path: str) -> None:
    document = Document(sample.client.get("/openapi.json").json())
    for name in names_in(path) or [""]:
        answer = sample.insider.get(path.replace("{name}", name)).json()
        assert set(document.undescribed(document.answer(path), answer)) == set()
