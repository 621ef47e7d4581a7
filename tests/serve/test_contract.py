"""The OpenAPI document is true: schemathesis asks everything in it; no 5xx, no answer of another shape."""

from __future__ import annotations

import httpx
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


def ask_everything(document: schemathesis.BaseSchema, path: str, examples: int) -> None:
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
        case.call_and_validate(checks=CHECKS)

    ask()


@pytest.fixture(scope="module")
def document(sample: Sample) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(f"{sample.address}/openapi.json")


@pytest.mark.parametrize("path", [path for path in paths() if not path.startswith((*BROKER, *ENDLESS))])
def test_no_request_makes_the_server_fail(document: schemathesis.BaseSchema, path: str) -> None:
    ask_everything(document, path, 30)


def test_every_route_and_parameter_is_described(sample: Sample) -> None:
    found = httpx.get(f"{sample.address}/openapi.json").json()
    assert set(paths()) == set(found["paths"])
    for path, methods in found["paths"].items():
        for told in methods.values():
            assert told.get("summary"), path
            for parameter in told.get("parameters", []):
                known = parameter.get("description") or parameter["in"] in ("path", "header")
                assert known, f"{path}: {parameter['name']}"
