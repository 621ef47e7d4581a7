"""Files in place of topics: what would be published, and one row about the fate of every line."""

from __future__ import annotations

import csv
import io
import json
from array import array
from collections import Counter
from contextlib import ExitStack
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.contracts.model import Contract
from headrace.enricher import Enricher
from headrace.fates import ACCEPTED, LATE, REJECTED, Tally
from headrace.log.arrivals import fields_of, instant_of
from headrace.log.enriched import EnrichedBatch, accepted_of
from headrace.log.file_source import BatchFile
from headrace.log.publish import Enriching, lookup_columns
from headrace.log.publish_task import count_fates

NAMES = {ACCEPTED: "accepted", REJECTED: "rejected", LATE: "late"}
FILES = {ACCEPTED: "validated", REJECTED: "invalid", LATE: "late"}
HEADER = ("line", "partition", "offset", "fate", "reasons", "event_id", "event_time")


class FileEnriching(Enriching, Protocol):
    def enrichers(self, batch_id: int) -> list[Enricher]: ...


class FileTopics:
    """Takes the place of the publisher: `SOURCE.validated.jsonl` and so on in one folder."""

    takes_accepted = True

    def __init__(
        self,
        contract: Contract,
        folder: Path,
        batches: list[BatchFile],
        enriching: FileEnriching | None = None,
    ) -> None:
        self._enriching = enriching
        self.contract = contract
        self.reasons: Counter[str] = Counter()  # code:field
        self._batches, self._folder = batches, folder
        self._open = ExitStack()
        name = contract.name
        self._outputs = {fate: self._file(f"{name}.{kind}.jsonl") for fate, kind in FILES.items()}
        self._rows = self._file(f"{name}.fates.part")
        self._topics: dict[str, IO[bytes]] = {}
        self._places: array[int] = array("q")  # line, position, … in the order of arrival

    def has_begun(self, rows: DataFrame, batch_id: int) -> bool:
        return False

    def publish(self, rows: DataFrame, batch_id: int, clocks: dict[int, int | None]) -> list[Tally]:
        """Write a batch; a record of the input that is not among the rows was dropped as a duplicate."""
        judged = rows.select(
            "line",
            "fate",
            "partition",
            F.to_json("reasons").cast("binary").alias("reasons"),
            "event_time",
            F.substring("dedupe_id", 2, 1 << 30).alias("event_id"),
            "value",
            *([F.col("key"), F.lit(b"").alias("source")] if self._enriching else []),
            *lookup_columns(self._enriching),
        ).toArrow()
        known = {row["line"]: row for row in judged.to_pylist()}
        for record in pq.read_table(self._batches[batch_id].file).to_pylist():
            row = known.get(record["line"])
            if row is None:
                self._add_duplicate(record)
            else:
                self._add(record, row)
        tallies = [t for part in judged.to_batches() for t in count_fates(part)]
        return [*tallies, *self._enrich(judged, batch_id)]

    def _enrich(self, judged: pa.Table, batch_id: int) -> list[Tally]:
        """The enriched events in the order of the lines, to `TOPIC.jsonl`."""
        if self._enriching is None:
            return []
        tallies = []
        enrichers = self._enriching.enrichers(batch_id)
        for part in judged.sort_by("line").to_batches():
            for enricher in enrichers:
                enriched = EnrichedBatch(enricher, accepted_of(part))
                for topic, _, _, value, _ in enriched.records():
                    self._topic(topic).write(value + b"\n")
                tallies += enriched.tallies()
        return tallies

    def _topic(self, topic: str) -> IO[bytes]:
        if topic not in self._topics:
            self._topics[topic] = self._file(f"{topic}.jsonl")
        return self._topics[topic]

    def finish(self) -> None:
        """Put the rows about fates into the order of the lines."""
        self._rows.flush()
        lines, positions = self._places[0::2], self._places[1::2]
        with (self._folder / f"{self.contract.name}.fates.csv").open("wb") as out:
            out.write(_csv_row(HEADER))
            part = Path(self._rows.name)
            with part.open("rb") as rows:
                if all(a < b for a, b in pairwise(lines)):
                    out.writelines(rows)
                else:
                    for _, position in sorted(zip(lines, positions, strict=True)):
                        rows.seek(position)
                        out.write(_one_row(rows))
        self.close()
        part.unlink()

    def close(self) -> None:
        self._open.close()

    def _file(self, name: str) -> IO[bytes]:
        return self._open.enter_context((self._folder / name).open("wb"))

    def _add(self, record: dict[str, Any], row: dict[str, Any]) -> None:
        fate = row["fate"]
        self._outputs[fate].write((row["value"] or b"") + b"\n")
        if fate == REJECTED:
            reasons = [f"{r['code']}:{r['field']}" for r in json.loads(row["reasons"])]
            self.reasons.update(reasons)
            self._write(record, NAMES[fate], ";".join(reasons), "", None)
        else:
            self._write(record, NAMES[fate], "", row["event_id"], row["event_time"])

    def _add_duplicate(self, record: dict[str, Any]) -> None:
        fields = fields_of(record["value"])
        event_id, at = fields.get(self.contract.event_id), instant_of(fields.get(self.contract.event_time))
        self._write(record, "duplicate", "", str(event_id), at)

    def _write(
        self, record: dict[str, Any], fate: str, reasons: str, event_id: str, event_time: int | None
    ) -> None:
        self._places.extend((record["line"], self._rows.tell()))
        place = (record["line"], record["partition"], record["offset"])
        self._rows.write(_csv_row((*place, fate, reasons, event_id, written(event_time))))


def written(micros: int | None) -> str:
    """An instant as RFC 3339 in UTC; one that no calendar of four-digit years has, as microseconds."""
    if micros is None:
        return ""
    try:
        return (datetime(1970, 1, 1) + timedelta(microseconds=micros)).isoformat() + "Z"
    except OverflowError:
        return str(micros)


def _csv_row(values: tuple[object, ...]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode()


def _one_row(rows: IO[bytes]) -> bytes:
    """One CSV row; a quoted value may hold line breaks, and an open quote makes the count of quotes odd."""
    row = rows.readline()
    while row.count(b'"') % 2:
        row += rows.readline()
    return row
