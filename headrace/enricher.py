"""Adding the columns of tables to an event's bytes, in a worker: one lookup, no parsing, no new numbers.

Each version of a key is JSON already when it comes to the worker, so that an event costs a bisection and the
copying of its bytes; what the event itself says stays as it was written.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from headrace.dimensions import ALWAYS, Versions, json_text
from headrace.enrich import Enrich

FOUND, UNKNOWN, NO_KEY = "found", "unknown", "no_key"
OUTCOMES = (FOUND, UNKNOWN, NO_KEY)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Lookup:
    """One table: for each key, since when which JSON members are to be added."""

    versions: dict[str, tuple[list[int], list[bytes | None]]]
    unknown: bytes
    no_key: bytes

    def members(self, key: str | None, at: int) -> tuple[bytes, str]:
        if key is None:
            return self.no_key, NO_KEY
        found = self.versions.get(key)
        if found is not None:
            place = bisect_right(found[0], at) - 1
            members = found[1][place] if place >= 0 else None
            if members is not None:
                return members, FOUND
        return self.unknown, UNKNOWN


@dataclass(frozen=True)
class Enricher:
    """All that a worker needs for one enrichment."""

    name: str
    topic: str
    dead_letters: str  # empty: unknown keys are kept
    fields: tuple[str, ...]  # of the event, one for each lookup
    lookups: tuple[Lookup, ...]
    names: tuple[bytes, ...]  # of the added members, in quotes
    version: str = ""
    plain_names: frozenset[str] = field(default_factory=frozenset)

    def enriched(self, value: bytes, keys: Sequence[str | None], at: int) -> tuple[bytes, str]:
        """The event with its new members, and whether every table knew it."""
        parts, outcomes = [self._body(value)], set()
        for lookup, key in zip(self.lookups, keys, strict=True):
            members, outcome = lookup.members(key, at)
            parts.append(members)
            outcomes.add(outcome)
        parts.append(b"}")
        outcome = UNKNOWN if UNKNOWN in outcomes else NO_KEY if NO_KEY in outcomes else FOUND
        return b"".join(parts), outcome

    def outcome(self, keys: Sequence[str | None], at: int) -> str:
        return self.enriched(b"{}", keys, at)[1]

    def _body(self, value: bytes) -> bytes:
        """The object without its closing brace, and without members of a name that is about to be added."""
        if any(name in value for name in self.names):
            value = _without(value, self.plain_names)
        return value.rstrip()[:-1]


def make_enricher(enrich: Enrich, tables: dict[str, Versions], version: str) -> Enricher:
    lookups = tuple(_lookup(enrich, table.name, tables[table.name]) for table in enrich.tables)
    return Enricher(
        enrich.name,
        enrich.topic,
        enrich.dead_letters if enrich.unknown == "dead_letter" else "",
        tuple(table.on for table in enrich.tables),
        lookups,
        tuple(json.dumps(name).encode() for name in enrich.added),
        version,
        frozenset(enrich.added),
    )


def _lookup(enrich: Enrich, table: str, versions: Versions) -> Lookup:
    wanted = [(name, column) for name, (owner, column) in enrich.columns.items() if owner == table]
    places = [(json.dumps(name), versions.columns.index(column)) for name, column in wanted]

    def members(start: int, values: Sequence[object] | None) -> bytes | None:
        if values is None:
            return None
        given = "".join(f",{name}:{json_text(values[place])}" for name, place in places)
        return f'{given},"{table}_valid_from":{_instant(start)},"{table}_found":true'.encode()

    nothing = "".join(f",{name}:null" for name, _ in places) + f',"{table}_valid_from":null'
    return Lookup(
        {
            key: (list(starts), [members(s, v) for s, v in zip(starts, versions.values[key], strict=True)])
            for key, starts in versions.starts.items()
        },
        f'{nothing},"{table}_found":false'.encode(),
        f'{nothing},"{table}_found":null'.encode(),
    )


def _instant(micros: int) -> str:
    if micros == ALWAYS:
        return "null"
    return f'"{(_EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")}"'


def _without(value: bytes, names: frozenset[str]) -> bytes:
    """The object without some of its members; the others keep their bytes."""
    text = value.decode()
    kept = [member for name, member in _members(text) if name not in names]
    return f"{{{','.join(kept)}}}".encode()


def _members(text: str) -> Iterator[tuple[str, str]]:
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
