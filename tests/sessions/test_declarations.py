"""Wrong declarations of sessions: one clear error, with the line, before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace import App, Sessions, count, distinct, first_of, last_of, sum_of, top
from headrace.contracts import load_contract
from headrace.declared import Declared
from headrace.errors import AppError
from headrace.local.services import Services
from headrace.ops.derive import derive
from headrace.ops.load import load_app
from headrace.store.source_accounts import SourceAccounts
from headrace.views.session_pieces import resolve_sessions
from tests.sessions.stream import SessionStream
from tests.views.stream import CONTRACT


def declared(name: str = "visits", **more: Any) -> Sessions:
    given = {
        "of": "sales",
        "key": "customer",
        "gap": "30 minutes",
        "max_length": "4 hours",
        "measures": {"n": count(), "entry": first_of("region"), "exit": last_of("region")},
    }
    return App("wrong").sessions(name, **{**given, **more})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": "Visits"}, "'Visits' is no name for sessions"),
        ({"gap": "0 s"}, "sessions 'visits' need a gap"),
        ({"gap": "soon"}, "sessions 'visits': 'soon' is not a duration"),
        ({"max_length": "10 minutes"}, "max_length is shorter than the gap of 30 minutes"),
        ({"final_after": "0 s"}, "final_after must be longer than nothing"),
        ({"preliminary_after": "10 min"}, "cannot be preliminary after it is final"),
        ({"measures": {"who": distinct("kind")}}, "who: distinct is not possible in sessions"),
        ({"measures": {"who": top("kind")}}, "who: top is not possible in sessions"),
        ({"measures": {"events": count()}}, "have two columns 'events'"),
        ({"derived": {"customer": "n"}}, "have two columns 'customer'"),
    ],
)
def test_what_needs_no_contract(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(AppError, match=says) as caught:
        declared(**wrong)
    assert Path(__file__).name in caught.value.where


@pytest.mark.parametrize(
    ("wrong", "says", "hint"),
    [
        ({"key": "custmer"}, "sessions 'visits', key: no field 'custmer'", "did you mean 'customer'?"),
        ({"where": "kindd = 'sale'"}, "sessions 'visits', where: there is no column 'kindd'", ""),
        ({"measures": {"x": sum_of("region")}}, "sessions 'visits', x: sum needs numbers", ""),
        ({"derived": {"x": "m > 0"}}, "x: there is no column 'm'", ""),
        ({"derived": {"x": "array(n)"}}, "x: 'ARRAY\\(n\\)' may fail on a row", ""),
        ({"derived": {"x": "exp(n)"}}, "x: 'EXP\\(n\\)' may fail on a row", ""),
    ],
)
def test_what_the_contract_decides(spark: SparkSession, wrong: dict[str, Any], says: str, hint: str) -> None:
    with pytest.raises(AppError, match=says) as caught:
        resolve_sessions(spark, [declared(**wrong)], load_contract(CONTRACT))
    assert caught.value.hint == hint or not hint
    assert Path(__file__).name in caught.value.where


def test_derived_columns_are_numbers_conditions_and_texts(spark: SparkSession) -> None:
    formulas = {"double": "n * 2", "stayed": "entry = exit", "path": "concat(entry, ' to ', exit)"}
    formulas["size"] = "ln(n)"
    [resolved] = resolve_sessions(spark, [declared(derived=formulas)], load_contract(CONTRACT))
    types = {name: type_ for name, (_, type_) in resolved.formulas.items()}
    assert types == {
        "double": "double precision",
        "stayed": "boolean",
        "path": "text",
        "size": "double precision",
    }
    assert resolved.formulas["size"][0].startswith("(CASE WHEN")


def test_a_changed_declaration_says_what_can_be_kept(spark: SparkSession, services: Services) -> None:
    first = SessionStream(spark, services.store_url, declared(derived={"double": "n * 2"}))

    def again(sessions: Sessions) -> None:
        found = derive(spark, first.app, first.app, first.contract, Declared(sessions=(sessions,)))
        assert found is not None
        SourceAccounts(first.store, first.app, first.contract, found.folds).prepare()

    again(declared(retain="1 day", derived={"any": "n > 0"}))
    with pytest.raises(AppError, match="another meaning: gap, max_length changed"):
        again(declared(gap="20 minutes", max_length="1 hour", derived={"any": "n > 0"}))


@pytest.mark.parametrize("metric_first", [True, False])
def test_a_name_is_one_table(tmp_path: Path, metric_first: bool) -> None:
    lines = [
        "app.metric('visits', of='sales', window=tumbling('1 minute'), measures={'n': count()})",
        "app.sessions('visits', of='sales', key='customer', gap='1 min', max_length='1 h',"
        " measures={'n': count()})",
    ]
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts" / "sales.yaml").write_text(CONTRACT.read_text())
    made = ["from headrace import App, count, tumbling", "app = App('x')"]
    (tmp_path / "app.py").write_text("\n".join([*made, *(lines if metric_first else lines[::-1])]))
    with pytest.raises(AppError, match="'visits' is the name of a metric and of sessions"):
        load_app(tmp_path)
    (tmp_path / "app.py").write_text("\n".join([*made, lines[1].replace("'sales'", "'sale'")]))
    with pytest.raises(AppError, match="no stream 'sale'"):
        load_app(tmp_path)
