"""The outbox of flows: results that a transaction has decided and that wait for their topic."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headrace.log.outbox import Lane, OutboxRecord
from headrace.store.connection import Connection


class ExactRecord(NamedTuple):
    """A record to the byte: as another path would have published it."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes | None]]


def open_lane(connection: Connection, query: str, topic: str) -> None:
    connection.execute(
        "INSERT INTO headrace.outbox_lanes (query, topic, sent) VALUES (%s, %s, 0) ON CONFLICT DO NOTHING",
        (query, topic),
    )


def put(connection: Connection, query: str, topic: str, records: Iterable[tuple[str, str]]) -> None:
    """Keys and values, in the order in which they are to be published."""
    handed = 0
    with (
        connection.cursor() as cursor,
        cursor.copy("COPY headrace.outbox (query, topic, key, value) FROM STDIN") as copy,
    ):
        for key, value in records:
            copy.write_row((query, topic, key, value))
            handed += 1
    note_handed(connection, query, topic, handed)


def note_handed(connection: Connection, query: str, topic: str, handed: int) -> None:
    """How many results were put into the outbox: an audit holds it against what left it and what waits."""
    if handed:
        connection.execute(
            "INSERT INTO headrace.outbox_handed AS known VALUES (%s, %s, %s)"
            " ON CONFLICT (query, topic) DO UPDATE SET handed = known.handed + excluded.handed",
            (query, topic, handed),
        )


def put_exact(connection: Connection, query: str, records: Iterable[ExactRecord]) -> None:
    handed = Counter[str]()
    with (
        connection.cursor() as cursor,
        cursor.copy(
            "COPY headrace.outbox (query, topic, key, value, exact_partition, exact_key, exact_value,"
            " exact_headers) FROM STDIN"
        ) as copy,
    ):
        for record in records:
            headers = headers_to_bytes(record.headers)
            copy.write_row((query, record.topic, "", "", record.partition, record.key, record.value, headers))
            handed[record.topic] += 1
    for topic, count in handed.items():
        note_handed(connection, query, topic, count)


def headers_to_bytes(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """As Postgres keeps any bytes: in a text or in its JSON, a name or a value may hold what it refuses."""
    return json.dumps(
        [(name, None if value is None else base64.b64encode(value).decode()) for name, value in headers]
    ).encode()


def headers_of_bytes(given: bytes) -> list[tuple[str, bytes | None]]:
    return [(name, None if value is None else base64.b64decode(value)) for name, value in json.loads(given)]


def account(
    connection: Connection, query: str, batch_id: int, flow: str, side: str, counts: tuple[int, int, int]
) -> None:
    """`counts`: how many events the batch accepted, how many of them the flow took, how many came late."""
    connection.execute(
        "INSERT INTO headrace.flow_ledger VALUES (%s, %s, %s, %s, %s, %s, %s)",
        (query, batch_id, flow, side, *counts),
    )


def count(
    connection: Connection,
    key: tuple[str, str, str],
    batch_id: int | None = None,
    *,
    accepted: int = 0,
    taken: int = 0,
    matched: int = 0,
    unmatched: int = 0,
    late: int = 0,
    pending_in: list[str] | None = None,
) -> None:
    """Add to the totals of a side, whose key is its query, flow and side; its first batch makes the row."""
    counts = (taken, matched, unmatched, late)
    if batch_id is None:
        if any(counts):
            connection.execute(
                "UPDATE headrace.flow_sides SET taken = taken + %s, matched = matched + %s,"
                " unmatched = unmatched + %s, late = late + %s"
                " WHERE query = %s AND flow = %s AND side = %s",
                (*counts, *key),
            )
        return
    connection.execute(
        "INSERT INTO headrace.flow_sides AS f (query, flow, side, first_batch, taken, matched, unmatched,"
        " late, pending_in, accepted) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (query, flow, side) DO UPDATE SET"
        " taken = f.taken + excluded.taken, matched = f.matched + excluded.matched,"
        " unmatched = f.unmatched + excluded.unmatched, late = f.late + excluded.late,"
        " accepted = f.accepted + excluded.accepted",
        (*key, batch_id, *counts, pending_in, accepted),
    )


def export_topics(connection: Connection, folder: Path) -> list[str]:
    """Write what waits for each topic as JSON lines, `TOPIC.jsonl`, by key; returns the topics.

    A topic that the gate itself writes to has a file already, which goes on.
    """
    topics = [row[0] for row in connection.execute("SELECT DISTINCT topic FROM headrace.outbox_lanes")]
    for topic in topics:
        rows = connection.execute(
            "SELECT coalesce(exact_value, convert_to(value, 'UTF8')) FROM headrace.outbox WHERE topic = %s"
            ' ORDER BY key COLLATE "C", value COLLATE "C", exact_value',
            (topic,),
        )
        with (folder / f"{topic}.jsonl").open("ab") as file:
            file.writelines(value + b"\n" for (value,) in rows)
    return sorted(topics)


class FlowOutbox:
    """What the publisher of topics asks of an outbox."""

    def lanes(self, connection: Connection, queries: Sequence[str]) -> list[Lane]:
        rows = connection.execute(
            "SELECT query, topic, epoch::text, published FROM headrace.outbox_lanes WHERE query = ANY(%s)"
            " ORDER BY query, topic",
            (list(queries),),
        )
        return [Lane(*row) for row in rows]

    def unpublished(self, connection: Connection, lane: Lane, after: int, limit: int) -> list[OutboxRecord]:
        """In the order in which they were committed: a query has one writer, which holds a lock."""
        rows = connection.execute(
            "SELECT position, key, value, exact_partition, exact_key, exact_value, exact_headers"
            " FROM headrace.outbox"
            " WHERE query = %s AND topic = %s AND position > %s ORDER BY position LIMIT %s",
            (lane.query, lane.topic, after, limit),
        )
        return [_record(lane, *row) for row in rows]

    def note_published(self, connection: Connection, lane: Lane, position: int) -> None:
        """What is in the topic leaves the outbox."""
        connection.execute(
            "WITH gone AS (DELETE FROM headrace.outbox WHERE query = %(query)s AND topic = %(topic)s"
            " AND position <= %(position)s RETURNING 1)"
            " UPDATE headrace.outbox_lanes SET published = greatest(published, %(position)s),"
            " published_at = now(), sent = sent + (SELECT count(*) FROM gone)"
            " WHERE query = %(query)s AND topic = %(topic)s",
            {"query": lane.query, "topic": lane.topic, "position": position},
        )


def _record(lane: Lane, position: int, key: str, value: str, *exact: Any) -> OutboxRecord:
    partition, exact_key, exact_value, headers = exact
    if exact_value is None:
        about = [("headrace-query", lane.query.encode())]
        return OutboxRecord(position, key.encode(), value.encode(), about)
    return OutboxRecord(position, exact_key, exact_value, headers_of_bytes(headers), partition)
