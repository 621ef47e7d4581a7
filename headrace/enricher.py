"""Adding the columns of tables to the bytes of events, in a worker: one lookup, no parsing, no new numbers.

Each version of a key is JSON already when it comes to the worker, so that an event costs a bisection and the
copying of its bytes; what the event itself says stays as it was written.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headrace.dimensions import ALWAYS, Versions, json_text
from headrace.enrich import Enrich

OUTCOMES = ("found", "no_key", "unknown")  # of several tables, the last one says it
FOUND, NO_KEY, UNKNOWN = range(3)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Lookup:
    """One table: for each key, since when which JSON members end an event."""

    versions: dict[str, tuple[list[int], list[bytes | None]]]
    unknown: bytes
    no_key: bytes

    def members(self, keys: Sequence[str | None], times: Sequence[int]) -> tuple[list[bytes], list[int]]:
        """For each event the members and the outcome. This loop sees every event of a stream."""
        known, unknown, no_key = self.versions.get, self.unknown, self.no_key
        members: list[bytes] = []
        outcomes: list[int] = []
        for key, at in zip(keys, times, strict=True):
            if key is None:
                members.append(no_key)
                outcomes.append(NO_KEY)
                continue
            history = known(key)
            if history is not None:
                place = bisect_right(history[0], at) - 1
                found = history[1][place] if place >= 0 else None
                if found is not None:
                    members.append(found)
                    outcomes.append(FOUND)
                    continue
            members.append(unknown)
            outcomes.append(UNKNOWN)
        return members, outcomes


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

    @property
    def own_names(self) -> str:
        """A regular expression for an event that may have members of these names itself."""
        return f'"(?:{"|".join(re.escape(name) for name in sorted(self.added))})"'

    def tails(
        self, keys: Sequence[Sequence[str | None]], times: Sequence[int]
    ) -> tuple[list[bytes], list[int]]:
        """How each event ends, and what became of its lookups; `keys` has a column for each table."""
        tails, outcomes = self.lookups[0].members(keys[0], times)
        for lookup, column in zip(self.lookups[1:], keys[1:], strict=True):
            more, others = lookup.members(column, times)
            tails = [a + b for a, b in zip(tails, more, strict=True)]
            outcomes = [max(a, b) for a, b in zip(outcomes, others, strict=True)]
        return tails, outcomes

    def trimmed(self, value: bytes) -> bytes:
        """An event that ends with its brace, and has no members of the names that are to be added."""
        members = list(_members(value.decode()))
        if any(name in self.added for name, _ in members):
            return f"{{{','.join(text for name, text in members if name not in self.added)}}}".encode()
        return value.rstrip()


def make_enricher(enrich: Enrich, tables: dict[str, Versions], version: str) -> Enricher:
    names = [table.name for table in enrich.tables]
    return Enricher(
        enrich.name,
        version,
        enrich.topic,
        enrich.dead_letters if enrich.unknown == "dead_letter" else "",
        tuple(table.on for table in enrich.tables),
        tuple(_lookup(enrich, name, tables[name], "}" if name == names[-1] else "") for name in names),
        frozenset(enrich.added),
    )


def _lookup(enrich: Enrich, table: str, versions: Versions, closing: str) -> Lookup:
    wanted = [(name, column) for name, (owner, column) in enrich.columns.items() if owner == table]
    places = [(json.dumps(name), versions.columns.index(column)) for name, column in wanted]

    def members(start: int, values: Sequence[object] | None) -> bytes | None:
        if values is None:
            return None
        given = "".join(f",{name}:{json_text(values[place])}" for name, place in places)
        return f'{given},"{table}_valid_from":{_instant(start)},"{table}_found":true{closing}'.encode()

    nothing = "".join(f",{name}:null" for name, _ in places) + f',"{table}_valid_from":null'
    return Lookup(
        {
            key: (list(starts), [members(s, v) for s, v in zip(starts, versions.values[key], strict=True)])
            for key, starts in versions.starts.items()
        },
        f'{nothing},"{table}_found":false{closing}'.encode(),
        f'{nothing},"{table}_found":null{closing}'.encode(),
    )


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
