"""Enriched events of an Arrow batch: their bytes, and how many had which outcome."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.enricher import UNKNOWN, Enricher
from headrace.fates import ACCEPTED, Tally
from headrace.log.waiting import Header, WaitingEvent, packed

Record = tuple[str, int, bytes | None, bytes, list[tuple[str, Any]]]  # topic, partition, key, value, headers
OFFSET, LOG_TIME = "waiting_offset", "waiting_log_time"  # columns that only events that may wait need


def lookup_column(field: str) -> str:
    """The column that carries a field of the event to where the tables are."""
    return f"lookup_{field}"


def accepted_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.equal(batch.column("fate"), pa.scalar(ACCEPTED, pa.int32())))


class EnrichedBatch:
    """The accepted events of a batch with the columns of one enrichment."""

    def __init__(self, enricher: Enricher, accepted: pa.RecordBatch) -> None:
        self._enricher, self._accepted = enricher, accepted
        keys = [accepted.column(lookup_column(name)) for name in enricher.fields]
        times = accepted.column("event_time").to_numpy(zero_copy_only=False)
        self._tails, self._outcomes = enricher.tails(keys, times)

    def records(self) -> Iterator[Record]:
        """One for each event that does not wait; an unknown one as it came, if it is for the dead letters."""
        enricher, contract = self._enricher, _contract(self._enricher)
        values: Any = pc.binary_join_element_wise(pc.binary_slice(self._values(), 0, -1), self._tails, b"")
        events = self._accepted.set_column(self._accepted.schema.get_field_index("value"), "value", values)
        unknown = pa.array(self._outcomes == UNKNOWN)
        if enricher.waits or enricher.dead_letters:
            events = events.filter(pc.invert(unknown))
        for partition, key, source, given, value in _each(events):
            about = [("headrace-source", source), contract]
            yield enricher.topic, partition, key, value, [*_told(given), *about] if given else about
        if enricher.dead_letters and not enricher.waits:
            reasons = unknown_keys(enricher.fields)
            for partition, key, source, given, value in _each(self._accepted.filter(unknown)):
                about = [*_told(given), ("headrace-source", source), contract, reasons]
                yield enricher.dead_letters, partition, key, value, about

    def tallies(self, clock: Mapping[int, Header] | None = None) -> list[Tally]:
        """How many had which outcome, and those that wait, with the header that `clock` has for them."""
        names = self._enricher.outcomes
        partitions = self._accepted.column("partition").to_numpy(zero_copy_only=False)
        labels = self._outcomes + partitions.astype(np.int64) * len(names)
        found = Counter(dict(zip(*(x.tolist() for x in np.unique(labels, return_counts=True)), strict=True)))
        tallies = [
            Tally(
                label // len(names),
                enriched={f"{self._enricher.name}:{names[label % len(names)]}": count},
            )
            for label, count in found.items()
        ]
        waiting = self._waiting(clock) if self._enricher.waits else []
        if waiting:
            tallies.append(Tally(waiting[0].partition, waiting={self._enricher.name: (packed(waiting),)}))
        return tallies

    def _waiting(self, clock: Mapping[int, Header] | None) -> list[WaitingEvent]:
        chosen = self._accepted.filter(pa.array(self._outcomes == UNKNOWN))
        lookups = [chosen.column(lookup_column(name)).to_pylist() for name in self._enricher.fields]
        columns = ("partition", OFFSET, "event_time", LOG_TIME, "key", "value", "source")
        own = zip(*(chosen.column(name).to_pylist() for name in columns), strict=True)
        asked = zip(*lookups, strict=True)
        events = []
        for row, keys, given in zip(own, asked, _own_headers(chosen), strict=True):
            partition, offset, event_time, log_time, key, value, source = row
            about = [*_told(given), ("headrace-source", source), _contract(self._enricher)]
            about += [clock[partition]] if clock is not None else []
            place = (partition, offset, event_time, log_time)
            events.append(WaitingEvent(*place, list(keys), key, value, about))
        return events

    def _values(self) -> Any:
        """The events, each with its brace at the end and none of the new names; nearly all are so already."""
        column: Any = self._accepted.column("value")
        sound = pc.and_(
            pc.ends_with(column, "}"),
            pc.invert(pc.match_substring_regex(column, self._enricher.own_names)),
        )
        if pc.all(sound).as_py():
            return column
        values = column.to_pylist()
        for place in np.flatnonzero(~sound.to_numpy(zero_copy_only=False)):
            values[place] = self._enricher.trimmed(values[place])
        return pa.array(values, pa.binary())


def unknown_keys(fields: Sequence[str]) -> Header:
    """The header that says why an event is among the dead letters."""
    return ("headrace-reasons", json.dumps([{"code": "unknown_key", "field": f} for f in fields]).encode())


def _contract(enricher: Enricher) -> Header:
    return ("headrace-contract", f"{enricher.name}:{enricher.version}".encode())


def _each(events: pa.RecordBatch) -> Iterator[Any]:
    """Partition, key, source, own headers and value."""
    partitions, keys, sources, values = (
        events.column(name).to_pylist() for name in ("partition", "key", "source", "value")
    )
    return zip(partitions, keys, sources, _own_headers(events), values, strict=True)


def _told(given: Any) -> list[tuple[str, Any]]:
    return [(header["key"], header["value"]) for header in given or ()]


def _own_headers(batch: pa.RecordBatch) -> Iterable[Any]:
    """Of each record; nearly always there are none at all, and files know none."""
    if "headers" not in batch.schema.names or batch.column("headers").null_count == batch.num_rows:
        return [None] * batch.num_rows
    return batch.column("headers").to_pylist()
