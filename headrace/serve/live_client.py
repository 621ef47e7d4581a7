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
from headrace.serve.live_feeds import Changes, Feed, Position
from headrace.serve.parameters import encode_cursor

PING_SECONDS = 15.0
WAITING_BYTES = 4 * 1024 * 1024
CHUNK_BYTES = 64 * 1024
TOO_MANY = "too many rows at once"
SLOW = "the connection is slow"


@dataclass(frozen=True)
class Parcel:
    """Changes of one feed, made once and shared by all clients. The last event gets the client's own id."""

    feed: Feed
    position: Position
    events: bytes
    last: bytes

    @property
    def size(self) -> int:
        return len(self.events) + len(self.last)


def parcel_of(feed: Feed, changes: Changes) -> Parcel:
    head = f"event: {feed.event}\ndata: ".encode()
    events = [head + item + b"\n\n" for item in changes.items]
    return Parcel(feed, changes.position, b"".join(events[:-1]), events[-1])


@dataclass(frozen=True)
class Skip:
    """Changes of one feed up to a position that are not sent: whoever shows it has to fetch it anew."""

    feed: Feed
    position: Position
    why: str


class Client:
    """Filled by the hub, emptied by the connection. A slow one is told what it misses."""

    def __init__(self, feeds: Mapping[str, Position], *, pipeline: bool) -> None:
        self.positions = dict(sorted(feeds.items()))
        self.wants_pipeline = pipeline
        self._parcels: deque[Parcel] = deque()
        self._bytes = 0
        self._skips: dict[str, Skip] = {}
        self._pipeline: bytes | None = None
        self._awake = asyncio.Event()
        self._closed = False

    @property
    def waiting_bytes(self) -> int:
        return self._bytes

    def push(self, parcel: Parcel) -> None:
        key = parcel.feed.key
        if key not in self.positions:
            return
        while key not in self._skips and self._parcels and self._bytes + parcel.size > WAITING_BYTES:
            self.skip(self._parcels[0].feed, self._parcels[0].position, SLOW)
        if key in self._skips:
            # The client will fetch it anew, after this commit: it need not be sent.
            self.skip(parcel.feed, parcel.position, SLOW)
            return
        self._parcels.append(parcel)
        self._bytes += parcel.size
        self._awake.set()

    def skip(self, feed: Feed, position: Position, why: str) -> None:
        """All that waits of a feed is left out with it: fetching it anew gives the newest of it."""
        if feed.key not in self.positions:
            return
        left_out = [parcel for parcel in self._parcels if parcel.feed.key == feed.key]
        if left_out:
            self._parcels = deque(parcel for parcel in self._parcels if parcel.feed.key != feed.key)
            self._bytes -= sum(parcel.size for parcel in left_out)
        known = self._skips.get(feed.key)
        reached = [position, *(parcel.position for parcel in left_out), *([known.position] if known else [])]
        newest = max(reached, key=lambda position: position.at)
        self._skips[feed.key] = Skip(feed, newest, known.why if known else why)
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
        return encode_cursor({key: position.plain for key, position in self.positions.items()})

    async def events(self) -> AsyncIterator[bytes]:
        """What to write to the connection, until the server stops."""
        ping_at = time.monotonic() + PING_SECONDS
        while not self._closed:
            parts = [*self.skipped(), *self.changes(self._taken())]
            if self._pipeline is not None:
                parts.append(self._pipeline)
                self._pipeline = None
            if time.monotonic() >= ping_at:
                ping_at = time.monotonic() + PING_SECONDS
                parts.append(event_of("ping", {"at": datetime.now(UTC)}))
            if parts:
                for chunk in in_chunks(parts):
                    yield chunk
            else:
                self._awake.clear()
                await _set_within(self._awake, ping_at - time.monotonic())

    def skipped(self) -> list[bytes]:
        """The notices of what was left out, before whatever changed after it."""
        skips, self._skips = self._skips, {}
        for key, skip in skips.items():
            self.positions[key] = max(self.positions[key], skip.position, key=lambda position: position.at)
        return self._with_id(
            [event_of("skipped", {**skip.feed.subject, "why": skip.why}) for skip in skips.values()]
        )

    def changes(self, parcels: Iterable[Parcel]) -> list[bytes]:
        """The events of parcels, with one id at the end.

        What is older than something that was sent already is left out: a row must not seem to go back.
        """
        parts: list[bytes] = []
        for parcel in parcels:
            if parcel.position.at > self.positions[parcel.feed.key].at:
                self.positions[parcel.feed.key] = parcel.position
                parts += [parcel.events, parcel.last]
        return self._with_id(parts)

    def _with_id(self, parts: list[bytes]) -> list[bytes]:
        return [*parts[:-1], f"id: {self.cursor()}\n".encode(), parts[-1]] if parts else []

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


def in_chunks(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Little ones together, large ones in pieces: a slow connection holds only a piece for itself."""
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        for begin in range(0, len(part), CHUNK_BYTES):
            piece = part[begin : begin + CHUNK_BYTES]
            if size + len(piece) > CHUNK_BYTES:
                yield b"".join(waiting)
                waiting, size = [], 0
            waiting.append(piece)
            size += len(piece)
    if waiting:
        yield b"".join(waiting)


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
