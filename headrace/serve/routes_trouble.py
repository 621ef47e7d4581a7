"""Routes about what did not go well: dead letters, late events, alerts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from headrace.errors import known_names
from headrace.log.tail import Place
from headrace.metrics import Metric
from headrace.serve import flow_models, models, trouble_models
from headrace.serve.access import Asking, Caller
from headrace.serve.answers import answer
from headrace.serve.dead_letter_shape import reasons_of, shown
from headrace.serve.parameters import Page, only_declared, parse_time
from headrace.serve.problems import Problem, wrong
from headrace.serve.routes_metrics import Name, Paged, Served, visible_metric
from headrace.serve.serving import Serving

USUAL_SPAN = timedelta(hours=24)

router = APIRouter(prefix="/api/v1", tags=["trouble"], dependencies=[Depends(only_declared)])
Since = Annotated[
    str | None,
    Query(
        alias="from",
        description="A time; 24 hours before `to` if left out.",
        examples=["2026-03-01T09:00:00Z"],
    ),
]
Until = Annotated[
    str | None,
    Query(alias="to", description="A time, exclusive; now if left out.", examples=["2026-03-02T09:00:00Z"]),
]
OfMetric = Annotated[str | None, Query(description="Only this metric.", examples=["conversion_1m"])]
OfSource = Annotated[str | None, Query(description="Only this source.", examples=["clickstream"])]
Number = Annotated[int, Path(ge=0, lt=2**63, examples=[0])]
Source = Annotated[str, Path(examples=["clickstream"])]


@router.get(
    "/late-events",
    summary="Events that missed a window",
    response_model=models.LateEvents,
    responses=models.problems(403),
)
async def late_events(
    request: Request,
    caller: Asking,
    serving: Served,
    page: Paged,
    metric: OfMetric = None,
    source: OfSource = None,
) -> Response:
    """Newest first: which window, how late, by which clock."""
    metrics = [m.name for m in _metrics(serving, caller, metric, source)]
    return answer(request, await serving.late_events.page(caller, metrics, page))


@router.get(
    "/metrics/{name}/late-events",
    summary="Events that missed a window of this metric",
    response_model=models.LateEvents,
    responses=models.problems(403, 404),
)
async def late_events_of_metric(
    request: Request, name: Name, caller: Asking, serving: Served, page: Paged
) -> Response:
    metric = visible_metric(serving, caller, name)
    return answer(request, await serving.late_events.page(caller, [metric.name], page))


@router.get(
    "/late-events/delays",
    summary="How late late events are",
    response_model=models.Delays,
    responses=models.problems(403),
)
async def delays(
    request: Request,
    caller: Asking,
    serving: Served,
    metric: OfMetric = None,
    source: OfSource = None,
    since: Since = None,
    until: Until = None,
) -> Response:
    """Counts by how far the clock had passed the end of the window and `final_after`."""
    metrics = [m.name for m in _metrics(serving, caller, metric, source)]
    begin, end = _span(since, until)
    items = await serving.late_events.delays(metrics, begin, end)
    return answer(request, {"items": items, "from": begin, "to": end})


@router.get(
    "/dead-letters",
    summary="Rejected records, newest first",
    response_model=trouble_models.DeadLetters,
    responses=models.problems(403),
)
async def dead_letters(
    request: Request,
    caller: Asking,
    serving: Served,
    page: Paged,
    source: OfSource = None,
    reason: Annotated[
        str | None, Query(max_length=80, description="Only with this reason code.", examples=["missing"])
    ] = None,
) -> Response:
    """Reads a bounded part of the invalid topics: `scanned` tells how many records were looked at.

    A page may be short, or empty, and have a `next`: go on until it is null.
    """
    streams = _streams(serving, caller, source)
    wanted = page.limit if reason is None else None
    scan = await serving.dead_letters.newest(streams, _below(serving, streams, page), wanted)
    items: list[dict[str, Any]] = []
    taken = 0
    for record in scan.records:
        if len(items) == page.limit:
            break
        taken += 1
        if reason is None or any(found["code"] == reason for found in reasons_of(record)):
            contract = serving.dead_letters.contract_of(record)
            sees = serving.access.sees_fields(caller, contract.name)
            items.append(shown(record, contract, everything=sees))
    following = None
    if taken < len(scan.records) or not scan.whole:
        below = [[*place, offset] for place, offset in sorted(scan.below(taken).items())]
        following = page.next(below)
    return answer(request, {"items": items, "next": following, "scanned": taken})


@router.get(
    "/dead-letters/histogram",
    summary="Rejected records by reason, producer or contract version",
    response_model=trouble_models.Histogram,
    responses=models.problems(403),
)
async def histogram(
    request: Request,
    caller: Asking,
    serving: Served,
    by: Annotated[
        Literal["reason", "producer", "contract_version"],
        Query(description="What to count by.", examples=["reason"]),
    ] = "reason",
    source: OfSource = None,
    since: Since = None,
    until: Until = None,
) -> Response:
    """By reason from the ledger, complete for the span of time; else of the newest records only."""
    streams = _streams(serving, caller, source)
    if by == "reason":
        begin, end = _span(since, until)
        items = await serving.dead_letters.by_reason(streams, begin, end)
        total = sum(item["count"] for item in items)
        span: dict[str, Any] = {"from": begin, "to": end}
        return answer(request, {"items": items, "records": total, "partial": False, **span})
    if since is not None or until is not None:
        raise wrong("from", "a span of time is possible only with by=reason")
    scan = await serving.dead_letters.newest(streams, {})
    sees = [stream for stream in streams if serving.access.sees_fields(caller, stream)]
    items = serving.dead_letters.by_part(scan, by, sees)
    return answer(request, {"items": items, "records": len(scan.records), "partial": not scan.whole})


@router.get(
    "/dead-letters/{source}/{partition}/{offset}",
    summary="One rejected record",
    response_model=trouble_models.DeadLetter,
    responses=models.problems(403, 404),
)
async def dead_letter(
    request: Request, source: Source, partition: Number, offset: Number, caller: Asking, serving: Served
) -> Response:
    """By its place in the invalid topic."""
    [stream] = _streams(serving, caller, source, missing=404)
    contract = serving.loaded.contract(stream)
    record = await serving.dead_letters.one(contract, partition, offset)
    if record is None:
        raise Problem(
            404,
            f"{contract.topics.invalid} has no record at {partition}/{offset}",
            hint="it may have left the log, or be the end of a transaction",
        )
    return answer(request, shown(record, contract, everything=serving.access.sees_fields(caller, stream)))


@router.get(
    "/alerts", summary="Alerts, newest first", response_model=flow_models.Alerts, responses=models.problems()
)
async def alerts(
    request: Request,
    caller: Asking,
    serving: Served,
    page: Paged,
    state: Annotated[
        Literal["open", "resolved"] | None, Query(description="Only in this state.", examples=["open"])
    ] = None,
    alert: Annotated[
        str | None, Query(max_length=200, description="Only of this name.", examples=["low_conversion"])
    ] = None,
) -> Response:
    """What the app's declared thresholds and patterns have found; of a pattern, `metric` is its own name."""
    patterns = serving.access.visible_patterns(caller)
    names = [metric.name for metric in serving.access.visible_metrics(caller)]
    names += [pattern.name for pattern in patterns]
    unnamed = {pattern.name for pattern in patterns if not serving.access.sees_ids(caller, pattern.of)}
    return answer(request, await serving.alerts.page(names, state, alert, page, unnamed))


def _metrics(serving: Serving, caller: Caller, metric: str | None, source: str | None) -> list[Metric]:
    if metric is not None:
        seen = serving.access.visible_metrics(caller)
        if metric not in serving.loaded.app.metrics:
            raise wrong("metric", "there is no such metric", known_names(metric[:80], [m.name for m in seen]))
        found = [visible_metric(serving, caller, metric)]
    else:
        found = serving.access.visible_metrics(caller)
    if source is None:
        return found
    [stream] = _streams(serving, caller, source)
    return [m for m in found if m.of == stream]


def _streams(serving: Serving, caller: Caller, source: str | None, missing: int = 422) -> list[str]:
    known = sorted(serving.loaded.contracts)
    if source is None:
        return [stream for stream in known if serving.access.sees_stream(caller, stream)]
    if source not in known:
        hint = known_names(source[:80], known)
        raise Problem(missing, f"no source '{source[:80]}'", parameter="source", hint=hint)
    if not serving.access.sees_stream(caller, source):
        raise serving.access.refusal(source)
    return [source]


def _span(since: str | None, until: str | None) -> tuple[datetime, datetime]:
    # To the second, so that many who ask at once ask the same.
    end = parse_time("to", until) or datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    return parse_time("from", since) or end - USUAL_SPAN, end


def _below(serving: Serving, streams: list[str], page: Page) -> dict[Place, int]:
    given = page.after([list])
    if given is None:
        return {}
    topics = {serving.loaded.contract(stream).topics.invalid for stream in streams}
    found = {}
    for place in given[0]:
        match place:
            case [str(topic), int(partition), int(offset)] if topic in topics and 0 <= offset < 2**63:
                found[topic, partition] = offset
            case _:
                raise wrong("cursor", "this is no cursor", "pass `next` on as it is")
    return found
