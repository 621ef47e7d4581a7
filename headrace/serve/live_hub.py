"""The hub of /live: one LISTEN connection, one look at each changed metric, and a copy for every client."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace

import psycopg

from headrace.connections import query_name
from headrace.errors import ServiceError
from headrace.ops.load import LoadedApp
from headrace.serve.alerts import AlertFeed, alerts_of
from headrace.serve.database import Database
from headrace.serve.live_client import TOO_MANY, Client, event_of, parcel_of
from headrace.serve.live_feeds import Changes, Feed, MetricFeed, Position
from headrace.serve.metric_tables import MetricTables, grouping_names
from headrace.serve.pipeline import PipelineFeed
from headrace.serve.problems import Problem, unavailable
from headrace.store.changes import CHANNEL

logger = logging.getLogger(__name__)

CLIENTS = 500
CATCHING_UP = 4
AT_ONCE, BREATH_SECONDS = 8, 0.002
PIPELINE_SECONDS = 1.0
QUIET_SECONDS = 5.0  # the lag moves without commits too
LOST_SECONDS = 20.0  # a connection that is silent for so long is asked whether it lives


class Hub:
    """Reads only what somebody follows. `start` and `stop` once; `join` and `leave` for each client."""

    def __init__(
        self,
        loaded: LoadedApp,
        store_url: str,
        database: Database,
        tables: MetricTables,
        pipeline: PipelineFeed,
    ) -> None:
        self._url, self._pipeline = store_url, pipeline
        self._sources = {query_name(loaded.name, stream): stream for stream in loaded.contracts}
        metrics = (
            MetricFeed(loaded.name, metric, grouping, database, tables)
            for metric in loaded.app.metrics.values()
            for grouping in (None, *grouping_names(metric))
        )
        self.feeds: dict[str, Feed] = {feed.key: feed for feed in metrics}
        raising = {metric.name: metric.of for metric in loaded.app.metrics.values()}
        raising |= {pattern.name: pattern.of for pattern in loaded.app.patterns.values()}
        self.feeds |= {
            alerts_of(name): AlertFeed(loaded.name, name, source, database)
            for name, source in raising.items()
        }
        self.feeds |= {
            alerts_of(pattern.name, ids=False): AlertFeed(
                loaded.name, pattern.name, pattern.of, database, ids=False
            )
            for pattern in loaded.app.patterns.values()
        }
        self._positions: dict[str, Position] = {}
        self._clients: set[Client] = set()
        self._changed: set[str] = set()
        self._awake, self._committed = asyncio.Event(), asyncio.Event()
        self._catching_up = asyncio.Semaphore(CATCHING_UP)
        self._reading, self._door = asyncio.Lock(), asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self.listening = False

    @property
    def clients(self) -> int:
        return len(self._clients)

    def start(self) -> None:
        loops = (self._listen, self._read, self._show_pipeline)
        self._tasks = [asyncio.create_task(self._for_ever(loop)) for loop in loops]

    def close_clients(self) -> None:
        for client in self._clients:
            client.close()

    async def stop(self) -> None:
        self.close_clients()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def turn(self) -> None:
        """After a restart all come back at once: one by one, they do not hold up those who ask something."""
        async with self._door:
            await asyncio.sleep(BREATH_SECONDS)

    async def join(self, feeds: Collection[str], *, pipeline: bool) -> Client:
        """From now on the client is told of every change; its positions say what it has not seen."""
        if len(self._clients) >= CLIENTS:
            raise unavailable(f"{CLIENTS} clients are connected already", "try again later")
        async with self._reading:
            for key in feeds:
                if key not in self._positions:
                    self._positions[key] = await self.feeds[key].newest()
            client = Client({key: self._positions[key] for key in feeds}, pipeline=pipeline)
            self._clients.add(client)
        self._committed.set()
        return client

    def leave(self, client: Client) -> None:
        self._clients.discard(client)
        followed = {key for other in self._clients for key in other.positions}
        for key in [key for key in self._positions if key not in followed]:
            del self._positions[key]

    async def missed(self, client: Client, seen: Mapping[str, Position]) -> dict[str, Changes] | None:
        """What changed since the positions of an earlier connection; None if that cannot be told.

        The client goes back to these positions; what the hub hands to it meanwhile is sent afterwards. A feed
        with too many changes goes on where the client has joined: fetching it anew gives all that was before.
        """
        mine = {key: position for key, position in seen.items() if key in client.positions}
        if any(position.at > client.positions[key].at for key, position in mine.items()):
            return None
        found: dict[str, Changes] = {}
        try:
            async with self._catching_up:
                for key, position in mine.items():
                    found[key] = await self.feeds[key].since(position)
        except Problem:
            return None
        for key, changes in found.items():
            if not changes.complete and changes.position.at < client.positions[key].at:
                found[key] = replace(changes, position=client.positions[key])
        client.positions.update(mine)
        return found

    async def _for_ever(self, loop: Callable[[], Awaitable[None]]) -> None:
        """A defect in a loop must not leave those who follow without news for good."""
        while True:
            try:
                await loop()
            except Exception as error:
                logger.exception("following changes: %s", type(error).__name__, exc_info=False)
                await asyncio.sleep(0.5)
                self._note(self._sources.values())

    async def _listen(self) -> None:
        pause = 0.1
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._url, autocommit=True, connect_timeout=5, application_name="headrace-live"
                ) as connection:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    self.listening, pause = True, 0.1
                    # Whatever was announced while nobody listened.
                    self._note(self._sources.values())
                    await self._hear(connection)
            except (psycopg.Error, OSError) as error:
                logger.warning("the store does not announce commits: %s", type(error).__name__)
            finally:
                self.listening = False
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)

    async def _hear(self, connection: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        while True:
            async for notice in connection.notifies(timeout=LOST_SECONDS):
                with suppress(ValueError, AttributeError, TypeError):
                    stream = self._sources.get(json.loads(notice.payload).get("query"))
                    if stream is not None:
                        self._note([stream])
            await connection.execute("SELECT 1")

    def _note(self, streams: Collection[str]) -> None:
        self._changed.update(streams)
        self._awake.set()
        self._committed.set()

    async def _read(self) -> None:
        while True:
            await self._awake.wait()
            self._awake.clear()
            changed, self._changed = self._changed, set()
            try:
                async with self._reading:
                    await self._spread([k for k in self._positions if self.feeds[k].source in changed])
            except Problem as problem:
                # The store is away or busy: nothing is lost, since a position moves with what was found.
                logger.warning("changes cannot be read: %s", problem.detail)
                await asyncio.sleep(0.5)
                self._note(changed)

    async def _spread(self, keys: list[str]) -> None:
        """All that a commit changed is handed over at once, so that each client needs few writes for it.

        A look that fails keeps back nothing of the others, and is raised when they are handed over.
        """
        parcels, skipped, failed = [], [], None
        for key in keys:
            try:
                changes = await self._look(key)
            except Exception as error:
                failed = error
                continue
            if changes is not None and not changes.complete:
                skipped.append((self.feeds[key], changes.position))
            elif changes is not None and changes.items:
                parcels.append(parcel_of(self.feeds[key], changes))
        if parcels or skipped:
            async for client in self._in_turn():
                for feed, position in skipped:
                    client.skip(feed, position, TOO_MANY)
                for parcel in parcels:
                    client.push(parcel)
        if failed is not None:
            raise failed

    async def _look(self, key: str) -> Changes | None:
        """None if nobody follows it any more: they may leave at any moment, before the look and during it."""
        position = self._positions.get(key)
        if position is None:
            return None
        changes = await self.feeds[key].since(position)
        if key not in self._positions:
            return None
        self._positions[key] = changes.position
        return changes

    async def _in_turn(self) -> AsyncIterator[Client]:
        """Two hundred writes in a row would keep everybody waiting who asks something else."""
        for number, client in enumerate(list(self._clients)):
            yield client
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(BREATH_SECONDS)

    async def _show_pipeline(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._committed.wait(), QUIET_SECONDS)
            self._committed.clear()
            if any(client.wants_pipeline for client in self._clients):
                try:
                    event = event_of("pipeline", await self._pipeline.now())
                    async for client in self._in_turn():
                        client.push_pipeline(event)
                except ServiceError as error:
                    logger.warning("the pipeline cannot be read: %s", error.what)
            await asyncio.sleep(PIPELINE_SECONDS)
