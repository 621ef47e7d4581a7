"""Adding the columns of tables to the bytes of events, in a worker: one lookup, no parsing, no new numbers.

Each version of a key is JSON already when it comes to the worker, and all events of a batch are looked up
together, so that an event costs the copying of its bytes; what the event itself says stays as it was written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.dimensions import ALWAYS, Versions, json_text
from headrace.enrich import Enrich

FOUND, NO_KEY, UNKNOWN = range(3)  # of several tables, the last one says it
PENDING = "pending"
# What an event has become in the end; one that is pending waits for a table and will have one of these.
OUTCOMES = ("found", "no_key", "unknown", "dead_lettered", "retried")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DECODER = json.JSONDecoder()
Int64s = npt.NDArray[np.int64]
Texts = Any  # an array of Arrow


@dataclass(frozen=True)
class Lookup:
    """One table: for each key, since when which JSON members end an event.

    The versions of all keys stand behind each other, those of key n from `firsts[n]` up to those of the next.
    """

    numbers: dict[str, int]
    firsts: Int64s
    starts: Int64s
    ends: Int64s  # of each version, the place of its members in `members`
    members: Texts  # the last two are those of an unknown key, and of an event without one

    def tails(self, keys: Texts, times: Int64s) -> tuple[Texts, Int64s]:
        """For each event the members and the outcome. No event is looked at by itself, but its key is."""
        coded = keys.dictionary_encode()
        numbers = np.array([self.numbers.get(key, -1) for key in coded.dictionary.to_pylist()], np.int64)
        has_key = coded.is_valid().to_numpy(zero_copy_only=False)
        places = coded.indices.fill_null(0).to_numpy()
        number = np.where(has_key, numbers[places], -1) if len(numbers) else np.full(len(keys), -1)
        unknown = len(self.members) - 2
        ends = np.where(has_key, unknown, unknown + 1)
        is_known = number >= 0
        version, exists = self._as_of(number[is_known], times[is_known])
        ends[is_known] = np.where(exists, self.ends[version], unknown)
        outcomes = np.where(ends == unknown, UNKNOWN, np.where(has_key, FOUND, NO_KEY))
        return self.members.take(pa.array(ends)), outcomes

    def _as_of(self, numbers: Int64s, times: Int64s) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """The last version that begins at or before each time, and whether there is one."""
        first = self.firsts[numbers]
        low, high = first.copy(), self.firsts[numbers + 1]
        while (open_ := low < high).any():
            middle = np.where(open_, (low + high) // 2, 0)
            begun = self.starts[middle] <= times
            low = np.where(open_ & begun, middle + 1, low)
            high = np.where(open_ & ~begun, middle, high)
        return np.maximum(low - 1, first), low > first


@dataclass(frozen=True)
class Enricher:
    """All that a worker needs for one enrichment."""

    name: str
    version: str
    topic: str
    dead_letters: str  # empty: unknown keys are kept
    fields: tuple[str, ...]  # of the event, one for each lookup
    lookups: tuple[Lookup, ...]
    added: frozenset[str]  # the names of the new members
    waits: bool = False  # unknown keys are asked for again later

    @property
    def outcomes(self) -> tuple[str, str, str]:
        """How FOUND, NO_KEY and UNKNOWN are counted."""
        unknown = PENDING if self.waits else "dead_lettered" if self.dead_letters else "unknown"
        return ("found", "no_key", unknown)

    @property
    def own_names(self) -> str:
        """A regular expression for an event that may have members of these names itself."""
        return own_names(self.added)

    def tails(self, keys: Sequence[Texts], times: Int64s) -> tuple[Texts, Int64s]:
        """How each event ends, and what became of its lookups; `keys` has a column for each table."""
        asked = zip(self.lookups, keys, strict=True)
        tails, outcomes = zip(*(lookup.tails(column, times) for lookup, column in asked), strict=True)
        joined: Any = tails[0] if len(tails) == 1 else pc.binary_join_element_wise(*tails, b"")
        return joined, np.maximum.reduce(outcomes)

    def trimmed(self, value: bytes) -> bytes:
        """An event that ends with its brace, and has no members of the names that are to be added."""
        return _trimmed(value, self.added)


class LaterLookup:
    """The same bytes for a few events that have waited: straight from the tables as they are now."""

    def __init__(self, enrich: Enrich, tables: Mapping[str, Versions]) -> None:
        self._added = frozenset(enrich.added)
        self._own_names = re.compile(own_names(self._added).encode())
        self._tables = [
            (tables[table.name], _Members(enrich, table.name, tables[table.name].columns))
            for table in enrich.tables
        ]

    def tail(self, keys: Sequence[str | None], at: int) -> tuple[bytes, int]:
        """How an event ends, and what became of its lookups."""
        tail, outcome = b"", FOUND
        for key, (versions, members) in zip(keys, self._tables, strict=True):
            found = versions.as_of(key, at)
            if found is not None:
                tail += members.found(*found)
            else:
                tail += members.no_key if key is None else members.unknown
                outcome = max(outcome, NO_KEY if key is None else UNKNOWN)
        return tail, outcome

    def completed(self, value: bytes, tail: bytes) -> bytes:
        sound = value.endswith(b"}") and not self._own_names.search(value)
        return (value if sound else _trimmed(value, self._added))[:-1] + tail


def make_enricher(
    enrich: Enrich, tables: Mapping[str, Versions], version: str, waits: bool = False
) -> Enricher:
    return Enricher(
        enrich.name,
        version,
        enrich.topic,
        enrich.dead_letters if enrich.ends_dead else "",
        tuple(table.on for table in enrich.tables),
        tuple(_lookup(enrich, table.name, tables[table.name]) for table in enrich.tables),
        frozenset(enrich.added),
        waits,
    )


class _Members:
    """The JSON members that a table ends an event with; the last table closes the event."""

    def __init__(self, enrich: Enrich, table: str, columns: Sequence[str]) -> None:
        wanted = [(json.dumps(name), column) for name, (of, column) in enrich.columns.items() if of == table]
        # A table as it was when a batch began may lack a column that was declared since.
        self._places = [
            (name, columns.index(column) if column in columns else None) for name, column in wanted
        ]
        self._table, self._closing = table, "}" if table == enrich.tables[-1].name else ""
        nothing = "".join(f",{name}:null" for name, _ in wanted) + f',"{table}_valid_from":null'
        self.unknown = f'{nothing},"{table}_found":false{self._closing}'.encode()
        self.no_key = f'{nothing},"{table}_found":null{self._closing}'.encode()

    def found(self, start: int, values: Sequence[object]) -> bytes:
        given = "".join(
            f",{name}:{'null' if place is None else json_text(values[place])}" for name, place in self._places
        )
        since = f'"{self._table}_valid_from":{_instant(start)}'
        return f'{given},{since},"{self._table}_found":true{self._closing}'.encode()


def _lookup(enrich: Enrich, table: str, versions: Versions) -> Lookup:
    members = _Members(enrich, table, versions.columns)

    numbers: dict[str, int] = {}
    firsts, starts, ends = [0], [], []
    texts: list[bytes] = []
    for key, since in versions.starts.items():
        numbers[key] = len(numbers)
        for start, values in zip(since, versions.values[key], strict=True):
            starts.append(start)
            ends.append(-1 if values is None else len(texts))
            if values is not None:
                texts.append(members.found(start, values))
        firsts.append(len(starts))
    places = np.array(ends, np.int64)
    return Lookup(
        numbers,
        np.array(firsts, np.int64),
        np.array(starts, np.int64),
        np.where(places < 0, len(texts), places),
        pa.array([*texts, members.unknown, members.no_key], pa.binary()),
    )


def own_names(added: frozenset[str]) -> str:
    return f'"(?:{"|".join(re.escape(name) for name in sorted(added))})"'


def _trimmed(value: bytes, added: frozenset[str]) -> bytes:
    members = list(_members(value.decode()))
    if any(name in added for name, _ in members):
        return f"{{{','.join(text for name, text in members if name not in added)}}}".encode()
    return value.rstrip()


def _instant(micros: int) -> str:
    if micros == ALWAYS:
        return "null"
    return f'"{(_EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")}"'


def _members(text: str) -> Iterator[tuple[str, str]]:
    """The names and the texts of an object's members."""
    at = _next(text, text.index("{") + 1)
    while text[at] != "}":
        name, colon = _DECODER.raw_decode(text, at)
        start = _next(text, _next(text, colon) + 1)
        _, end = _DECODER.raw_decode(text, start)
        yield name, f"{json.dumps(name, ensure_ascii=False)}:{text[start:end]}"
        at = _next(text, end)
        if text[at] == ",":
            at = _next(text, at + 1)


def _next(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at
