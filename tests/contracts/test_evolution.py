"""What a change between two versions breaks, and which version it asks for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.contracts import Contract, Field, Mask, Role, Rules, Type, load_contract
from headrace.contracts.evolution import Comparison, compare
from tests.contracts.files import TURANMART

S, INT, N = Type("string"), Type("integer"), Type("number")


def contract(*fields: Field, version: str = "1.4.2") -> Contract:
    identity = (Field("id", S, True), Field("at", Type("timestamp"), True), Field("who", S, True))
    minute = timedelta(minutes=1)
    every = (*identity, *fields)
    return Contract("taps", version, every, "id", "at", "who", minute, minute, minute, minute, 4, minute)


def step(old: Field | None, new: Field | None) -> Comparison:
    return compare(contract(*[old] if old else []), contract(*[new] if new else [], version="9.0.0"))


def enum(*values: str) -> Field:
    return Field("x", S, rules=Rules(enum=values))


def ruled(type_: Type = INT, **rules: object) -> Field:
    return Field("x", type_, rules=Rules(**rules))  # type: ignore[arg-type]


def inside(field: Field) -> Field:
    return Field("x", Type("object", fields=(field,)))


X, MUST = Field("x", S), Field("x", S, True)
DEC = Type("decimal", 10, 2)

STEPS = [
    # old, new, level, compatibility
    (None, X, "minor", "full"),
    (None, MUST, "major", "forward"),
    (X, None, "major", "backward"),
    (X, MUST, "major", "forward"),
    (MUST, X, "minor", "backward"),
    (enum("a"), enum("a", "b"), "minor", "backward"),
    (enum("a", "b"), enum("a"), "major", "forward"),
    (enum("a"), enum("b"), "major", "none"),
    (enum("a", "b"), enum("b", "a"), "none", "full"),
    (X, enum("a"), "major", "forward"),
    (enum("a"), X, "minor", "backward"),
    (X, ruled(S, pattern="^a"), "major", "forward"),
    (ruled(S, pattern="^a"), X, "minor", "backward"),
    (ruled(S, pattern="^a"), ruled(S, pattern="^b"), "major", "none"),
    (ruled(minimum=1), ruled(minimum=2), "major", "forward"),
    (ruled(minimum=2), ruled(minimum=1), "minor", "backward"),
    (ruled(), ruled(maximum=5), "major", "forward"),
    (ruled(maximum=5), ruled(), "minor", "backward"),
    (ruled(maximum=5), ruled(maximum=4), "major", "forward"),
    (ruled(minimum=1, maximum=5), ruled(minimum=2, maximum=6), "major", "none"),
    (ruled(minimum=1), ruled(exclusive_minimum=0), "none", "full"),
    (ruled(N, minimum=1.0), ruled(N, exclusive_minimum=1.0), "major", "forward"),
    (ruled(S, min_length=1), ruled(S, min_length=2), "major", "forward"),
    (ruled(S, min_length=0), ruled(S), "none", "full"),
    (ruled(S, max_length=9), ruled(S, max_length=8), "major", "forward"),
    (ruled(S, max_length=9), ruled(S), "minor", "backward"),
    (
        ruled(Type("date"), minimum="2026-01-01"),
        ruled(Type("date"), minimum="2025-12-31"),
        "minor",
        "backward",
    ),
    (Field("x", INT), Field("x", N), "minor", "backward"),
    (Field("x", INT), Field("x", Type("decimal", 21, 2)), "minor", "backward"),
    (Field("x", INT), Field("x", Type("decimal", 12, 2)), "major", "none"),
    (ruled(minimum=0, maximum=999), Field("x", Type("decimal", 4, 2)), "major", "none"),
    (Field("x", DEC), Field("x", Type("decimal", 12, 2)), "minor", "backward"),
    (Field("x", DEC), Field("x", Type("decimal", 12, 4)), "minor", "backward"),
    (Field("x", DEC), Field("x", Type("decimal", 10, 4)), "major", "none"),
    (Field("x", Type("decimal", 12, 2)), Field("x", DEC), "major", "forward"),
    (Field("x", N), Field("x", INT), "major", "forward"),
    (Field("x", N), Field("x", DEC), "major", "none"),
    (Field("x", S), Field("x", INT), "major", "none"),
    (Field("x", INT), Field("x", S), "major", "none"),
    (X, replace(X, mask=Mask("hash")), "major", "backward"),
    (X, replace(X, description="new", examples=("a",)), "patch", "full"),
    (X, replace(X, classification="internal"), "minor", "full"),
    (inside(enum("a", "b")), inside(enum("a")), "major", "forward"),
    (
        Field("x", Type("array", element=Field("element", INT))),
        Field("x", Type("array", element=Field("element", INT, True))),
        "major",
        "forward",
    ),
    (
        Field("x", Type("map", element=Field("value", INT))),
        Field("x", Type("map", element=Field("value", N))),
        "minor",
        "backward",
    ),
]


@pytest.mark.parametrize(("old", "new", "level", "compatibility"), STEPS)
def test_steps(old: Field | None, new: Field | None, level: str, compatibility: str) -> None:
    found = step(old, new)
    assert (found.level, found.compatibility) == (level, compatibility)
    assert found.compatible == (level != "major")
    assert all(change.path.startswith("x") and change.why for change in found.changes)


def test_limits_of_an_integer_decide_whether_it_fits_a_decimal() -> None:
    limited = ruled(minimum=0, maximum=999)
    (change,) = step(limited, ruled(Type("decimal", 5, 2), minimum=0, maximum=999)).changes
    assert (change.level, change.breaks) == ("minor", ("forward",))


def test_paths_lead_inside() -> None:
    deep = Field("x", Type("array", element=Field("element", Type("object", fields=(enum("a"),)))))
    deeper = Field("x", Type("array", element=Field("element", Type("object", fields=(enum("a", "b"),)))))
    assert [change.path for change in step(deep, deeper).changes] == ["x[].x"]
    one, two = (Field("x", Type("map", element=Field("value", t))) for t in (INT, N))
    assert [change.path for change in step(one, two).changes] == ["x{}"]


@pytest.mark.parametrize(
    ("old", "new", "broken"),
    [
        (Mask("drop"), Mask("hash"), "privacy"),
        (Mask("hash"), Mask("truncate", 3), "privacy"),
        (Mask("truncate", 3), Mask("truncate", 4), "privacy"),
        (Mask("hash"), None, "privacy"),
        (None, Mask("truncate", 9), "forward"),
        (Mask("truncate", 4), Mask("truncate", 3), "forward"),
        (Mask("truncate", 4), Mask("hash"), "forward"),
        (Mask("hash"), Mask("drop"), "forward"),
    ],
)
def test_a_weaker_mask_breaks_privacy_and_a_stronger_one_its_readers(
    old: Mask | None, new: Mask | None, broken: str
) -> None:
    (change,) = step(replace(X, mask=old), replace(X, mask=new)).changes
    assert (change.level, change.breaks) == ("major", (broken,))


@pytest.mark.parametrize(
    ("change", "path", "level", "broken"),
    [
        ({"name": "drips"}, "name", "major", ("identity",)),
        ({"event_id": "who"}, "event id", "major", ("identity",)),
        ({"event_time": "seen"}, "event time", "major", ("identity",)),
        ({"key": "id"}, "key", "major", ("key order",)),
        ({"partitions": 8}, "partitions", "major", ("key order",)),
        ({"compacted": True}, "compacted", "major", ("history",)),
        ({"retention": timedelta(days=1)}, "retention", "minor", ()),
        ({"lateness": timedelta(0)}, "lateness", "minor", ()),
        ({"max_future_skew": timedelta(0)}, "maxFutureSkew", "minor", ()),
        ({"dedupe_horizon": timedelta(days=1)}, "dedupeHorizon", "minor", ()),
        ({"idle_after": timedelta(days=1)}, "idleAfter", "minor", ()),
        ({"status": "deprecated"}, "status", "minor", ()),
        ({"roles": (Role("reader"),)}, "roles", "minor", ()),
        ({"owner": "plumbing"}, "owner", "patch", ()),
        ({"description": "More words."}, "description", "patch", ()),
    ],
)
def test_changes_of_the_contract_itself(
    change: dict[str, object], path: str, level: str, broken: tuple[str, ...]
) -> None:
    old = contract()
    (found,) = compare(old, replace(old, **change)).changes  # type: ignore[arg-type]
    assert (found.path, found.level, found.breaks) == (path, level, broken)


@pytest.mark.parametrize(
    ("new", "asked"),
    [(contract(), "1.4.2"), (contract(X), "1.5.0"), (contract(MUST), "2.0.0")],
)
def test_the_version_a_change_asks_for(new: Contract, asked: str) -> None:
    found = compare(contract(), new)
    assert found.asked_version == asked
    assert compare(contract(), replace(new, version=asked)).version_ok
    assert found.version_ok == (asked == "1.4.2")


def test_documentation_asks_for_a_patch_and_a_version_never_goes_back() -> None:
    assert compare(contract(), replace(contract(), owner="ada")).asked_version == "1.4.3"
    assert not compare(contract(), contract(version="1.4.1")).version_ok
    assert compare(contract(version="v1.9.0"), contract(X, version="1.10.0")).version_ok


def test_where_a_field_stands_in_the_file_is_no_change(tmp_path: Path) -> None:
    file = TURANMART / "orders.yaml"
    moved = tmp_path / "orders.yaml"
    moved.write_text("# a remark\n" + file.read_text())
    assert compare(load_contract(file), load_contract(moved)).changes == ()
    one, two = Field("x", S), Field("y", S)
    assert compare(contract(one, two), contract(two, one)).changes == ()
