"""The accepted events of the app that is killed, as its validated topics have them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from confluent_kafka import Message

from tests.ops.crash_shop import STREAMS, Shop
from tests.oracle.metrics_oracle import Event
from tests.oracle.moments import micros_of

SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
Fields = Mapping[str, Any]


@dataclass(frozen=True)
class History:
    """The accepted events of each stream, and the batches of both in the order of their commits."""

    events: dict[str, list[Event]]
    batches: list[tuple[str, list[Event]]]

    def watermark(self, stream: str) -> int:
        clocks: dict[int, int] = {}
        for event in self.events[stream]:
            clocks[event.partition] = max(event.event_time, clocks.get(event.partition, 0))
        return min(clocks.values())


def history_of(shop: Shop) -> History:
    ranges: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
    for query, partition, first, end, batch in shop.rows(
        "SELECT query, partition, first_offset, end_offset, batch_id FROM headrace.ledger"
    ):
        ranges[query, partition].append((first, end, batch))
    batches: dict[tuple[str, int], list[Event]] = {
        (query, batch): []
        for query, batch in shop.rows("SELECT query, batch_id FROM headrace.batches ORDER BY finished_at")
    }
    for stream in STREAMS:
        query = f"crash.{stream}"
        for message in shop.messages(shop.loaded.contract(stream).topics.validated):
            event = event_of(message)
            [batch] = [n for first, end, n in ranges[query, event.partition] if first <= event.offset < end]
            batches[query, batch].append(event)
    for events in batches.values():
        events.sort(key=lambda e: (e.partition, e.offset))
    in_order = [(query.removeprefix("crash."), events) for (query, _), events in batches.items()]
    return History(
        {stream: [e for name, events in in_order if name == stream for e in events] for stream in STREAMS},
        in_order,
    )


def event_of(message: Message) -> Event:
    _, partition, offset, log_ms = source_of(message).decode().split("/")
    fields = json.loads(message.value() or b"", parse_float=Decimal)
    at = micros_of(fields["event_time"])
    assert at is not None
    return Event(int(partition), int(offset), fields["event_id"], at, int(log_ms) * 1000, fields)


def source_of(message: Message) -> bytes:
    [source] = [value for name, value in message.headers() or () if name == "headrace-source"]
    assert isinstance(source, bytes)
    return source
