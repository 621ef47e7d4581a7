"""A record on its way to a topic."""

from __future__ import annotations

from typing import NamedTuple


class Record(NamedTuple):
    """What a traffic model makes: `at` is the second (since 1970) at which the record reaches the log."""

    stream: str
    key: bytes | None
    value: bytes | None
    at: float
