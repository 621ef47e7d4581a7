"""Wrong patterns: one clear error, with the line and the position, before anything starts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace import App, Pattern
from headrace.contracts import load_contract
from headrace.errors import AppError
from headrace.flows.pattern_rule import resolve_patterns
from headrace.ops.load import load_app
from tests.flows.pattern_stream import CONTRACT

TURANMART = Path(__file__).parents[2] / "apps" / "turanmart"
SEQUENCE = {"sequence": "F{3,} H", "define": {"F": "kind = 'f'", "H": "kind = 'h' AND price > 5"}}
VELOCITY = {"count": 3, "where": "kind = 'f'"}
ABSENCE = {"starts": "kind = 's'", "without": "kind = 'e'"}


def declared(**words: Any) -> Pattern:
    given = {"of": "sales", "key": "customer", "within": "10 minutes", **words}
    return App("wrong").pattern(given.pop("name", "bad"), **given)


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("", "there is no sequence, at position 1", "at least one symbol"),
        ("F G", "no symbol 'G' is defined, at position 3 of 'F G'", "there are: F, H"),
        ("FH", "no symbol 'FH' is defined, at position 1", "separated by spaces: F H"),
        ("F{3", "'{' has no meaning here, at position 2", ""),
        ("F{} H", "'{}' is no quantifier, at position 2", "{3}, {3,} or {3,5}"),
        ("F{3,2} H", "'{3,2}' allows nothing", ""),
        ("F{0} H", "'{0}' allows nothing", ""),
        ("F{1001} H", "'{1001}' is too much", "at most 1000"),
        ("F+* H", "two quantifiers in a row, at position 3", ""),
        ("* F H", "'*' has nothing to repeat, at position 1", ""),
        ("(F H", "this group is not closed, at position 1", ""),
        ("F H)", "')' closes nothing, at position 4", ""),
        ("F () H", "an element is missing, at position 4", ""),
        ("F | | H", "an element is missing, at position 5", ""),
        ("!F H", "nothing comes before this, at position 1", "A !X B"),
        ("F !H", "nothing comes after this, at position 3", "A !X B"),
        ("F ! (H)", "'!' stands before a symbol, at position 5", ""),
        ("F !F H?", "what follows '!' may be missing, at position 3", "A (!X B)?"),
        ("F* H?", "could match no event at all", "must not be optional"),
        ("F & H", "'&' has no meaning here, at position 3", ""),
        ("F F", "'H' is defined and not in the sequence", "A !H B"),
    ],
)
def test_a_wrong_sequence(text: str, says: str, hint: str) -> None:
    with pytest.raises(AppError) as error:
        declared(sequence=text, define=SEQUENCE["define"])
    assert says in error.value.what
    assert hint in error.value.hint
    assert error.value.where.startswith(__file__)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({}, "says nothing to look for"),
        ({**SEQUENCE, **VELOCITY}, "is sequence and velocity at once"),
        ({**ABSENCE, "count": 2}, "is velocity and absence at once"),
        ({**SEQUENCE, "define": {"F": "x", "H": " "}}, "symbol 'H' has no condition"),
        ({**SEQUENCE, "define": {f"S{n}": "x" for n in range(11)}}, "more than 10 symbols"),
        ({**VELOCITY, "count": 0}, "count is a whole number from 1 to 1000, not 0"),
        ({"where": "kind = 'f'"}, "count is a whole number from 1 to 1000, not None"),
        ({"starts": "kind = 's'"}, "without has no condition"),
        ({**VELOCITY, "key": ()}, "has no key"),
        ({**VELOCITY, "within": "soon"}, "'soon' is not a duration"),
        ({**VELOCITY, "within": "0 seconds"}, "within must be longer than nothing"),
        ({**VELOCITY, "final_after": "1 minute"}, "final_after is for starts and without"),
        ({**VELOCITY, "show": "region"}, "show is a list of fields"),
        ({**VELOCITY, "show": ["events"]}, "an alert has a 'events' of its own"),
        ({**VELOCITY, "message": "{price}"}, "message: there is no 'price'"),
        ({**VELOCITY, "severity": "grave"}, "there is no severity 'grave'"),
        ({**VELOCITY, "topic": "a topic"}, "is no name for a topic"),
        ({**VELOCITY, "name": "Bad"}, "'Bad' is no name"),
    ],
)
def test_wrong_words(words: dict[str, Any], says: str) -> None:
    with pytest.raises(AppError) as error:
        declared(**words)
    assert says in error.value.what
    assert error.value.where.startswith(__file__)


def test_two_patterns_of_a_name() -> None:
    app = App("twice")
    app.pattern("bad", of="sales", key="customer", within="1 minute", count=2)
    with pytest.raises(AppError, match="pattern 'bad' is declared twice"):
        app.pattern("bad", of="sales", key="customer", within="1 minute", count=2)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            'app.pattern("x", of="logons", key="customer_id", count=2, within="1 minute")',
            "no stream 'logons'",
        ),
        (
            'app.pattern("low_conversion", of="logins", key="region", count=2, within="1 minute")',
            "of an alert",
        ),
        ('app.pattern("revenue_10m", of="logins", key="region", count=2, within="1 minute")', "of a metric"),
        (
            'app.pattern("x", of="logins", key="region", count=2, within="1 minute", topic="logins.raw.v1")',
            "logins.raw.v1 is a topic of the stream 'logins'",
        ),
    ],
)
def test_a_pattern_that_does_not_fit_its_app(tmp_path: Path, line: str, says: str) -> None:
    shutil.copytree(TURANMART, tmp_path / "shop")
    with (tmp_path / "shop" / "app.py").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(AppError) as error:
        load_app(tmp_path / "shop")
    assert says in error.value.what
    assert "app.py:" in error.value.where


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        ({**VELOCITY, "key": "custmer"}, "key: no field 'custmer'", "did you mean 'customer'?"),
        ({**VELOCITY, "show": ["prize"]}, "show: no field 'prize'", "did you mean 'price'?"),
        ({**VELOCITY, "where": "knd = 'f'"}, "EACH: there is no column 'knd'", "did you mean 'kind'?"),
        ({**VELOCITY, "where": "price + 1"}, "'price + 1' is not a condition", ""),
        ({**VELOCITY, "where": "count(*) > 1"}, "aggregates by itself", ""),
        ({**SEQUENCE, "sequence": "(F? H?){1000} F{1000}"}, "the sequence is too long", "fewer repeats"),
    ],
)
def test_a_pattern_that_does_not_fit_its_contract(
    spark: SparkSession, words: dict[str, Any], says: str, hint: str
) -> None:
    with pytest.raises(AppError) as error:
        resolve_patterns(spark, [declared(**words)], load_contract(CONTRACT))
    assert says in error.value.what
    assert hint in error.value.hint
    assert error.value.where.startswith(__file__)


def test_a_decimal_is_shown_as_text(spark: SparkSession) -> None:
    [rule] = resolve_patterns(spark, [declared(**SEQUENCE, show=["price", "items"])], load_contract(CONTRACT))
    shown = rule.shown_of(("1", *["k"] * len(rule.pattern.key), "12.50", "3"))
    assert shown == '{"price": "12.50", "items": 3}'


def test_what_it_takes(spark: SparkSession) -> None:
    [rule] = resolve_patterns(spark, [declared(**SEQUENCE, show=["region"])], load_contract(CONTRACT))
    assert rule.fields == ("customer", "kind", "region", "price")
    want = rule.want()
    assert (list(want.columns), want.closest) == (["mask", "key0", "show0"], None)
    [rule] = resolve_patterns(spark, [declared(**ABSENCE, final_after="1 minute")], load_contract(CONTRACT))
    assert rule.want().closest == rule.pattern.final_after
