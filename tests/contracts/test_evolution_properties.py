"""The verdict against a plain check: try every small event on both contracts."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.contracts import Field, Rules, Type
from headrace.contracts.evolution import compare
from tests.contracts.test_evolution import contract

TEXTS = ["", "a", "b", "ab", "abc"]
NUMBERS = [-2, -1, 0, 1, 2, 3]
ABSENT = None

small = st.one_of(st.none(), st.integers(-1, 2))
text_fields = st.builds(
    lambda required, enum, low, high: Field(
        "x", Type("string"), required, Rules(enum=enum, min_length=low, max_length=high)
    ),
    st.booleans(),
    st.one_of(st.none(), st.lists(st.sampled_from(TEXTS), min_size=1, unique=True).map(tuple)),
    st.one_of(st.none(), st.integers(0, 1)),
    st.one_of(st.none(), st.integers(1, 2)),
)
number_fields = st.builds(
    lambda required, low, high, above, below: Field(
        "x",
        Type("integer"),
        required,
        Rules(minimum=low, maximum=high, exclusive_minimum=above, exclusive_maximum=below),
    ),
    st.booleans(),
    small,
    small,
    small,
    small,
)
fields = st.one_of(text_fields, number_fields)


def accepts(field: Field | None, value: object) -> bool:
    """The rules once more, written as plainly as can be."""
    if field is None:
        return True
    if value is ABSENT:
        return not field.required
    rules = field.rules
    if field.type.kind == "string":
        return (
            isinstance(value, str)
            and (rules.enum is None or value in rules.enum)
            and len(value) >= (rules.min_length or 0)
            and (rules.max_length is None or len(value) <= rules.max_length)
        )
    return isinstance(value, int) and all(
        [
            rules.minimum is None or value >= rules.minimum,  # type: ignore[operator]
            rules.maximum is None or value <= rules.maximum,  # type: ignore[operator]
            rules.exclusive_minimum is None or value > rules.exclusive_minimum,  # type: ignore[operator]
            rules.exclusive_maximum is None or value < rules.exclusive_maximum,  # type: ignore[operator]
        ]
    )


def escapes(first: Field | None, second: Field | None) -> list[object]:
    """The values that the first field lets through and the second does not."""
    values = itertools.chain([ABSENT], TEXTS, NUMBERS)
    return [value for value in values if accepts(first, value) and not accepts(second, value)]


@settings(max_examples=300)
@given(st.one_of(st.none(), fields), st.one_of(st.none(), fields))
def test_what_is_called_safe_lets_no_value_escape(old: Field | None, new: Field | None) -> None:
    found = compare(contract(*[old] if old else []), contract(*[new] if new else []))
    if old is None and new is not None and not new.required:
        # An undeclared field may have held anything; a contract speaks only of what it declares.
        assert found.compatible
        return
    if found.compatibility in ("full", "backward"):
        assert escapes(old, new) == []
    if found.compatibility in ("full", "forward") and new is not None:
        assert escapes(new, old) == []
    if found.compatible:
        assert escapes(old, new) == []


@settings(max_examples=300)
@given(number_fields, number_fields)
def test_a_single_limit_is_never_called_breaking_without_a_witness(old: Field, new: Field) -> None:
    def lone(field: Field) -> Field:
        return Field("x", field.type, field.required, Rules(minimum=field.rules.minimum))

    found = compare(contract(lone(old)), contract(lone(new)))
    assert (found.compatibility in ("none", "forward")) == bool(escapes(lone(old), lone(new)))
    assert (found.compatibility in ("none", "backward")) == bool(escapes(lone(new), lone(old)))


@given(st.lists(fields, max_size=1))
def test_a_contract_does_not_differ_from_itself(extra: list[Field]) -> None:
    found = compare(contract(*extra), contract(*extra))
    assert (found.changes, found.level, found.verdict, found.version_ok) == ((), "none", "compatible", True)


@given(fields, fields)
def test_there_and_back_swaps_the_sides(old: Field, new: Field) -> None:
    there, back = compare(contract(old), contract(new)), compare(contract(new), contract(old))
    swapped = {"full": "full", "none": "none", "backward": "forward", "forward": "backward"}
    assert back.compatibility == swapped[there.compatibility]
