"""Enriched events of an Arrow batch: their records, and how many had which outcome."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headrace.enricher import UNKNOWN, Enricher
from headrace.fates import ACCEPTED, Tally


class EnrichedRecord(NamedTuple):
    topic: str
    partition: int
    key: bytes | None
    value: bytes
    headers: list[tuple[str, Any]]
    outcome: str


def lookup_column(field: str) -> str:
    """The column that carries a field of the event to where the tables are."""
    return f"lookup_{field}"


def accepted_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.equal(batch.column("fate"), pa.scalar(ACCEPTED, pa.int32())))


def enriched_records(enricher: Enricher, accepted: pa.RecordBatch) -> Iterator[EnrichedRecord]:
    """One record for each accepted event; an unknown one as it came, if it is for the dead letters."""
    contract = ("headrace-contract", f"{enricher.name}:{enricher.version}".encode())
    unknown = [{"code": "unknown_key", "field": name} for name in enricher.fields]
    reasons = ("headrace-reasons", json.dumps(unknown).encode())
    topic, dead_letters, enriched = enricher.topic, enricher.dead_letters, enricher.enriched
    columns = (accepted.column(name).to_pylist() for name in ("partition", "key", "value", "source"))
    rows = zip(*columns, _own_headers(accepted), _lookups(enricher, accepted), strict=True)
    for partition, key, value, source, given, (keys, at) in rows:
        made, outcome = enriched(value, keys, at)
        about = [("headrace-source", source), contract]
        if given:
            about = [*((header["key"], header["value"]) for header in given), *about]
        if outcome == UNKNOWN and dead_letters:
            about.append(reasons)
            yield EnrichedRecord(dead_letters, partition, key, value, about, outcome)
        else:
            yield EnrichedRecord(topic, partition, key, made, about, outcome)


def count_enriched(enricher: Enricher, accepted: pa.RecordBatch) -> list[Tally]:
    """What `enriched_records` would find, for events that are in the topic already."""
    partitions = accepted.column("partition").to_pylist()
    found = zip(partitions, _lookups(enricher, accepted), strict=True)
    return tallies_of(enricher, Counter((p, enricher.outcome(keys, at)) for p, (keys, at) in found))


def tallies_of(enricher: Enricher, outcomes: Mapping[tuple[Any, str], int]) -> list[Tally]:
    """From how often which outcome in which partition."""
    return [
        Tally(partition, enriched={f"{enricher.name}:{outcome}": count})
        for (partition, outcome), count in outcomes.items()
    ]


def _own_headers(batch: pa.RecordBatch) -> Iterable[Any]:
    """Of each record; nearly always there are none at all, and files know none."""
    if "headers" not in batch.schema.names or batch.column("headers").null_count == batch.num_rows:
        return [None] * batch.num_rows
    return batch.column("headers").to_pylist()


def _lookups(enricher: Enricher, batch: pa.RecordBatch) -> Iterable[tuple[Any, Any]]:
    """What the tables are asked with, and the time of each event."""
    asked = zip(*(batch.column(lookup_column(name)).to_pylist() for name in enricher.fields), strict=True)
    return zip(asked, batch.column("event_time").to_pylist(), strict=True)
