"""Accepted events through an enrichment that lets them wait, batch by batch: a real store, no Spark.

A batch has a task for each partition, as the gate's has. `lost_after` ends the engine after so many tasks
have committed: another engine runs the batch again, and finds the markers of those tasks.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pyarrow as pa
from psycopg import sql

from headrace import App, table
from headrace.contracts import Contract, load_contract
from headrace.enrich import Enrich
from headrace.enricher import OUTCOMES, PENDING, Enricher
from headrace.fates import ACCEPTED, Tally, by_partition
from headrace.gate.batch import _enriched
from headrace.gate.ledger import Batch, Entry, Outcome
from headrace.log.enriched import LOG_TIME, OFFSET, EnrichedBatch
from headrace.log.publish_task import as_published, to_metadata
from headrace.ops.enrichment import Enrichment
from headrace.store.connection import Store
from headrace.store.dimensions import Dimensions
from headrace.store.enrich_fold import EnrichFold
from headrace.store.enrich_pins import Pins
from headrace.store.ledger import Ledger
from headrace.store.outbox import FlowOutbox
from headrace.store.source_accounts import SourceAccounts
from tests.oracle.enrich_oracle import Arrived, DimensionRow

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
TOPIC = "clicks.enriched.v1"
CONTRACT = """
kind: DataContract
apiVersion: v3.2.0
id: tests-clicks
version: 1.0.0
status: active
schema:
  - name: clicks
    properties:
      - {name: event_id, logicalType: string, required: true, primaryKey: true, partitioned: true}
      - {name: event_time, logicalType: timestamp, required: true}
      - {name: product_id, logicalType: string}
slaProperties:
  - {property: retention, value: 7, unit: d}
customProperties:
  - {property: eventTime, value: event_time}
  - {property: lateness, value: 10 minutes}
  - {property: maxFutureSkew, value: 5 minutes}
  - {property: dedupeHorizon, value: 1 hour}
  - {property: idleAfter, value: 1 hour}
  - {property: partitions, value: 3}
"""
_numbers = itertools.count()


class Sent(NamedTuple):
    """A record in a topic, from either path."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def source(self) -> bytes | None:
        return dict(self.headers)["headrace-source"]


class WaitingStream:
    """One enrichment of one source; `feed` is one batch."""

    def __init__(self, store_url: str, folder: Path, **more: Any) -> None:
        self.app = f"waiting_{next(_numbers)}_{datetime.now(UTC):%H%M%S%f}"
        self.file = folder / f"{self.app}.csv"
        (folder / "clicks.yaml").write_text(CONTRACT)
        self.contract: Contract = load_contract(folder / "clicks.yaml")
        self.store, self._url = Store(store_url), store_url
        self.store.prepare()
        self.write([])
        self.enrich = self.declared(**more)
        self.direct: list[Sent] = []
        self._batches, self._clocks = 0, dict[int, int]()
        self.start()

    def declared(self, **more: Any) -> Enrich:
        products = table(
            "products",
            key="product_id",
            file=str(self.file),
            valid_to="valid_to",
            types={"price": "number"},
        )
        columns = {"category": "products.kind", "list_price": "products.price"}
        given = {"of": "clicks", "with_": products, "columns": columns, "topic": TOPIC, "unknown": "retry"}
        return App("shop").enrich("clicks_enriched", **(given | more))

    def write(self, rows: Iterable[DimensionRow]) -> None:
        """The table, as others see it all at once."""
        lines = ["product_id,valid_from,valid_to,kind,price"]
        for row in rows:
            times = (row.valid_from.isoformat(), row.valid_to.isoformat() if row.valid_to else "")
            lines.append(f"{row.key},{','.join(times)},{row.values['kind']},{row.values['price']}")
        draft = self.file.with_suffix(".draft")
        draft.write_text("\n".join(lines) + "\n")
        draft.rename(self.file)

    def start(self) -> None:
        """An engine with nothing in its memory."""
        dimensions = Dimensions(Store(self._url), check_seconds=0.0)
        fold = EnrichFold(self.app, self.app, self.contract, self.enrich, dimensions)
        self.accounts = SourceAccounts(self.store, self.app, self.contract, {self.enrich.fold: fold})
        self.accounts.prepare()
        self.ledger = Ledger(self.store, self.app, timedelta(days=30), self.accounts)
        pins = Pins(self.app, self.app, [self.enrich], dimensions)
        self.enrichment = Enrichment(self.contract, [self.enrich], dimensions, pins)

    def feed(
        self,
        events: Sequence[Arrived],
        lost_after: int | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        tasks = sorted({event.partition for event in events})
        markers: dict[int, str] = {}
        if lost_after is not None:
            self._publish(tasks[:lost_after], events, markers)
            meanwhile()
            self.start()
        tallies = self._publish(tasks, events, markers)
        self.ledger.record(self._batch(events), _enriched(tallies))
        self._batches += 1

    def _publish(
        self, tasks: Sequence[int], events: Sequence[Arrived], markers: dict[int, str]
    ) -> list[Tally]:
        [enricher] = self.enrichment.enrichers(self._batches)
        tallies: list[Tally] = []
        for task in tasks:
            mine = [event for event in events if event.partition == task]
            batch = EnrichedBatch(enricher, self._columns(mine, enricher))
            clock = ("headrace-clock", str(self._clocks.get(task)).encode())
            counted = batch.tallies({task: clock})
            if task in markers:
                tallies += as_published(markers[task], counted)
                continue
            self.direct += [Sent(*place, (*about, clock)) for *place, about in batch.records()]
            markers[task] = to_metadata(list(by_partition(counted).values()))
            tallies += counted
        return tallies

    def _columns(self, events: Sequence[Arrived], enricher: Enricher) -> pa.RecordBatch:
        fields = [json.loads(event.event) for event in events]
        log_times = [micros(event.log_time) for event in events]
        sources = [
            f"raw/{e.partition}/{e.offset}/{at // 1000}".encode()
            for e, at in zip(events, log_times, strict=True)
        ]
        headers = [[{"key": "trace", "value": b"\x00\xff"}] if e.offset % 3 == 0 else None for e in events]
        header = pa.struct([("key", pa.string()), ("value", pa.binary())])
        return pa.RecordBatch.from_pydict(
            {
                "fate": pa.array([ACCEPTED] * len(events), pa.int32()),
                "partition": pa.array([event.partition for event in events], pa.int32()),
                "key": pa.array([None if e.offset % 5 == 0 else b"\xff\x00k" for e in events], pa.binary()),
                "value": pa.array([event.event for event in events], pa.binary()),
                "headers": pa.array(headers, pa.list_(header)),
                "source": pa.array(sources, pa.binary()),
                "event_time": pa.array(
                    [micros(datetime.fromisoformat(each["event_time"])) for each in fields], pa.int64()
                ),
                "lookup_product_id": pa.array([each.get("product_id") for each in fields], pa.string()),
                OFFSET: pa.array([event.offset for event in events], pa.int64()),
                LOG_TIME: pa.array(log_times, pa.int64()),
            }
        )

    def _batch(self, events: Sequence[Arrived]) -> Batch:
        entries = []
        for partition in sorted({event.partition for event in events}):
            mine = [event for event in events if event.partition == partition]
            ends = (mine[0].offset, mine[-1].offset + 1)
            times = [micros(datetime.fromisoformat(json.loads(e.event)["event_time"])) for e in mine]
            self._clocks[partition] = max([*times, self._clocks.get(partition, times[0])])
            counts = (len(mine), len(mine), 0, 0, 0)
            log_time = max(micros(event.log_time) for event in mine)
            entries.append(Entry(partition, *ends, *counts, {}, self._clocks[partition], log_time))
        return Batch(self.app, self._batches, datetime.now(UTC), Outcome(tuple(entries), 0, 0))

    def tick(self, silence: timedelta = timedelta()) -> bool:
        with psycopg.connect(self._url) as connection:
            found = connection.execute(
                "SELECT max(active_at) FROM headrace.watermarks WHERE query = %s", (self.app,)
            ).fetchone()
        return self.accounts.tick((found[0] if found and found[0] else datetime.now(UTC)) + silence)

    def late(self) -> list[Sent]:
        """What has left through the outbox."""
        outbox = FlowOutbox()
        lanes = self.store.transact(lambda connection: outbox.lanes(connection, [self.app]))
        records = [
            (lane.topic, record)
            for lane in lanes
            for record in self.store.transact(
                lambda connection, lane=lane: outbox.unpublished(connection, lane, 0, 10_000)  # type: ignore[misc]
            )
        ]
        return [Sent(topic, r.partition, r.key, r.value, tuple(r.headers)) for topic, r in records]

    def counts(self) -> dict[str, int]:
        with psycopg.connect(self._url) as connection:
            found = connection.execute(
                "SELECT outcome, count FROM headrace.enrich_totals WHERE app = %s", (self.app,)
            )
            return {**dict.fromkeys((*OUTCOMES, PENDING), 0), **dict(found.fetchall())}

    def check_accounts(self) -> None:
        """What was accepted was taken, has an outcome or is pending; and what is pending is there."""
        with psycopg.connect(self._url) as connection:
            [accepted, taken] = connection.execute(
                "SELECT sum(accepted), sum(taken) FROM headrace.flow_ledger WHERE query = %s", (self.app,)
            ).fetchone() or (0, 0)
            [waiting] = connection.execute(
                sql.SQL("SELECT count(*) FROM {}").format(
                    sql.Identifier(self.app, "clicks_enriched__waiting")
                )
            ).fetchone() or (0,)
        counts = self.counts()
        assert (accepted, taken, waiting) == (taken, sum(counts.values()), counts[PENDING])


def micros(time: datetime) -> int:
    return (time - EPOCH) // MICROSECOND
