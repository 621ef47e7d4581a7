"""Wrong alerts: one clear error, with the line, before anything starts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace import Alert, App, count, max_of, tumbling
from headrace.alerts import written_message
from headrace.contracts import load_contract
from headrace.errors import AppError
from headrace.ops.load import load_app
from headrace.views.alert_check import check_alert
from headrace.views.alert_rule import resolve_alerts
from headrace.views.resolve import resolve
from tests.alerts.history import CONTRACT

TURANMART = Path(__file__).parents[2] / "apps" / "turanmart"


def an_app() -> App:
    app = App("wrong")
    app.metric(
        "errors",
        of="sales",
        window=tumbling("1 minute"),
        by=[[], ["region"], ["region", "kind"]],
        measures={"n": count(), "bad": count("kind = 'bad'"), "newest": max_of("kind")},
        derived={"rate": "bad / n"},
        retain="10 minutes",
    )
    return app


def declared(**more: Any) -> Alert:
    given = {"on": "errors", "when": "rate > 0.5", **more}
    return an_app().alert(given.pop("name", "failing"), **given)


@pytest.mark.parametrize(
    ("wrong", "says", "hint"),
    [
        ({"name": "Failing"}, "'Failing' is no name for an alert", ""),
        ({"when": " "}, "has no condition", 'when="error_rate > 0.05"'),
        ({"windows": 0}, "windows is a whole number from 1 to 1000, not 0", ""),
        ({"windows": 1.5}, "windows is a whole number", ""),
        ({"by": "region"}, "by is a list of names", 'by=["region"]'),
        ({"state": "finale"}, "there is no state 'finale'", "did you mean 'final'?"),
        ({"severity": "critcal"}, "there is no severity 'critcal'", "did you mean 'critical'?"),
        ({"topic": "a topic"}, "'a topic' is no name for a topic", ""),
        ({"webhook": "https://x"}, "webhook is the name of an address in the settings", ""),
        ({"message": "{region"}, "message: expected '}' before end of string", ""),
        ({"message": "{region.upper}"}, "message: '{region.upper}' is not a name", ""),
        ({"message": "{rate:.2q}"}, "message: '.2q' is no format", ""),
    ],
)
def test_what_needs_no_metric(wrong: dict[str, Any], says: str, hint: str) -> None:
    with pytest.raises(AppError) as caught:
        declared(**wrong)
    assert says in caught.value.what
    assert caught.value.hint == hint or not hint
    assert Path(__file__).name in caught.value.where


@pytest.mark.parametrize(
    ("wrong", "says", "hint"),
    [
        ({"on": "error"}, "no metric 'error'", "did you mean 'errors'?"),
        ({"by": ["regoin"]}, "metric 'errors' has no dimension 'regoin'", "did you mean 'region'?"),
        (
            {"by": ["kind"]},
            "has no grouping ['kind']",
            "its groupings are: []; ['region']; ['region', 'kind']",
        ),
        ({"when": "rat > 1"}, "when: there is no column 'rat'", "did you mean 'rate'?"),
        ({"when": "region = 'x'"}, "when: there is no column 'region'", ""),
        ({"when": "late_events > 1"}, "when: there is no column 'late_events'", ""),
        ({"when": "max(rate) > 1"}, "when: 'MAX(rate)' aggregates by itself", ""),
        ({"when": "rate >"}, "when: cannot read 'rate >'", ""),
        ({"message": "{regin}", "by": ["region"]}, "message: there is no 'regin'", "did you mean 'region'?"),
        ({"windows": 60}, "looks back further than metric 'errors' keeps", "at least 62 minutes"),
    ],
)
def test_what_the_metric_decides(wrong: dict[str, Any], says: str, hint: str) -> None:
    with pytest.raises(AppError) as caught:
        check_alert(declared(**wrong), an_app().metrics)
    assert says in caught.value.what
    assert hint in caught.value.hint
    assert Path(__file__).name in caught.value.where


def test_what_spark_decides(spark: SparkSession) -> None:
    metrics = resolve(spark, an_app().metrics.values(), load_contract(CONTRACT))
    for when, says in (
        ("rate + n", "'rate \\+ n' is not a condition"),
        ("no_function(n) > 1", "no_function"),
        ("newest.x = 1", "newest"),
        ("CAST(newest AS INT) > 1", "'CAST\\(newest AS INT\\)' may fail on a row"),
        ("exp(n) > 1", "'EXP\\(n\\)' may fail on a row"),
    ):
        with pytest.raises(AppError, match=f"alert 'failing', when: .*{says}"):
            resolve_alerts(spark, [declared(when=when)], metrics)
    [rule] = resolve_alerts(spark, [declared(when="newest = 'bad' AND n / bad > 2")], metrics)
    assert rule.condition.startswith("\"newest\" = 'bad' AND CAST")
    assert rule.condition.endswith('/ NULLIF(CAST("bad" AS DOUBLE PRECISION), 0) > 2')


def test_a_grouping_in_another_order_is_the_metrics() -> None:
    app = an_app()
    alert = app.alert("failing", on="errors", when="rate > 0.5", by=["kind", "region"])
    assert check_alert(alert, app.metrics).name == "errors"


def test_a_name_is_declared_once() -> None:
    app = an_app()
    app.alert("failing", on="errors", when="rate > 0.5")
    with pytest.raises(AppError, match="alert 'failing' is declared twice"):
        app.alert("failing", on="errors", when="rate > 0.6")


def test_a_message_shows_what_fits() -> None:
    alert = declared(message="{region}: {rate:.1%} of {n:,d}, {{ok}} {bad:.1f} {newest:>5}")
    known = {"region": "almaty", "rate": 0.256, "n": 1234, "bad": None, "newest": "x"}
    assert written_message(alert, known) == "almaty: 25.6% of 1,234, {ok} -     x"
    assert written_message(declared(message="{n:.0%}"), {"n": "many"}) == "many"
    assert (
        written_message(declared(message="{n:,.1f} {bad:d}"), {"n": "1234.50", "bad": "-7"}) == "1,234.5 -7"
    )
    assert written_message(declared(when="n > '{'"), {}) == "failing: n > '{'"


def test_the_app_file_and_its_line(tmp_path: Path) -> None:
    shutil.copytree(TURANMART / "contracts", tmp_path / "contracts")
    text = (
        "from headrace import App, count, tumbling\n\napp = App('x')\n"
        "app.metric('n_1m', of='orders', window=tumbling('1 minute'), measures={'n': count()})\n"
        "app.alert('many', on='n_1m', when='n > 1', topic='%s')\n"
    )
    (tmp_path / "app.py").write_text(text % "orders.raw.v1")
    with pytest.raises(AppError, match=r"orders\.raw\.v1 is a topic of the stream 'orders'") as caught:
        load_app(tmp_path)
    assert caught.value.where.endswith("app.py:5")
    (tmp_path / "app.py").write_text(text % "many.v1")
    loaded = load_app(tmp_path)
    assert [alert.name for alert in loaded.alerts_of("orders")] == ["many"]
    assert loaded.alerts_of("payments") == []
    with pytest.raises(AppError, match="no alert 'manny'"):
        loaded.alert("manny")
