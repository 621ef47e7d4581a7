"""What goes wrong on the way: every malformed record breaks its contract, whatever the stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

from .journey import stamp

_REQUIRED = ("event_id", "event_time", "event_type", "region")
_HOUR, _YEAR = 3_600.0, 31_536_000.0


def malformed(rng: Random, value: bytes) -> bytes | None:
    return rng.choice(_WAYS)(rng, value)


def stamped_ahead(rng: Random, at: float, head: str, tail: str) -> bytes:
    ahead = _HOUR * (_YEAR / _HOUR) ** rng.random()
    return f"{head}{stamp(at + ahead)}{tail}".encode()


def _truncated(rng: Random, value: bytes) -> bytes:
    return value[: rng.randrange(1, len(value))]


def _wrong_type(rng: Random, value: bytes) -> bytes:
    return _with(value, rng.choice(_REQUIRED), rng.choice([17, 2.5, True, ["x"], {"x": 1}]))


def _missing(rng: Random, value: bytes) -> bytes:
    return _with(value, rng.choice(_REQUIRED), None)


def _absent(rng: Random, value: bytes) -> bytes:
    record = json.loads(value)
    del record[rng.choice(_REQUIRED)]
    return json.dumps(record, separators=(",", ":")).encode()


def _bad_enum(rng: Random, value: bytes) -> bytes:
    return _with(
        value, *rng.choice([("event_type", "page_veiw"), ("region", "atlantis"), ("region", "Tashkent")])
    )


def _bad_time(rng: Random, value: bytes) -> bytes:
    return _with(
        value, "event_time", rng.choice(["2026-02-30T10:00:00Z", "01.07.2026 09:00", "1782896400", ""])
    )


def _not_utf8(rng: Random, value: bytes) -> bytes:
    at = rng.randrange(1, len(value))
    return value[:at] + rng.choice([b"\xff", b"\xc3\x28", b"\xed\xa0\x80"]) + value[at:]


def _empty(rng: Random, value: bytes) -> bytes | None:
    return rng.choice([None, b""])


def _not_an_object(rng: Random, value: bytes) -> bytes:
    return rng.choice([b"[" + value + b"]", b'"ping"', b"42", b"null", b"<xml/>", value + value])


_WAYS: tuple[Callable[[Random, bytes], bytes | None], ...] = (
    _truncated,
    _wrong_type,
    _missing,
    _absent,
    _bad_enum,
    _bad_time,
    _not_utf8,
    _empty,
    _not_an_object,
)


def _with(value: bytes, name: str, other: object) -> bytes:
    return json.dumps(json.loads(value) | {name: other}, separators=(",", ":")).encode()
