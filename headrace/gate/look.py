"""The first look at a batch: the job that runs its plan and finds where and when its records are.

What is derived from the batch may be computed in the same job, on the guess that no record turns out to be
old: nearly always right, and then one job less. If it was wrong, the result is left aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.gate.clock import Extent, extent_of
from headrace.workers import settle

PLACES = ("partition", "offset", "event_time", "log_time", "length")
RESULT = "branch int, rows binary"
FOUND = -3  # numbers from zero on, and -1 and -2, are the guess's own
Results = list[tuple[int, bytes]]
Reduce = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Guess:
    """`sql` reads the view `held`: the columns PLACES, `sound`, and what `reduce` needs of sound records.

    `reduce` runs in a worker and makes rows of `branch`, a number, and `rows`, bytes.
    """

    sql: str
    reduce: Reduce


def look(held: DataFrame, guess: Guess) -> tuple[Extent, Results]:
    held.createOrReplaceTempView("held")
    rows = held.sparkSession.sql(guess.sql).mapInArrow(partial(_look, guess.reduce), RESULT)
    found: Results = list(zip(*(column.to_pylist() for column in rows.toArrow().columns), strict=True))
    tables = [pa.ipc.open_stream(table).read_all() for number, table in found if number == FOUND]
    # A batch that holds nothing has no task that could say so.
    columns = pa.concat_tables(tables).columns if tables else [pa.chunked_array([], pa.int64())] * len(PLACES)
    return extent_of(columns), [(number, table) for number, table in found if number != FOUND]


def _look(reduce: Reduce, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    settle()
    places: list[pa.RecordBatch] = []

    def sound() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            places.append(batch.select(list(PLACES)))
            yield batch.filter(batch.column("sound"))

    yield from reduce(sound())
    if places:
        yield result_of({FOUND: pa.Table.from_batches(places)})


def result_of(tables: Mapping[int, pa.Table]) -> pa.RecordBatch:
    """Tables of any columns as rows of RESULT, by branch."""
    rows = [_to_bytes(table) for table in tables.values()]
    columns: list[Any] = [pa.array(list(tables), pa.int32()), pa.array(rows, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, ["branch", "rows"])


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
