"""Events that wait for a table to know their keys, on their way from a worker to the store.

They travel packed: when a table is empty by mistake, all events of a batch may be among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

Header = tuple[str, bytes | None]
_HEADER = pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())])
_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("event_time", pa.int64()),
        pa.field("log_time", pa.int64()),
        pa.field("keys", pa.list_(pa.string())),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(_HEADER)),
    ]
)


class WaitingEvent(NamedTuple):
    """An accepted event as it is in the validated topic, with the headers of the enriched one.

    Times in microseconds; `keys` are what the tables are asked with, one for each.
    """

    partition: int
    offset: int
    event_time: int
    log_time: int | None
    keys: list[str | None]
    key: bytes | None
    value: bytes
    headers: list[Header]


def packed(events: Sequence[WaitingEvent]) -> bytes:
    columns: list[list[Any]] = [list(column) for column in zip(*events, strict=True)]
    columns[-1] = [[{"name": name, "value": value} for name, value in headers] for headers in columns[-1]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    target = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(target, _SCHEMA, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))
    return target.getvalue().to_pybytes()


def unpacked(given: bytes) -> list[WaitingEvent]:
    rows = pa.ipc.open_stream(given).read_all().to_pylist()
    return [
        WaitingEvent(**{**row, "headers": [(header["name"], header["value"]) for header in row["headers"]]})
        for row in rows
    ]
