"""Dead letters, read from the invalid topics: newest first, and never more than a bounded part of them."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from headrace.connections import Connections, query_name
from headrace.contracts.model import Contract
from headrace.errors import ServiceError
from headrace.log.tail import Place, Range, TailReader, TailRecord, newest_ranges
from headrace.ops.load import LoadedApp
from headrace.serve.database import Database
from headrace.serve.dead_letter_shape import contract_version, producer_of
from headrace.serve.problems import unavailable
from headrace.serve.shared import Shared

SCANNED = 2000  # offsets that one request looks at, over all partitions
MARKERS = 20  # ends of transactions, which are no records, that may lie between the wanted ones
LISTED_BYTES = 8 * 1024  # larger values are shown only one at a time
ONE_BYTES = 2 * 1024 * 1024
WAITING = 16
BROKER_SECONDS = 3.0
AWAY_SECONDS = 2.0  # a broker that has just not answered is not asked again at once
Result = TypeVar("Result")


@dataclass(frozen=True)
class Scan:
    """Records newest first. `left` are places with records that were read but not put in order."""

    records: list[TailRecord]
    ranges: Mapping[Place, Range]
    left: frozenset[Place]
    whole: bool  # nothing older exists

    def below(self, taken: int) -> dict[Place, int]:
        """Where an older part begins for somebody who has taken so many records."""
        everything = taken >= len(self.records)
        found = {
            place: first if everything and place not in self.left else end
            for place, (first, end) in self.ranges.items()
        }
        for record in self.records[:taken]:
            place = (record.topic, record.partition)
            if not everything or place in self.left:
                found[place] = record.offset
        return found


class DeadLetters:
    """One consumer in one thread; many who ask for the same share one scan."""

    def __init__(self, loaded: LoadedApp, connections: Connections, database: Database) -> None:
        self._loaded, self._database = loaded, database
        self._reader = TailReader(connections.librdkafka, BROKER_SECONDS)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dead-letters")
        self._waiting = 0
        self._away: tuple[float, ServiceError] | None = None
        self._scans: Shared[Scan] = Shared(seconds=2.0, most=16, grace=3.0)
        self._counts: Shared[list[dict[str, Any]]] = Shared(seconds=5.0, grace=5.0)

    def close(self) -> None:
        self._thread.submit(self._reader.close)
        self._thread.shutdown(wait=True)

    async def newest(
        self, streams: Collection[str], below: dict[Place, int], wanted: int | None = None
    ) -> Scan:
        """`wanted` records of each partition are enough, if it is given: the newest of all are among them."""
        places = sum(self._loaded.contract(stream).partitions for stream in streams)
        most = SCANNED if wanted is None else min(SCANNED, (wanted + MARKERS) * places)
        key = (*sorted(streams), *sorted(below.items()), most)
        scan = partial(self._scan, tuple(streams), below, most)
        return await self._scans.get(key, partial(self._do, scan))

    async def one(self, contract: Contract, partition: int, offset: int) -> TailRecord | None:
        place = (contract.topics.invalid, partition)

        def read() -> list[TailRecord]:
            ends = self._reader.ends({contract.topics.invalid: contract.partitions})
            low, high = ends.get(place, (0, 0))
            if not low <= offset < high:
                return []
            return self._reader.read({place: (offset, offset + 1)}, ONE_BYTES)

        found = await self._do(read)
        return found[0] if found else None

    async def by_reason(
        self, streams: Collection[str], since: datetime, until: datetime
    ) -> list[dict[str, Any]]:
        """From the ledger, so complete. A record with two reasons counts for both."""
        queries = sorted(query_name(self._loaded.name, stream) for stream in streams)
        return await self._counts.get((*queries, since, until), partial(self._count, queries, since, until))

    def by_part(self, scan: Scan, by: str, everything: Collection[str]) -> list[dict[str, Any]]:
        """By producer or contract version, of the records that were scanned."""
        counts: Counter[str | None] = Counter()
        for record in scan.records:
            contract = self.contract_of(record)
            if by == "producer":
                counts[producer_of(record, contract, everything=contract.name in everything)] += 1
            else:
                counts[contract_version(record)] += 1
        return [{"key": key, "count": count} for key, count in counts.most_common(1000)]

    def contract_of(self, record: TailRecord) -> Contract:
        return next(c for c in self._loaded.contracts.values() if c.topics.invalid == record.topic)

    async def _count(self, queries: list[str], since: datetime, until: datetime) -> list[dict[str, Any]]:
        return await self._database.rows_if_there(
            "SELECT reason.key AS key, sum(reason.value::bigint)::bigint AS count FROM headrace.batches b"
            " JOIN headrace.ledger l USING (query, batch_id) CROSS JOIN jsonb_each_text(l.reasons) AS reason"
            " WHERE b.query = ANY(%s) AND b.finished_at >= %s AND b.finished_at < %s AND l.rejected > 0"
            " GROUP BY 1 ORDER BY 2 DESC, 1",
            (queries, since, until),
        )

    def _scan(self, streams: tuple[str, ...], below: dict[Place, int], most: int) -> Scan:
        contracts = [self._loaded.contract(stream) for stream in streams]
        ends = self._reader.ends({c.topics.invalid: c.partitions for c in contracts})
        ranges = newest_ranges(ends, below, most)
        records = self._reader.read(ranges, LISTED_BYTES)
        cut = {place for place, (first, _) in ranges.items() if first > ends[place][0]}
        ordered, left = _newest_first(records, cut)
        return Scan(ordered, ranges, frozenset(left), whole=not cut and not left)

    def _unless_away(self, work: Callable[[], Result]) -> Result:
        if self._away and time.monotonic() < self._away[0]:
            raise self._away[1]
        try:
            return work()
        except ServiceError as error:
            self._away = (time.monotonic() + AWAY_SECONDS, error)
            raise

    async def _do(self, work: Callable[[], Result]) -> Result:
        if self._waiting >= WAITING:
            raise unavailable("too many ask for dead letters at once", "try again in a moment")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._unless_away, work)
        finally:
            self._waiting -= 1


def _newest_first(records: list[TailRecord], cut: set[Place]) -> tuple[list[TailRecord], set[Place]]:
    """Merged over the partitions by log time; within a partition the order is that of the log.

    It ends where a partition's part ends and the log goes on: its next record could be newer than the rest.
    """
    parts: dict[Place, list[TailRecord]] = {}
    for record in records:
        parts.setdefault((record.topic, record.partition), []).append(record)
    heap = [(-part[-1].log_time, place) for place, part in parts.items()]
    heapq.heapify(heap)
    ordered = []
    while heap:
        _, place = heapq.heappop(heap)
        ordered.append(parts[place].pop())
        if parts[place]:
            heapq.heappush(heap, (-parts[place][-1].log_time, place))
        elif place in cut:
            break
    return ordered, {place for place, part in parts.items() if part}
