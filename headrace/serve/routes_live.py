"""GET /live: changed rows, the pipeline and alerts as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.errors import known_names
from headrace.metrics import Metric
from headrace.serve import models
from headrace.serve.access import Asking, Caller
from headrace.serve.alerts import alerts_of
from headrace.serve.live_client import TOO_MANY, Client, in_chunks, parcel_of
from headrace.serve.live_feeds import Position, metric_key, spoken
from headrace.serve.metric_tables import grouping_names
from headrace.serve.parameters import decode_cursor, only_declared
from headrace.serve.problems import Problem, wrong
from headrace.serve.routes_metrics import Served, visible_metric
from headrace.serve.serving import Serving

SEND_SECONDS = 30.0
TOPICS = ("metrics", "pipeline", "alerts")
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"connection", b"close"),
]

LAST_ID = "eyJjb252ZXJzaW9uXzFtIjpbMTc3MjM1NTYwMDAwMDAwMCwxNzcyMzU1NTQwMDAwMDAwXX0"
STREAM = {
    "type": "string",
    "example": 'id: eyJj…\nevent: row\ndata: {"metric": "conversion_1m", "state": "open", …}\n\n',
}

router = APIRouter(tags=["live"])


async def in_turn(serving: Served) -> None:
    await serving.hub.turn()


@router.get(
    "/live",
    dependencies=[Depends(in_turn), Depends(only_declared)],
    summary="Follow changes as they are committed",
    response_class=Response,
    responses={
        200: {"description": "Events without end.", "content": {"text/event-stream": {"schema": STREAM}}},
        **{status: told for status, told in models.problems(403, 404).items() if status != 304},
    },
)
async def live(
    caller: Asking,
    serving: Served,
    metrics: Annotated[
        str | None,
        Query(
            description="Metrics, with commas; all if left out. After a colon one grouping of a metric, its"
            " dimensions with dots, or `all` for the rows without dimensions; without it all groupings.",
            examples=["conversion_1m:region,visitors_5m:all,revenue_10m"],
        ),
    ] = None,
    topics: Annotated[
        str, Query(description="`metrics`, `pipeline`, `alerts`, with commas.", examples=["metrics"])
    ] = "metrics",
    cursor: Annotated[
        str | None,
        Query(
            max_length=8000,
            description="As `Last-Event-ID`, for clients without headers.",
            examples=[LAST_ID],
        ),
    ] = None,
    last_event_id: Annotated[
        str | None,
        Header(max_length=8000, description="The last `id` that came, to go on there.", examples=[LAST_ID]),
    ] = None,
) -> Response:
    """Server-sent events: `ready`, `row`, `pipeline`, `alert`, `skipped`, `reset` and, every 15 s, `ping`.

    Where more than 1,000 rows change at once, or the client is slow, `skipped` names what was left out: fetch
    it anew; the stream goes on. A client that comes back with the last `id` gets everything it has missed, or
    is told `skipped`; a `reset` says that what was missed is not known: fetch all anew.
    """
    asked = topics.split(",")
    for topic in asked:
        if topic not in TOPICS:
            raise wrong("topics", "there is no such topic", known_names(topic[:80], TOPICS))
    followed = _followed(serving, caller, metrics)
    feeds = [metric_key(name, grouping) for name, grouping in followed] if "metrics" in asked else []
    if "alerts" in asked:
        patterns = serving.access.visible_patterns(caller) if metrics is None else []
        feeds += dict.fromkeys(alerts_of(name) for name, _ in followed)
        feeds += [alerts_of(p.name, ids=serving.access.sees_ids(caller, p.of)) for p in patterns]
    client = await serving.hub.join(feeds, pipeline="pipeline" in asked)
    return EventStream(serving, client, last_event_id or cursor)


def _followed(serving: Serving, caller: Caller, metrics: str | None) -> list[tuple[str, str | None]]:
    """Metrics, each with one of its groupings or with None for all of them."""
    if metrics is None:
        return [(metric.name, None) for metric in serving.access.visible_metrics(caller)]
    asked: dict[tuple[str, str | None], None] = {}
    for one in metrics.split(","):
        name, colon, text = one.partition(":")
        metric = visible_metric(serving, caller, name)
        asked[metric.name, _grouping(metric, text) if colon else None] = None
    # Who follows all groupings would get the rows of a single one twice.
    return [(name, grouping) for name, grouping in asked if grouping is None or (name, None) not in asked]


def _grouping(metric: Metric, text: str) -> str:
    for name in grouping_names(metric):
        if sorted(text.split(".")) == sorted(spoken(name).split(".")):
            return name
    known = [spoken(name) for name in grouping_names(metric)]
    raise wrong("metrics", f"{metric.name} has no such grouping", known_names(text[:80], known))


class EventStream(Response):
    """Writes events until the client goes away, takes nothing any more, or the server stops."""

    def __init__(self, serving: Serving, client: Client, cursor: str | None) -> None:
        super().__init__()
        self._hub, self._client, self._cursor = serving.hub, client, cursor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writing = asyncio.create_task(self._write(send))
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({writing, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._hub.leave(self._client)
            for task in (writing, gone):
                task.cancel()
                with suppress(asyncio.CancelledError, TimeoutError):
                    await task

    async def _write(self, send: Send) -> None:
        async with asyncio.timeout(SEND_SECONDS):
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        async for chunk in self._events():
            # A client that takes nothing for so long is gone, whatever its connection says.
            async with asyncio.timeout(SEND_SECONDS):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncIterator[bytes]:
        if self._cursor is not None:
            async for event in self._caught_up(self._cursor):
                yield event
        yield self._client.ready()
        async for event in self._client.events():
            yield event

    async def _caught_up(self, cursor: str) -> AsyncIterator[bytes]:
        """What an earlier connection has not seen. Until a feed is done, the ids keep its old position."""
        seen = _positions(cursor)
        missed = None if seen is None else await self._hub.missed(self._client, seen)
        if missed is None:
            yield self._client.reset("what was missed cannot be told")
            return
        for key, changes in missed.items():
            if not changes.complete:
                self._client.skip(self._hub.feeds[key], changes.position, TOO_MANY)
            elif changes.items:
                for chunk in in_chunks(self._client.changes([parcel_of(self._hub.feeds[key], changes)])):
                    yield chunk
            else:
                self._client.positions[key] = changes.position
        for chunk in in_chunks(self._client.skipped()):
            yield chunk


def _positions(cursor: str) -> dict[str, Position] | None:
    try:
        plain = decode_cursor(cursor)
    except Problem:
        return None
    if not isinstance(plain, dict):
        return None
    found = {str(key): Position.of(value) for key, value in plain.items()}
    return None if None in found.values() else {k: p for k, p in found.items() if p is not None}


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
