"""Enriched events of an Arrow batch: their bytes, and how many had which outcome."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.enricher import OUTCOMES, UNKNOWN, Enricher
from headrace.fates import ACCEPTED, Tally

Record = tuple[str, int, bytes | None, bytes, list[tuple[str, Any]]]  # topic, partition, key, value, headers


def lookup_column(field: str) -> str:
    """The column that carries a field of the event to where the tables are."""
    return f"lookup_{field}"


def accepted_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.equal(batch.column("fate"), pa.scalar(ACCEPTED, pa.int32())))


class EnrichedBatch:
    """The accepted events of a batch with the columns of one enrichment."""

    def __init__(self, enricher: Enricher, accepted: pa.RecordBatch) -> None:
        self._enricher, self._accepted = enricher, accepted
        keys = [accepted.column(lookup_column(name)).to_pylist() for name in enricher.fields]
        times: list[Any] = accepted.column("event_time").to_pylist()
        self._tails, self._outcomes = enricher.tails(keys, times)

    def records(self) -> Iterator[Record]:
        """One for each event; an unknown one as it came, if it is for the dead letters."""
        enricher, accepted = self._enricher, self._accepted
        contract = ("headrace-contract", f"{enricher.name}:{enricher.version}".encode())
        unknown = [{"code": "unknown_key", "field": name} for name in enricher.fields]
        reasons = ("headrace-reasons", json.dumps(unknown).encode())
        topic, dead_letters = enricher.topic, enricher.dead_letters
        partitions, keys, sources = (accepted.column(n).to_pylist() for n in ("partition", "key", "source"))
        about_each = (partitions, keys, sources, _own_headers(accepted))
        rows = zip(*about_each, self._values(), self._tails, self._outcomes, strict=True)
        for place, (partition, key, source, given, value, tail, outcome) in enumerate(rows):
            about = [("headrace-source", source), contract]
            if given:
                about = [*((header["key"], header["value"]) for header in given), *about]
            if outcome == UNKNOWN and dead_letters:
                original: Any = accepted.column("value")[place].as_py()
                yield dead_letters, partition, key, original, [*about, reasons]
            else:
                yield topic, partition, key, value[:-1] + tail, about

    def tallies(self) -> list[Tally]:
        partitions = self._accepted.column("partition").to_numpy(zero_copy_only=False)
        labels = np.asarray(self._outcomes, dtype=np.int64) + partitions.astype(np.int64) * len(OUTCOMES)
        found = Counter(dict(zip(*(x.tolist() for x in np.unique(labels, return_counts=True)), strict=True)))
        return [
            Tally(
                label // len(OUTCOMES),
                enriched={f"{self._enricher.name}:{OUTCOMES[label % len(OUTCOMES)]}": count},
            )
            for label, count in found.items()
        ]

    def _values(self) -> Sequence[Any]:
        """The events, each with its brace at the end and none of the new names; nearly all are so already."""
        column = self._accepted.column("value")
        values: list[Any] = column.to_pylist()
        sound = pc.and_(
            pc.ends_with(column, "}"),
            pc.invert(pc.match_substring_regex(column, self._enricher.own_names)),
        )
        for place in np.flatnonzero(~sound.to_numpy(zero_copy_only=False)):
            values[place] = self._enricher.trimmed(values[place])
        return values


def _own_headers(batch: pa.RecordBatch) -> Iterable[Any]:
    """Of each record; nearly always there are none at all, and files know none."""
    if "headers" not in batch.schema.names or batch.column("headers").null_count == batch.num_rows:
        return [None] * batch.num_rows
    return batch.column("headers").to_pylist()
