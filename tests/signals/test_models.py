"""Models as scorers: a JSON artefact, the tables beside the features, and artefacts that cannot be used."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import runpy
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from headrace import App, Signals, count, model, sum_of, table
from headrace.declared import Declared
from headrace.errors import AppError
from headrace.flows.models import load_model
from headrace.local.services import Services
from tests.oracle.metrics_oracle import Event
from tests.signals.stream import DerivedStream

SECOND = 1_000_000
START = 1_772_355_600 * SECOND
TURANMART = Path(__file__).parents[2] / "apps" / "turanmart"
ARTEFACT = {
    "kind": "logistic",
    "version": "3",
    "intercept": -1.5,
    "features": [
        {"name": "amount", "weight": 0.8, "mean": 2.0, "scale": 1.5, "log": True},
        {"name": "n", "weight": 1.2, "mean": 1.0, "scale": 2.0},
        {"name": "risk", "weight": -0.7, "mean": 0.4, "scale": 0.2},
    ],
}
RISKS = "customer,valid_from,risk,kind\nc1,2026-03-01T09:00:02Z,0.9,new\nc1,2026-03-01T09:00:04Z,0.1,old\n"


def signals(folder: Path, **changed: Any) -> Signals:
    (folder / "fraud.json").write_text(json.dumps(ARTEFACT))
    (folder / "risks.csv").write_text(RISKS)
    app = App("models")
    app.file = folder / "app.py"
    risks = table("risks", key="customer", file="risks.csv", types={"risk": "number"})
    given: dict[str, Any] = {
        "of": "sales",
        "key": "customer",
        "features": {
            "price_now": "price",
            "n": count(),
            "amount": sum_of("price"),
            "risk": "risks.risk",
            "kind_of": "risks.kind",
        },
        "with_": risks,
        "model": model("fraud.json", version="3"),
        "decision": {"block": 0.5},
        "shadow": "coalesce(CASE WHEN kind_of = 'new' THEN 1.0 END, 0)",
    }
    return app.signals("scored", **(given | changed))


def probability(amount: float, n: int, risk: float | None) -> float:
    logit = -1.5 + 0.8 * (math.log(1 + amount) - 2) / 1.5 + 1.2 * (n - 1) / 2
    logit += 0.0 if risk is None else -0.7 * (risk - 0.4) / 0.2
    return 1 / (1 + math.exp(-logit))


def test_a_model_scores_and_a_table_is_asked_as_of_the_event(
    spark: SparkSession, services: Services, tmp_path: Path
) -> None:
    stream = DerivedStream(spark, services.store_url, Declared(signals=(signals(tmp_path),)))
    fields = {"customer": "c1", "kind": "sale", "price": Decimal(7)}
    events = [
        Event(0, n, f"e{n}", START + n * SECOND, START + n * SECOND, fields) for n in (5, 1, 2, 4, 3, 0)
    ]
    stream.feed(events)
    rows = sorted(stream.table("scored"), key=lambda row: row["offset"])
    risks = [None, None, 0.9, 0.9, 0.1, 0.1]
    for n, row in enumerate(rows):
        assert row["score"] == pytest.approx(probability(7.0 * n, n, risks[n]), rel=1e-9)
        assert row["decision"] == ("block" if row["score"] >= 0.5 else "allow")
        assert (row["version"], row["shadow_score"]) == ("3", 1.0 if n in (2, 3) else 0.0)
    assert {row["decision"] for row in rows} == {"block", "allow"}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"model": model("fraud.json", version="4")}, "is version 3, not 4"),
        ({"model": model("gone.json", version="3")}, "cannot read model"),
        ({"model": model("risks.json", version="3")}, "cannot read model"),
        ({"features": {"n": count(), "amount": sum_of("price")}}, "no feature 'risk'"),
        ({"features": {"n": count(), "amount": "region", "risk": "risks.risk"}}, "'amount' is no number"),
        ({"features": {"n": count(), "risk": "risks.rsk"}, "model": None, "score": "n"}, "no column 'rsk'"),
        ({"score": "n"}, "not both"),
        ({"model": None}, "no score"),
        ({"with_": table("risks", key="id", file="risks.csv")}, "no field 'id' for table 'risks'"),
    ],
)
def test_what_cannot_score_says_so(
    spark: SparkSession, services: Services, tmp_path: Path, changed: dict[str, Any], problem: str
) -> None:
    changed = {"shadow": None, **changed}
    with pytest.raises(AppError, match=problem) as error:
        DerivedStream(spark, services.store_url, Declared(signals=(signals(tmp_path, **changed),)))
    assert error.value.where.startswith(__file__)


@pytest.mark.skipif(importlib.util.find_spec("joblib") is not None, reason="the extra is installed")
@pytest.mark.parametrize("file", ["fraud.joblib", "fraud.onnx"])
def test_without_the_extra_the_error_says_what_to_install(file: str) -> None:
    with pytest.raises(AppError, match="not installed") as error:
        load_model(model(file, version="1"))
    assert "headrace[models]" in error.value.hint


def test_a_scikit_learn_artefact_scores(tmp_path: Path) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    joblib = pytest.importorskip("joblib")
    fitted = linear.LogisticRegression().fit(np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 1])
    joblib.dump(fitted, tmp_path / "fraud.joblib")
    loaded = load_model(model(str(tmp_path / "fraud.joblib"), version="1", features=["n"]))
    low, high = loaded.score(np.array([[0.0], [3.0]]))
    assert low < 0.5 < high


def test_the_shops_model_is_the_one_that_its_script_makes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["train.py", str(tmp_path / "fraud.json")])
    runpy.run_path(str(TURANMART / "models" / "train.py"), run_name="__main__")
    made, shipped = (
        json.loads((folder / "fraud.json").read_text()) for folder in (tmp_path, TURANMART / "models")
    )
    assert [f["name"] for f in made["features"]] == [f["name"] for f in shipped["features"]]
    for name in ("weight", "mean", "scale"):  # other processors round the last digits otherwise
        assert [f[name] for f in made["features"]] == pytest.approx(
            [f[name] for f in shipped["features"]], abs=1e-3
        )
    quality = [
        float(number) for number in re.findall(r"(?:precision|recall) ([\d.]+)", capsys.readouterr().out)
    ]
    assert len(quality) == 4 and min(quality) > 0.7
