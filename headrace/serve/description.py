"""The OpenAPI document: what the framework finds in the routes, and what it cannot know."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from headrace.serve import models

ABOUT = """\
The numbers of an app, and how sure they are. Times are ISO 8601 in UTC, decimals are text, errors are
`application/problem+json`. Lists have `items` and `next`: pass `next` on as `cursor`. An unknown parameter is
an error. Answers have an `ETag`; with `If-None-Match` an answer that has not changed is a 304.
"""
OPEN = ("/api/v1/health",)


def describe(app: FastAPI) -> None:
    """Made on first use, and kept."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = found.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = models.Problem.model_json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "Where the server asks for one."}
    }
    for path, methods in found["paths"].items():
        for told in methods.values():
            told["security"] = [] if path in OPEN else [{}, {"token": []}]
    return found
