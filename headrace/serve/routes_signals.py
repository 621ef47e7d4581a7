"""Routes about signals and enrichment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from headrace.errors import known_names
from headrace.serve import flow_models, models
from headrace.serve.access import Asking, Caller
from headrace.serve.answers import answer
from headrace.serve.parameters import only_declared, parse_time
from headrace.serve.problems import Problem, wrong
from headrace.serve.routes_metrics import Paged, Served
from headrace.serve.serving import Serving
from headrace.signals import ALLOW, Signals

USUAL_SPAN = timedelta(hours=24)

router = APIRouter(prefix="/api/v1", tags=["signals"], dependencies=[Depends(only_declared)])
Since = Annotated[
    str | None,
    Query(alias="from", description="Events of this time or later.", examples=["2026-03-01T09:00:00Z"]),
]
Until = Annotated[
    str | None, Query(alias="to", description="Events before this time.", examples=["2026-03-01T10:00:00Z"])
]
Name = Annotated[str, Path(max_length=80, description="A set of signals.", examples=["fraud"])]
EventId = Annotated[str, Path(max_length=1000, examples=["01J8ZQ7A0C4D9TZV5E2H8N6RKP"])]


@router.get(
    "/signals",
    summary="The signals of the app",
    response_model=flow_models.SignalSets,
    responses=models.problems(),
)
async def signal_sets(request: Request, caller: Asking, serving: Served) -> Response:
    """What is scored, by what, and how many decisions of each kind there have been."""
    sets = serving.loaded.app.signal_sets.values()
    seen = [each for each in sets if serving.access.sees_stream(caller, each.of)]
    return answer(request, {"items": await serving.signals.declared(seen), "next": None})


@router.get(
    "/signals/{name}",
    summary="Scored events, newest first",
    response_model=flow_models.SignalRows,
    responses=models.problems(403, 404),
)
async def signals(
    request: Request,
    name: Name,
    caller: Asking,
    serving: Served,
    page: Paged,
    key: Annotated[
        str | None, Query(max_length=200, description="Only events of this key.", examples=["9c1e"])
    ] = None,
    decision: Annotated[
        str | None, Query(max_length=80, description="Only with this decision.", examples=["block"])
    ] = None,
    since: Since = None,
    until: Until = None,
) -> Response:
    """Each with its features, its score and what was decided."""
    mine = _visible(serving, caller, name)
    known = [ALLOW, *(d for d, _ in mine.decisions)]
    if decision is not None and decision not in known:
        raise wrong("decision", "there is no such decision", known_names(decision, known))
    found = await serving.signals.page(
        mine,
        page,
        key=key,
        decision=decision,
        since=parse_time("from", since),
        until=parse_time("to", until),
    )
    return answer(request, found)


@router.get(
    "/signals/{name}/events/{event_id}",
    summary="One scored event",
    response_model=flow_models.SignalRow,
    responses=models.problems(403, 404),
)
async def signal(
    request: Request,
    name: Name,
    event_id: EventId,
    caller: Asking,
    serving: Served,
) -> Response:
    """By the id of the event."""
    mine = _visible(serving, caller, name)
    found = await serving.signals.one(mine, event_id) if "\0" not in event_id else None
    if found is None:
        raise Problem(404, f"'{name}' has no event '{event_id[:80]}'", hint="it may be beyond its retention")
    return answer(request, found)


@router.get(
    "/signals/{name}/activity",
    summary="Suspicious activity",
    response_model=flow_models.Activity,
    responses=models.problems(403, 404),
)
async def activity(request: Request, name: Name, caller: Asking, serving: Served, page: Paged) -> Response:
    """How many events of each were not simply allowed, the most first."""
    return answer(request, await serving.signals.activity(_visible(serving, caller, name), page))


@router.get(
    "/signals/{name}/comparison",
    summary="The shadow beside the live scorer",
    response_model=flow_models.Comparison,
    responses=models.problems(403, 404),
)
async def comparison(
    request: Request, name: Name, caller: Asking, serving: Served, since: Since = None
) -> Response:
    """By pair of decisions, of the last 24 hours if no time is given; `agreement` is the share of equals."""
    mine = _visible(serving, caller, name)
    begin = parse_time("from", since) or datetime.now(UTC).replace(microsecond=0) - USUAL_SPAN
    items = await serving.signals.comparison(mine, begin)
    total = sum(item["events"] for item in items)
    agreed = sum(item["events"] for item in items if item["decision"] == item["shadow_decision"])
    agreement = agreed / total if total else None
    return answer(request, {"items": items, "events": total, "agreement": agreement, "from": begin})


@router.get(
    "/enrichments",
    summary="Enriched streams and their tables",
    response_model=flow_models.Enrichments,
    responses=models.problems(),
)
async def enrichments(request: Request, caller: Asking, serving: Served) -> Response:
    """How often the tables knew the events' keys, and when each table was read."""
    seen = [e for e in serving.loaded.app.enrichments.values() if serving.access.sees_stream(caller, e.of)]
    return answer(request, {"items": await serving.signals.enrichments(seen), "next": None})


def _visible(serving: Serving, caller: Caller, name: str) -> Signals:
    known = serving.loaded.app.signal_sets
    if name not in known:
        raise Problem(404, f"no signals '{name[:80]}'", hint=known_names(name[:80], known) if known else "")
    mine = known[name]
    if not serving.access.sees_fields(caller, mine.of):
        raise serving.access.refusal(mine.of)
    return mine
