"""Panels: what an app says about its dashboard, what follows from it, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace import App, count, quantiles, sum_of, top, tumbling
from headrace.contracts import load_contract
from headrace.errors import AppError
from headrace.ops.load import LoadedApp, load_app
from headrace.panels import ShownPanel

CONTRACT = Path(__file__).parent / "views" / "sales.yaml"
TURANMART = Path(__file__).parent.parent / "apps" / "turanmart"


def shop() -> App:
    app = App("shop")
    app.metric(
        "sales_1m",
        of="sales",
        window=tumbling("1 minute"),
        by=[[], ["region"], ["kind"]],
        measures={
            "sales": count(),
            "money": sum_of("price"),
            "wait": quantiles("price", (0.5, 0.9)),
            "best": top("region", 3),
        },
        derived={"basket": "money / sales"},
    )
    return app


def shown(app: App) -> list[ShownPanel]:
    contract = load_contract(CONTRACT)
    return LoadedApp(app, {contract.name: contract}).panels()


def one(**declared: Any) -> ShownPanel:
    app = shop()
    app.panel("Sales", metric="sales_1m", **declared)
    [panel] = shown(app)
    return panel


def test_turanmart_declares_a_panel_of_every_shape_it_needs() -> None:
    panels = {panel.panel.title: panel for panel in load_app(TURANMART).panels()}
    assert {title: panel.shape for title, panel in panels.items()} == {
        "Conversion": "groups",
        "Revenue": "groups",
        "Payment errors": "number",
        "Unique visitors": "number",
        "Checkout time": "values",
        "Top products today": "top",
    }
    assert panels["Conversion"].groups == ("tashkent", "almaty", "bishkek", "samarkand", "astana")
    assert panels["Checkout time"].values == ("latency_ms_p50", "latency_ms_p95", "latency_ms_p99")


def test_an_app_without_panels_gets_one_for_each_metric() -> None:
    [panel] = shown(shop())
    assert (panel.panel.title, panel.values, panel.grouping, panel.shape) == (
        *("sales_1m", ("basket",), ()),
        "number",
    )


def test_the_shape_follows_from_what_is_shown() -> None:
    assert one(value="money").shape == "number"
    assert one(value="wait").values == ("wait_p50", "wait_p90")
    assert one(value="wait").shape == "values"
    assert one(value="wait_p90", by="region").values == ("wait_p90",)
    assert one(value="best").shape == "top"


def test_groups_are_a_chart_only_where_the_contract_lists_them() -> None:
    contract = load_contract(CONTRACT)
    listed = [name for name in ("region", "kind") if contract.field(name).rules.enum]
    for name in ("region", "kind"):
        assert one(value="sales", by=name).shape == ("groups" if name in listed else "ranking")


@pytest.mark.parametrize(
    ("declared", "says", "hint"),
    [
        ({"metric": "sales_2m"}, "panel 'Sales': no metric 'sales_2m'", "did you mean 'sales_1m'?"),
        ({"value": "mony"}, "metric 'sales_1m' has no 'mony'", "did you mean 'money'?"),
        ({"by": "price"}, "metric 'sales_1m' is not grouped by", "it has: [], ['region'], ['kind']"),
        ({"value": ["sales", "money"], "by": "region"}, "several values are shown for the total only", ""),
        ({"value": ["best", "sales"]}, "a top list needs a panel of its own", ""),
        ({"value": ["sales", "money", "basket", "wait"]}, "5 values do not fit", "4 at most"),
    ],
)
def test_a_wrong_name_is_found_before_anything_starts(declared: dict[str, Any], says: str, hint: str) -> None:
    app = shop()
    app.panel("Sales", **{"metric": "sales_1m", **declared})
    with pytest.raises(AppError, match=says) as caught:
        shown(app)
    assert caught.value.hint == hint or not hint
    assert Path(__file__).name in caught.value.where


@pytest.mark.parametrize(
    ("title", "unit", "says"),
    [(" ", "", "needs a title"), ("x" * 61, "", "the title has 61"), ("Sales", "y" * 25, "the unit has 25")],
)
def test_what_does_not_fit_on_the_page_is_refused(title: str, unit: str, says: str) -> None:
    with pytest.raises(AppError, match=says):
        shop().panel(title, metric="sales_1m", unit=unit)


def test_a_title_is_declared_once() -> None:
    app = shop()
    app.panel("Sales", metric="sales_1m")
    with pytest.raises(AppError, match="declared twice") as caught:
        app.panel("Sales", metric="sales_1m")
    assert Path(__file__).name in caught.value.hint


def test_the_check_command_finds_a_wrong_panel(tmp_path: Path) -> None:
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts" / "sales.yaml").write_text(CONTRACT.read_text())
    (tmp_path / "app.py").write_text("from headrace import App\napp = App('x')\napp.panel('A', metric='m')\n")
    with pytest.raises(AppError, match="no metric 'm'") as caught:
        load_app(tmp_path)
    assert caught.value.where.endswith("app.py:3")
