"""One client of /live: what waits to be sent to it, with a limit, and the position it has reached."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headrace.serve.answers import to_json
from headrace.serve.live_feeds import Changes, Position
from headrace.serve.parameters import encode_cursor

PING_SECONDS = 15.0
WAITING_BYTES = 4 * 1024 * 1024
CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True)
class Parcel:
    """Changes of one feed, made once and shared by all clients. The last event gets the client's own id."""

    feed: str
    position: Position
    events: bytes
    last: bytes

    @property
    def size(self) -> int:
        return len(self.events) + len(self.last)


def parcel_of(feed: str, event: str, changes: Changes) -> Parcel:
    head = f"event: {event}\ndata: ".encode()
    events = [head + item + b"\n\n" for item in changes.items]
    return Parcel(feed, changes.position, b"".join(events[:-1]), events[-1])


class Client:
    """Filled by the hub, emptied by the connection. A client that is too slow is told to begin anew."""

    def __init__(self, feeds: Mapping[str, Position], *, pipeline: bool) -> None:
        self.positions = dict(feeds)
        self.wants_pipeline = pipeline
        self.too_slow = False
        self._parcels: deque[Parcel] = deque()
        self._bytes = 0
        self._pipeline: bytes | None = None
        self._awake = asyncio.Event()
        self._closed = False

    @property
    def waiting_bytes(self) -> int:
        return self._bytes

    def push(self, parcel: Parcel) -> None:
        if self.too_slow or parcel.feed not in self.positions:
            return
        if self._bytes + parcel.size > WAITING_BYTES and self._parcels:
            self.too_slow = True
            self._parcels.clear()
            self._bytes = 0
        else:
            self._parcels.append(parcel)
            self._bytes += parcel.size
        self._awake.set()

    def lose(self, feed: str, position: Position) -> None:
        """So much changed at once that fetching anew is cheaper."""
        if feed in self.positions:
            self.positions[feed] = position
            self.too_slow = True
            self._awake.set()

    def push_pipeline(self, event: bytes) -> None:
        """Only the newest picture matters: it takes the place of one that was not sent."""
        if self.wants_pipeline:
            self._pipeline = event
            self._awake.set()

    def close(self) -> None:
        self._closed = True
        self._awake.set()

    def cursor(self) -> str:
        return encode_cursor({key: position.plain() for key, position in sorted(self.positions.items())})

    async def events(self) -> AsyncIterator[bytes]:
        """What to write to the connection, until the client is too slow or the server stops."""
        ping_at = time.monotonic() + PING_SECONDS
        while not self._closed:
            if self.too_slow:
                yield self.reset("too slow: events were left out")
                return
            if self._parcels:
                for chunk in _in_chunks(self.text(self._taken())):
                    yield chunk
            elif self._pipeline is not None:
                event, self._pipeline = self._pipeline, None
                yield event
            elif time.monotonic() >= ping_at:
                ping_at = time.monotonic() + PING_SECONDS
                yield event_of("ping", {"at": datetime.now(UTC)})
            else:
                self._awake.clear()
                await _set_within(self._awake, ping_at - time.monotonic())

    def text(self, parcels: Iterable[Parcel]) -> bytes:
        """The events of parcels, with one id at the end.

        What is older than something that was sent already is left out: a row must not seem to go back.
        """
        parts: list[bytes] = []
        for parcel in parcels:
            if parcel.position.at > self.positions[parcel.feed].at:
                self.positions[parcel.feed] = parcel.position
                parts += [parcel.events, parcel.last]
        if parts:
            parts.insert(-1, f"id: {self.cursor()}\n".encode())
        return b"".join(parts)

    def _taken(self) -> list[Parcel]:
        """A few at once: a write costs more than what is in it."""
        taken: list[Parcel] = []
        size = 0
        while self._parcels and size < CHUNK_BYTES:
            taken.append(self._parcels.popleft())
            size += taken[-1].size
        self._bytes -= size
        return taken

    def ready(self) -> bytes:
        return f"retry: 1000\nid: {self.cursor()}\n".encode() + event_of("ready", {"at": datetime.now(UTC)})

    def reset(self, why: str) -> bytes:
        return f"id: {self.cursor()}\n".encode() + event_of("reset", {"why": why})


def event_of(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: ".encode() + to_json(data) + b"\n\n"


def _in_chunks(text: bytes) -> Iterator[bytes]:
    """So much at a time that a slow connection holds little of it."""
    return (text[n : n + CHUNK_BYTES] for n in range(0, len(text), CHUNK_BYTES))


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
