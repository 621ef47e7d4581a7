"""The records of a JSON-lines file in the order in which they arrive, with the coordinates a log would give.

Lines are bytes: a malformed one is a record like any other. Nothing is held in memory but, for an order by
a field, the place of each line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, NamedTuple

import orjson

from headrace.errors import DataError, UsageError
from headrace.log.produce import partition_of

RFC_3339 = re.compile(
    r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
)
EPOCH = datetime(1970, 1, 1)
MICROSECOND = timedelta(microseconds=1)


class Arrival(NamedTuple):
    line: int  # from 1
    partition: int
    offset: int
    log_time: int | None  # microseconds
    key: bytes | None
    value: bytes


def arrivals(file: Path, key: str, partitions: int, by: str | None = None) -> Iterator[Arrival]:
    """Every line once: in the order of the file, or of the timestamp `by`, which is then the log time.

    A line without a usable timestamp arrives right after the line before it, at the same log time.
    """
    offsets = [0] * partitions
    with opened(file) as stream:
        lines = _by_time(stream, by) if by else _as_they_are(stream)
        for number, log_time, value in lines:
            name = _key_of(value, key)
            partition = 0 if name is None else partition_of(name, partitions)
            yield Arrival(number, partition, offsets[partition], log_time, name, value)
            offsets[partition] += 1


def opened(file: Path) -> IO[bytes]:
    try:
        if file.is_dir():
            raise DataError("is a folder", where=str(file), hint="name a file of JSON lines")
        return file.open("rb")
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", where=str(file)) from error


def instant_of(text: object) -> int | None:
    """Microseconds since 1970 of an RFC 3339 timestamp (finer digits are cut off), or None."""
    if not isinstance(text, str) or not RFC_3339.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    # Subtracting the zone from the difference, not from the date: years 1 and 9999 have no neighbours.
    return (moment.replace(tzinfo=None) - EPOCH - (moment.utcoffset() or timedelta())) // MICROSECOND


def fields_of(value: bytes) -> dict[str, object]:
    """The fields of a record, or none where it is not a JSON object."""
    try:
        record = orjson.loads(value)
    except orjson.JSONDecodeError:
        return {}
    return record if isinstance(record, dict) else {}


def _as_they_are(stream: IO[bytes]) -> Iterator[tuple[int, None, bytes]]:
    for number, line in enumerate(stream, 1):
        yield number, None, line.removesuffix(b"\n")


def _by_time(stream: IO[bytes], by: str) -> Iterator[tuple[int, int | None, bytes]]:
    if not stream.seekable():
        raise UsageError(
            "an order by a field needs a file, not a pipe", hint="save the lines to a file first"
        )
    places: list[tuple[int, int, int, int]] = []  # time, line, position, length
    at, position = -1, 0
    for number, line in enumerate(stream, 1):
        time = instant_of(fields_of(line).get(by))
        # A log has no time before 1970.
        at = time if time is not None and time >= 0 else at
        places.append((at, number, position, len(line)))
        position += len(line)
    for time, number, position, length in sorted(places):
        stream.seek(position)
        yield number, time if time >= 0 else None, stream.read(length).removesuffix(b"\n")


def _key_of(value: bytes, field: str) -> bytes | None:
    """The bytes that a producer would use as the key, or None where the record has no readable one."""
    key = fields_of(value).get(field)
    if isinstance(key, str):
        return key.encode()
    return str(key).encode() if isinstance(key, int) and not isinstance(key, bool) else None
