"""Seeded records of every kind a producer may send to a contract's topic: about a third are valid.

for value in fuzz_records(contract, count=10_000, seed=1): ...
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from random import Random

from headrace.contracts.model import Contract, Field, Type
from headrace.testing import hostile
from headrace.testing.samples import fragment, moment, text

NOW = datetime(2026, 7, 1, 9, tzinfo=UTC)
_POOL = 64  # fragments kept for each field, valid ones and others
_TIMES = 2048
_IDS_KEPT = 200  # ids seen last; a few records take one of them again

Parts = list[tuple[str, str]]  # written name and JSON value of each member


def fuzz_records(contract: Contract, count: int, seed: int, now: datetime = NOW) -> Iterator[bytes | None]:
    """`count` record values. Event times of the valid ones lie in the hour before `now`."""
    author = _Author(contract, Random(f"{contract.name} {seed}"), now)
    for _ in range(count):
        yield author.write()


class _Author:
    def __init__(self, contract: Contract, rng: Random, now: datetime) -> None:
        self.rng = rng
        self.random = rng.random
        self.contract = contract
        self.fields = contract.fields
        self.names = [json.dumps(field.name) for field in contract.fields]
        self.good = [self._pool(field, now) for field in contract.fields]
        self.bad = [[wrong(field, rng, now) for _ in range(_POOL * 2)] for field in contract.fields]
        self.id_at = [f.name for f in contract.fields].index(contract.event_id)
        self.id_rules = contract.field(contract.event_id).rules
        self.ids: list[str] = []
        self.ways, weights = zip(*_WAYS, strict=True)
        self.ends = list(accumulate(weights))

    def write(self) -> bytes | None:
        way: Callable[[_Author], bytes | str | None] = self.ways[
            bisect_right(self.ends, self.random() * self.ends[-1])
        ]
        written = way(self)
        # A raw surrogate cannot be UTF-8: let it be what it is, a byte sequence that no reader may accept.
        return written.encode("utf-8", "surrogatepass") if isinstance(written, str) else written

    def parts(self) -> Parts:
        random = self.random
        chosen = []
        for at, field in enumerate(self.fields):
            luck = random()
            pool = self.good[at]
            if at == self.id_at:
                chosen.append((self.names[at], self._id()))
            elif field.required or luck < 0.8:
                chosen.append((self.names[at], pool[int(random() * len(pool))]))
            elif luck < 0.85:
                chosen.append((self.names[at], "null"))
        return chosen

    def any_wrong(self) -> tuple[str, str]:
        at = int(self.random() * len(self.fields))
        return self.names[at], self.bad[at][int(self.random() * len(self.bad[at]))]

    def _pool(self, field: Field, now: datetime) -> list[str]:
        if field.name == self.contract.event_time:
            hour = (now - timedelta(seconds=self.random() * 3600) for _ in range(_TIMES))
            return [f'"{moment(self.rng, at)}"' for at in hour]
        return [fragment(field, self.rng, now) for _ in range(_POOL)]

    def _id(self) -> str:
        if self.ids and self.random() < 0.03:
            return self.ids[int(self.random() * len(self.ids))]
        fresh = json.dumps(text(self.id_rules, self.rng))
        if len(self.ids) < _IDS_KEPT:
            self.ids.append(fresh)
        else:
            self.ids[int(self.random() * _IDS_KEPT)] = fresh
        return fresh


def joined(parts: Parts) -> str:
    return "{" + ",".join([f"{name}:{value}" for name, value in parts]) + "}"


def wrong(field: Field, rng: Random, now: datetime) -> str:
    """A value that the field most likely refuses, at any depth."""
    near = hostile.edges(field)
    if near and rng.random() < 0.4:
        return rng.choice(near)
    if field.type.kind in ("timestamp", "date") and rng.random() < 0.7:
        return f'"{rng.choice(hostile.MOMENTS)}"'
    if field.type.kind in ("object", "array", "map") and rng.random() < 0.8:
        return _wrong_inside(field.type, rng, now)
    return hostile.numbers_and_strings(rng)


def _wrong_inside(type: Type, rng: Random, now: datetime) -> str:
    if type.kind == "object":
        parts = [(json.dumps(f.name), fragment(f, rng, now)) for f in type.fields]
        at = rng.randrange(len(parts)) if parts else 0
        if parts and rng.random() < 0.3:
            del parts[at]
        elif parts:
            parts[at] = (parts[at][0], wrong(type.fields[at], rng, now))
        return joined(parts)
    assert type.element is not None
    values = [fragment(type.element, rng, now) for _ in range(rng.choice([0, 1, 2, 3, 30]))]
    values.insert(rng.randrange(len(values) + 1), rng.choice(["null", wrong(type.element, rng, now)]))
    if type.kind == "array":
        return f"[{','.join(values)}]"
    return "{" + ",".join(f'"{rng.choice("abcdefgh")}":{value}' for value in values) + "}"


def _valid(author: _Author) -> str:
    return joined(author.parts())


def _wrong_field(author: _Author) -> str:
    name, value = author.any_wrong()
    return joined([(n, value if n == name else v) for n, v in author.parts()])


def _hostile_field(author: _Author) -> str:
    rng = author.rng
    parts = author.parts()
    at = rng.randrange(len(parts))
    value = hostile.numbers_and_strings(rng)
    if rng.random() < 0.02:
        value = hostile.nested(rng.choice([10, 100, 998, 999, 1000, 1001, 5000]), rng)
    elif rng.random() < 0.005:
        value = hostile.long_text(rng)
    parts[at] = (parts[at][0], value)
    return joined(parts)


def _deleted(author: _Author) -> str:
    parts = author.parts()
    for _ in range(author.rng.choice([1, 1, 1, 2, 5])):
        if parts:
            del parts[author.rng.randrange(len(parts))]
    return joined(parts)


def _doubled(author: _Author) -> str:
    """A key twice, sometimes in another spelling; either of the two may be the wrong one."""
    parts = author.parts()
    again = author.any_wrong() if author.random() < 0.5 else author.rng.choice(parts)
    name = _spelled(author.rng, again[0]) if author.random() < 0.3 else again[0]
    parts.insert(author.rng.randrange(len(parts) + 1), (name, again[1]))
    return joined(parts)


def _respelled(author: _Author) -> str:
    rng = author.rng
    return joined([(_spelled(rng, n) if rng.random() < 0.3 else n, v) for n, v in author.parts()])


def _extended(author: _Author) -> str:
    parts = author.parts()
    value = author.rng.choice(hostile.OTHERS + hostile.STRINGS + hostile.NUMBERS[:20])
    name = author.rng.choice(
        ['"extra"', '""', '"EVENT_ID"', '"a.b"', '"__proto__"', '"\\u0000"', '"ў"', '"event_id "']
    )
    parts.insert(author.rng.randrange(len(parts) + 1), (name, value))
    return joined(parts)


def _spaced(author: _Author) -> str:
    parts = author.parts()
    author.rng.shuffle(parts)
    gap = author.rng.choice([" ", "\n", "\r\n", "\t", "  \n\t ", "\n" * 20])
    inner = f"{gap},{gap}".join([f"{name}{gap}:{gap}{value}" for name, value in parts])
    return f"{gap}{{{gap}{inner}{gap}}}{gap}"


def _wrapped(author: _Author) -> str:
    whole = _valid(author)
    style = author.rng.randrange(5)
    if style == 0:
        return author.rng.choice(hostile.BEFORE) + whole
    if style == 1:
        return f"[{whole}]"
    if style == 2:
        return whole.replace('"', "'")
    return whole + (whole if style == 3 else author.rng.choice(hostile.AFTER))


def _root(author: _Author) -> str:
    if author.random() < 0.1:
        return hostile.nested(author.rng.choice([10, 999, 1000, 1001, 2000, 5000]), author.rng)
    return author.rng.choice(hostile.ROOTS)


def _flipped(author: _Author) -> bytes:
    value = bytearray(_valid(author).encode())
    for _ in range(author.rng.choice([1, 1, 1, 2, 8])):
        value[int(author.random() * len(value))] ^= 1 << author.rng.randrange(8)
    return bytes(value)


def _cut(author: _Author) -> bytes:
    value = _valid(author).encode()
    start = author.rng.randrange(1, len(value)) if author.random() < 0.3 else 0
    return value[start : author.rng.randrange(start, len(value))]


def _spliced(author: _Author) -> bytes:
    value = _valid(author).encode()
    at = author.rng.randrange(len(value))
    extra = author.rng.choice(
        [b"\x00", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\\", b'"']
    )
    return value[:at] + extra + value[at:]


def _noise(author: _Author) -> bytes:
    return author.rng.randbytes(author.rng.randrange(1, 200))


def _nothing(author: _Author) -> bytes | None:
    return author.rng.choice([None, b""])


def _spelled(rng: Random, name: str) -> str:
    """The same key with one letter escaped."""
    if len(name) < 3:
        return name
    at = rng.randrange(1, len(name) - 1)
    return (
        name
        if not name[at].isalpha() or name[at - 1] == "\\"
        else f"{name[:at]}\\u{ord(name[at]):04x}{name[at + 1 :]}"
    )


_WAYS: tuple[tuple[Callable[[_Author], bytes | str | None], int], ...] = (
    *((_valid, 13), (_spaced, 3), (_respelled, 3), (_extended, 3)),
    *((_wrong_field, 26), (_hostile_field, 13), (_deleted, 8), (_doubled, 6)),
    *((_wrapped, 6), (_root, 3), (_flipped, 5), (_cut, 3), (_spliced, 3), (_noise, 2), (_nothing, 1)),
)
