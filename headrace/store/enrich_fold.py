"""What enrichment found, counted with the batch; events that wait for a table; how fresh its tables are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from headrace.contracts.json_schema import json_schema
from headrace.contracts.model import Contract
from headrace.dimensions import Versions
from headrace.enrich import Enrich, enriched_contract
from headrace.enricher import OUTCOMES, PENDING, UNKNOWN, LaterLookup
from headrace.fates import EnrichedPart
from headrace.gate.ledger import Batch
from headrace.log.enriched import unknown_keys
from headrace.log.waiting import WaitingEvent, unpacked
from headrace.store.connection import Connection
from headrace.store.dimensions import Dimensions, note_tables
from headrace.store.enrich_waiting import Waiting
from headrace.store.flow_totals import FlowTotals
from headrace.store.outbox import ExactRecord, account, open_lane, put_exact
from headrace.store.source_accounts import Watermarks


class EnrichFold:
    """The accounts of one enrichment. The gate itself publishes; what has waited goes through the outbox."""

    def __init__(
        self, app: str, query: str, contract: Contract, enrich: Enrich, dimensions: Dimensions
    ) -> None:
        self._app, self._query, self._contract, self._enrich = app, query, contract, enrich
        self._tables = [dimensions.live(table) for table in enrich.tables]
        self._waiting = Waiting(app, enrich)
        self._totals = FlowTotals(app, query, enrich.fold)

    def prepare(self, connection: Connection, watermarks: Watermarks) -> None:
        """An enrichment that no longer lets events wait ends those that do."""
        self._totals.begin(connection, lambda: {"before": sum(self._outcomes(connection).values())})
        note_tables(connection, self._app, self._tables)
        if self._enrich.retry is not None:
            self._waiting.define(connection)
        if self._waiting.state(connection) is not None:
            for topic in self._enrich.topics:
                open_lane(connection, self._query, topic)
            if self._enrich.retry is None:
                self._end(connection, self._waiting.take_all(connection), self._current()[0])

    def merge(
        self, connection: Connection, batch: Batch, part: EnrichedPart, before: Watermarks, after: Watermarks
    ) -> None:
        counts = Counter({outcome: n for outcome, n in part.counts.items() if outcome != PENDING})
        events = [event for packed in part.waiting for event in unpacked(packed)]
        taken = counts.total() + len(events)
        if events:
            counts += self._keep(connection, events)
        account(connection, self._query, batch.batch_id, self._enrich.fold, "", (batch.accepted, taken, 0))
        self._totals.add(connection, batch.batch_id, accepted=batch.accepted, taken=taken)
        self._count(connection, counts)
        note_tables(connection, self._app, self._tables)

    def advance(
        self, connection: Connection, before: Watermarks, after: Watermarks, part: EnrichedPart | None
    ) -> None:
        """Tables that have changed are asked again; whose time is over does not wait any more."""
        if self._enrich.retry is None:
            return
        self.refresh(connection)
        over = [
            event
            for clock, watermark in after.items()
            if watermark is not None
            for event in self._waiting.take_until(connection, clock, watermark)
        ]
        if over:
            self._end(connection, over, self._current()[0])

    def refresh(self, connection: Connection) -> bool:
        """Look up those that wait in tables that are new since; returns whether one was found."""
        if self._enrich.retry is None:
            return False
        waiting, looked_up = self._waiting.state(connection) or (0, "")
        if not waiting:
            return False
        tables, edition = self._current()
        if looked_up == edition:
            return False
        lookup = LaterLookup(self._enrich, tables)
        known = [
            event
            for event in self._waiting.asked(connection)
            if lookup.tail(event.keys, event.event_time)[1] != UNKNOWN
        ]
        if known:
            self._end(connection, self._waiting.take(connection, known), tables)
        self._waiting.note(connection, edition)
        return bool(known)

    def forget_old(self, connection: Connection) -> None:
        """The ledger of flows goes with the batches; nothing waits for longer than its horizon."""

    def export(self, connection: Connection, folder: Path) -> dict[str, Any]:
        """Write the contract of the enriched topic as JSON Schema; the events are written by the gate."""
        schema = json_schema(enriched_contract(self._contract, self._enrich))
        file = folder / f"{self._enrich.name}.schema.json"
        file.write_text(json.dumps(schema, indent=1, ensure_ascii=False) + "\n")
        return self._outcomes(connection)

    def _outcomes(self, connection: Connection) -> dict[str, int]:
        found = connection.execute(
            "SELECT outcome, count FROM headrace.enrich_totals WHERE app = %s AND enrich = %s",
            (self._app, self._enrich.name),
        )
        return {**dict.fromkeys((*OUTCOMES, PENDING), 0), **dict(found.fetchall())}

    def _current(self) -> tuple[dict[str, Versions], str]:
        found = {live.dimension.name: live.edition() for live in self._tables}
        editions = " ".join(edition for _, edition in found.values())
        return {name: versions for name, (versions, _) in found.items()}, editions

    def _keep(self, connection: Connection, events: Sequence[WaitingEvent]) -> Counter[str]:
        """New events wait, as many as there is room for. Some are known by now: a table may have changed
        since the batch began, or since its first attempt."""
        tables, edition = self._current()
        lookup = LaterLookup(self._enrich, tables)
        known: list[WaitingEvent] = []
        unknown: list[WaitingEvent] = []
        for event in sorted(events, key=lambda event: event[:2]):
            is_known = lookup.tail(event.keys, event.event_time)[1] != UNKNOWN
            (known if is_known else unknown).append(event)
        limit = self._enrich.retry.limit if self._enrich.retry is not None else 0
        waiting, _ = self._waiting.state(connection) or (0, "")
        room = max(0, limit - waiting)
        if unknown[:room]:
            self._waiting.add(connection, unknown[:room])
            self._waiting.note(connection, None if waiting else edition)
        return self._send(connection, [*known, *unknown[room:]], lookup)

    def _end(
        self, connection: Connection, events: Sequence[WaitingEvent], tables: dict[str, Versions]
    ) -> None:
        """Events that waited and do not any more: published with what the tables know now."""
        counts = self._send(connection, events, LaterLookup(self._enrich, tables))
        self._waiting.note(connection)
        self._count(connection, counts)

    def _send(
        self, connection: Connection, events: Iterable[WaitingEvent], lookup: LaterLookup
    ) -> Counter[str]:
        enrich, counts = self._enrich, Counter[str]()
        reasons = unknown_keys([table.on for table in enrich.tables])
        records = []
        for event in events:
            tail, outcome = lookup.tail(event.keys, event.event_time)
            if outcome == UNKNOWN and enrich.ends_dead:
                counts["dead_lettered"] += 1
                place, value = enrich.dead_letters, event.value
                # In the place that it has beside the clock when the gate itself sends an event there.
                headers = [*event.headers[:-1], reasons, *event.headers[-1:]]
            else:
                counts["unknown" if outcome == UNKNOWN else "retried"] += 1
                place, value = enrich.topic, lookup.completed(event.value, tail)
                headers = event.headers
            records.append(ExactRecord(place, event.partition, event.key, value, headers))
        if records:
            put_exact(connection, self._query, records)
        return counts

    def _count(self, connection: Connection, counts: Counter[str]) -> None:
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO headrace.enrich_totals AS known VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (app, enrich, outcome) DO UPDATE SET count = known.count + excluded.count",
                [(self._app, self._enrich.name, outcome, counts[outcome]) for outcome in OUTCOMES],
            )
