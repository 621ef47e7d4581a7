"""The web application: routes, errors, static files. It imports no Spark."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from headrace.connections import Connections
from headrace.ops.load import LoadedApp
from headrace.serve import (
    pages,
    routes_accounts,
    routes_joins,
    routes_live,
    routes_metrics,
    routes_panels,
    routes_pipeline,
    routes_sessions,
    routes_signals,
    routes_trouble,
)
from headrace.serve.access import Tokens
from headrace.serve.description import ABOUT, describe
from headrace.serve.exporter import metrics_router
from headrace.serve.problems import CatchUnexpected, handle_problems
from headrace.serve.runbooks import runbooks_router
from headrace.serve.serving import make_serving

ROUTES = (
    *(routes_metrics, routes_pipeline, routes_trouble, routes_accounts),
    *(routes_joins, routes_sessions, routes_signals, routes_live, routes_panels, pages),
)


def make_app(loaded: LoadedApp, connections: Connections, tokens: Tokens | None = None) -> FastAPI:
    """An app for one server: `tokens` is None where everybody who reaches it may ask."""
    serving = make_serving(loaded, connections, tokens)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await serving.open()
        try:
            yield
        finally:
            await serving.close()

    app = FastAPI(
        title=f"{loaded.name} on Headrace",
        version="1",
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.serving, app.state.access = serving, serving.access
    handle_problems(app)
    for routes in ROUTES:
        app.include_router(routes.router)
    app.include_router(metrics_router(serving.view))
    app.include_router(runbooks_router())
    app.add_middleware(CatchUnexpected)
    describe(app)
    return app
