"""Wrong declarations: one clear error, with the line, before anything starts."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from headrace import (
    App,
    Metric,
    count,
    distinct,
    first_of,
    mean_of,
    quantiles,
    running,
    sliding,
    sum_of,
    top,
    tumbling,
)
from headrace.contracts import load_contract
from headrace.errors import AppError, HeadraceError, UsageError
from headrace.local.services import Services
from headrace.ops.load import load_app
from headrace.store.metric_fold import MetricFold
from headrace.store.source_accounts import SourceAccounts
from headrace.views.batch import METRICS
from headrace.views.formulas import in_postgres
from headrace.views.resolve import resolve
from tests.views.stream import CONTRACT, Stream

MINUTE = tumbling("1 minute")


def declared(name: str = "sales_1m", **more: Any) -> Metric:
    given = {"of": "sales", "window": MINUTE, "measures": {"n": count()}, **more}
    return App("wrong").metric(name, **given)


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda: sliding("10 minutes", every="3 minutes"), "not a multiple of its hop of 3 minutes"),
        (lambda: tumbling("0 seconds"), "a window needs a length"),
        (lambda: running(reset="1 day", trigger="0 seconds"), "a trigger needs a length"),
        (lambda: running(reset="1 day", trigger="7 hours"), "not a multiple of its trigger of 7 hours"),
        (lambda: running(reset="1 day", trigger="often"), "'often' is not a duration"),
        (lambda: tumbling("1 minute", time="wall"), "time must be 'event' or 'ingestion'"),  # type: ignore[arg-type]
        (lambda: quantiles("price", (1.5,)), "ranks of quantiles lie between 0 and 1"),
        (lambda: top("region", 5, limit=3), "top 5 of at most 3 values"),
        (lambda: declared("Sales"), "'Sales' is no name for a metric"),
        (lambda: declared(measures={}), "measures nothing"),
        (lambda: declared(measures={"events": count()}), "has two columns 'events'"),
        (lambda: declared(by=["region"], measures={"region": count()}), "has two columns 'region'"),
        (lambda: declared(preliminary_after="2 minutes"), "cannot be preliminary after it is final"),
        (lambda: declared(final_after="soon"), "metric 'sales_1m': 'soon' is not a duration"),
        (lambda: declared(limit=0), "limit must be at least 1"),
        (lambda: declared(limit="many"), "limit must be at least 1, not 'many'"),
        (lambda: declared(retain="0 seconds"), "retain must be longer than 0 seconds"),
        (lambda: declared(window="1 minute"), "'1 minute' is no window"),
        (lambda: declared(measures={"n": "count(*)"}), "n: 'count\\(\\*\\)' is no measure"),
        (lambda: declared(by=5), "by: 5 is no list of fields"),
        (lambda: declared(by=["region", "region"]), "names a field twice"),
        (lambda: declared(by=[["region", "kind"], ["kind", "region"]]), "are the same grouping"),
        (lambda: declared("sales__growing"), "'sales__growing' is no name for a metric"),
        (lambda: declared(measures={"n": mean_of("price"), "n__sum": count()}), "'n__sum' is no name"),
        (lambda: sliding("30 days", every="1 second"), "every event would be in 2,592,000 windows"),
        (lambda: quantiles("price", 0.5), "ranks of quantiles lie between 0 and 1"),  # type: ignore[arg-type]
    ],
)
def test_what_needs_no_contract(declare: Callable[[], object], says: str) -> None:
    with pytest.raises(HeadraceError, match=says):
        declare()


def test_a_name_is_declared_once() -> None:
    app = App("twice")
    app.metric("sales_1m", of="sales", window=MINUTE, measures={"n": count()})
    with pytest.raises(AppError, match="declared twice") as caught:
        app.metric("sales_1m", of="sales", window=MINUTE, measures={"n": count()})
    assert Path(__file__).name in caught.value.where and Path(__file__).name in caught.value.hint


@pytest.mark.parametrize(
    ("wrong", "says", "hint"),
    [
        ({"by": ["regions"]}, "by: no field 'regions'", "did you mean 'region'?"),
        ({"where": "kindd = 'sale'"}, "where: there is no column 'kindd'", "did you mean 'kind'?"),
        ({"where": "items + 1"}, "where: 'items \\+ 1' is not a condition", ""),
        ({"measures": {"x": sum_of("prices")}}, "x: there is no column 'prices'", "did you mean 'price'?"),
        ({"measures": {"x": sum_of("max(price)")}}, "x: 'MAX\\(price\\)' aggregates by itself", ""),
        ({"measures": {"x": sum_of("region")}}, "x: sum needs numbers, and 'region' is string", ""),
        ({"measures": {"x": sum_of("rand()")}}, "x: 'RAND\\(\\)' is different every time", ""),
        ({"measures": {"x": sum_of("price +")}}, "x: cannot read 'price \\+'", ""),
        ({"measures": {"x": sum_of("price AS p")}}, "x: .*Syntax error", ""),
        ({"measures": {"x": sum_of("price; SELECT 1")}}, "is more than one expression", ""),
        ({"measures": {"x": sum_of("explode(array(1))")}}, "is not one value for each event", ""),
        ({"measures": {"x": distinct("hll_sketch_agg(kind)")}}, "is not one value for each event", ""),
        ({"measures": {"x": count("event_time < now()")}}, "x: 'NOW\\(\\)' changes with the time", ""),
        ({"measures": {"x": sum_of("uniform(1, 5)")}}, "x: 'UNIFORM\\(1, 5\\)' is different every time", ""),
        ({"measures": {"x": sum_of("spark_partition_id()")}}, "x: .* depends on where it runs", ""),
        ({"measures": {"x": distinct("no_function(price)")}}, "x: .*no_function", ""),
        ({"derived": {"share": "m / n"}}, "share: there is no column 'm'", "there are: n"),
        ({"derived": {"share": "exp(n)"}}, "share: no formula can have 'EXP\\(n\\)'", ""),
        ({"derived": {"share": "concat(n, 'x')"}}, "share: no formula can have", ""),
        ({"derived": {"any": "n > 0"}}, "any: 'n > 0' is a condition", "write IF(n > 0, 1, 0)"),
        (
            {"measures": {"n": count(), "who": first_of("customer")}, "derived": {"x": "n / who"}},
            "x: 'who' is no number",
            "",
        ),
    ],
)
def test_what_the_contract_decides(spark: SparkSession, wrong: dict[str, Any], says: str, hint: str) -> None:
    with pytest.raises(AppError, match=says) as caught:
        resolve(spark, [declared(**wrong)], load_contract(CONTRACT))
    assert caught.value.hint == hint or not hint
    assert Path(__file__).name in caught.value.where


@pytest.mark.parametrize(
    ("formula", "of_zero", "of_seven"),
    [
        ("10 / n", None, 10 / 7),
        ("10 % n", None, 3),
        ("round(n / 3, 2)", 0, 2.33),
        ("round(n / 3)", 0, 2),
        ("sqrt(n - 3)", None, 2),
        ("ln(n)", None, math.log(7)),
        ("sqrt(ln(n) % 1)", None, math.sqrt(math.log(7) % 1)),
        ("IF(n > 0, 1, 0)", 0, 1),
        ("CASE WHEN n BETWEEN 1 AND 9 THEN n ELSE -1 END", -1, 7),
        ("coalesce(nullif(n, 0), 5) + greatest(n, 2) * abs(floor(-n / 2))", 5, 7 + 7 * 4),
        ("try_divide(n, n)", None, 1),
    ],
)
def test_a_formula_is_null_where_it_would_fail(
    services: Services, formula: str, of_zero: float | None, of_seven: float
) -> None:
    made = in_postgres(formula, {"n": "n"}, what="x", where="here")
    with psycopg.connect(services.store_url) as connection:
        table = "CREATE TEMP TABLE t (n bigint, x double precision GENERATED ALWAYS AS ({}) STORED)"
        connection.execute(sql.SQL(table).format(sql.SQL(made)))  # type: ignore[arg-type]
        connection.execute("INSERT INTO t VALUES (0), (7)")
        found = [x for (x,) in connection.execute("SELECT x FROM t ORDER BY n")]
    assert found == [of_zero, pytest.approx(of_seven)]


def test_a_changed_declaration_says_what_can_be_kept(spark: SparkSession, services: Services) -> None:
    first = Stream(spark, services.store_url, declared())

    def again(metric: Metric) -> None:
        resolved = resolve(spark, [metric], first.contract)
        fold = MetricFold(first.app, first.app, resolved)
        accounts = SourceAccounts(first.store, first.app, first.contract, {METRICS: fold})
        accounts.prepare()

    again(declared(retain="1 day", derived={"double": "n * 2"}))
    with pytest.raises(AppError, match="another meaning: window, measures changed") as caught:
        again(declared(window=tumbling("2 minutes"), measures={"n": count("items > 1")}, retain="2 days"))
    assert "retain, derived could change in place" in caught.value.hint or "could change" in caught.value.hint
    assert isinstance(caught.value, AppError) and not isinstance(caught.value, UsageError)


def test_a_wrong_window_names_the_line_of_the_app_file(tmp_path: Path) -> None:
    (tmp_path / "contracts").mkdir()
    (tmp_path / "app.py").write_text(
        "from headrace import App, sliding\n\napp = App('x')\nsliding('10 minutes', every='3 minutes')\n"
    )
    with pytest.raises(AppError, match="not a multiple") as caught:
        load_app(tmp_path)
    assert caught.value.where.endswith("app.py:4")
