"""Routes about metrics: what there is, rows, the newest window, revisions."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from headrace.errors import known_names
from headrace.metrics import Metric
from headrace.serve import models
from headrace.serve.access import Asking, Caller
from headrace.serve.answers import answer
from headrace.serve.metric_rows import Wanted
from headrace.serve.metric_tables import TOTAL, grouping_names
from headrace.serve.parameters import Page, known_parameters, only_declared, page_of, parse_time
from headrace.serve.problems import Problem, wrong
from headrace.serve.serving import Serving, serving_of

STATES = ("open", "preliminary", "corrected", "final")
SECOND = timedelta(microseconds=1)

router = APIRouter(prefix="/api/v1/metrics", tags=["metrics"])
Served = Annotated[Serving, Depends(serving_of)]
Paged = Annotated[Page, Depends(page_of)]
Name = Annotated[str, Path(description="A metric.", examples=["conversion_1m"])]
From = Annotated[
    str | None,
    Query(
        alias="from",
        description="Windows that start at this time or later. ISO 8601, UTC without a zone.",
        examples=["2026-03-01T09:00:00Z"],
    ),
]
To = Annotated[
    str | None,
    Query(alias="to", description="Windows that start before this time.", examples=["2026-03-01T10:00:00Z"]),
]
State = Annotated[
    str | None,
    Query(
        description="`open`, `preliminary`, `corrected` or `final`; several with commas.", examples=["final"]
    ),
]
Grouping = Annotated[
    str | None,
    Query(
        description="The dimensions of the rows, with commas; `all` for the rows without dimensions.",
        examples=["region"],
    ),
]


@router.get(
    "",
    dependencies=[Depends(only_declared)],
    summary="The metrics of the app",
    response_model=models.Metrics,
    responses=models.problems(),
)
async def metrics(request: Request, caller: Asking, serving: Served) -> Response:
    """Every metric that the caller may see, with its declaration and how far it is."""
    items = await serving.catalogue.metrics(serving.access.visible_metrics(caller))
    return answer(request, {"items": items, "next": None})


@router.get(
    "/{name}/rows",
    summary="Rows of a metric",
    response_model=models.Rows,
    responses=models.problems(403, 404),
)
async def rows(
    request: Request,
    name: Name,
    caller: Asking,
    serving: Served,
    page: Paged,
    start: From = None,
    end: To = None,
    state: State = None,
    grouping: Grouping = None,
    as_of: Annotated[
        str | None,
        Query(
            description="A revision number, or a time: each row as it was published then.",
            examples=["2026-03-01T09:05:00Z"],
        ),
    ] = None,
    order: Annotated[
        str,
        Query(
            pattern="^-?window_start$",
            description="`-` puts the newest windows first.",
            examples=["-window_start"],
        ),
    ] = "-window_start",
) -> Response:
    """Rows by window. A dimension's name is a parameter too: `region=almaty`."""
    metric = visible_metric(serving, caller, name)
    wanted = wanted_rows(request, metric, start, end, state, grouping)
    newest_first = order.startswith("-")
    if as_of is not None:
        moment = parse_moment(as_of)
        found = await serving.versions.as_of(metric, wanted, page, moment, newest_first=newest_first)
    else:
        found = await serving.rows.range(metric, wanted, page, newest_first=newest_first)
    return answer(request, found)


@router.get(
    "/{name}/latest",
    summary="The newest window of a metric",
    response_model=models.Latest,
    responses=models.problems(403, 404),
)
async def latest(
    request: Request,
    name: Name,
    caller: Asking,
    serving: Served,
    page: Paged,
    state: State = None,
    grouping: Grouping = None,
    order: Annotated[
        str,
        Query(
            max_length=80,
            description="A column of `values`, or `events`; with `-` the largest first.",
            examples=["-events"],
        ),
    ] = "",
) -> Response:
    """The rows of the newest window that has any, after the filters. Dimensions are parameters too."""
    metric = visible_metric(serving, caller, name)
    wanted = wanted_rows(request, metric, None, None, state, grouping)
    table = await serving.tables.table(metric)
    known = ("events", "late_events", *metric.visible)
    if order and (order.removeprefix("-") not in known):
        raise wrong("order", "rows cannot be ordered by this", known_names(order.removeprefix("-"), known))
    by = order if order.removeprefix("-") in ("events", "late_events", *table.types) else ""
    return answer(request, await serving.rows.latest(metric, wanted, page, by))


@router.get(
    "/{name}/revisions",
    summary="What was published, and when it changed",
    response_model=models.Revisions,
    responses=models.problems(403, 404),
)
async def revisions(
    request: Request,
    name: Name,
    caller: Asking,
    serving: Served,
    page: Paged,
    window_start: Annotated[
        str | None, Query(description="Only this window.", examples=["2026-03-01T09:00:00Z"])
    ] = None,
    start: From = None,
    end: To = None,
    state: State = None,
    grouping: Grouping = None,
) -> Response:
    """Every published revision of the rows, newest windows first. Dimensions are parameters too."""
    metric = visible_metric(serving, caller, name)
    wanted = wanted_rows(request, metric, start, end, state, grouping)
    only = parse_time("window_start", window_start)
    if only is not None:
        if wanted.start or wanted.end:
            raise wrong("window_start", "give either 'window_start' or 'from' and 'to'")
        wanted = Wanted(only, only + SECOND, wanted.states, wanted.grouping, wanted.labels)
    return answer(request, await serving.versions.revisions(metric, wanted, page))


def visible_metric(serving: Serving, caller: Caller, name: str) -> Metric:
    """Raises a problem for one that does not exist, or that the caller may not see."""
    declared = serving.loaded.app.metrics
    if name not in declared:
        seen = [metric.name for metric in serving.access.visible_metrics(caller)]
        raise Problem(404, f"no metric '{name[:80]}'", hint=known_names(name[:80], seen) if seen else "")
    metric = declared[name]
    if not serving.access.sees_metric(caller, metric):
        raise serving.access.refusal(metric.of)
    return metric


def wanted_rows(
    request: Request,
    metric: Metric,
    start: str | None,
    end: str | None,
    state: str | None,
    grouping: str | None,
) -> Wanted:
    known_parameters(request, metric.dimensions)
    labels = {name: request.query_params[name] for name in metric.dimensions if name in request.query_params}
    return Wanted(
        parse_time("from", start),
        parse_time("to", end),
        wanted_states(state),
        _grouping(metric, grouping),
        labels,
    )


def parse_moment(text: str) -> datetime | int:
    if text.isascii() and text.isdigit():
        if len(text) > 9:
            raise wrong("as_of", "there is no revision with such a number")
        return int(text)
    moment = parse_time("as_of", text)
    assert moment is not None
    return moment


def wanted_states(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    states = tuple(text.split(","))
    for state in states:
        if state not in STATES:
            raise wrong("state", "there is no such state", known_names(state[:80], STATES))
    return states


def _grouping(metric: Metric, text: str | None) -> str | None:
    if text is None:
        return None
    asked = set() if text in ("", TOTAL) else set(text.split(","))
    for grouping, name in zip(metric.groupings, grouping_names(metric), strict=True):
        if asked == set(grouping):
            return name
    raise wrong(
        "grouping", f"{metric.name} has no such grouping", f"there are: {'; '.join(grouping_names(metric))}"
    )
