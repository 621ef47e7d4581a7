"""Train the fraud model: python apps/turanmart/models/train.py [FILE]

Payments of the shop's own traffic model, and among them the work of thieves with stolen cards: a few small
payments to see whether the card still works, then large ones, seconds apart, some of them from another city.
The features are made by the code that makes them in production. Everything is drawn from a seed: the same
artefact comes out each time. Precision and recall are those of cards that training never saw.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2])]

from traffic import Traffic, records  # noqa: E402
from traffic.shop import REGIONS, UNITS_PER_DOLLAR  # noqa: E402

from headrace.flows.features import Arrived, FeaturePlan, features_of, remembered  # noqa: E402
from headrace.flows.models import Logistic  # noqa: E402
from headrace.ops.load import load_app  # noqa: E402

VERSION = "1"
SEED = 20260301
PAYMENTS = 60_000
THEFTS = 400
BLOCK, REVIEW = 0.9, 0.5
LOGS = ("dollars", "payments_5m", "dollars_5m", "times_last_amount", "seconds_since_last")


class Payment(NamedTuple):
    card: str
    at: int  # microseconds
    dollars: float
    region: str
    stolen: bool


def main() -> None:
    payments = sorted(drawn(Random(SEED)), key=lambda payment: payment.at)
    names, matrix = measured(payments)
    stolen = np.array([payment.stolen for payment in payments])
    # By card, so that no thief is on both sides.
    held_out = np.array([int(payment.card[:8], 16) % 4 == 0 for payment in payments])
    model = trained(names, matrix[~held_out], stolen[~held_out])
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "fraud.json"
    file.write_text(json.dumps(model, indent=1) + "\n")
    scores = scored(model, matrix[held_out])
    print(f"{len(payments):,} payments, {stolen.sum():,} with stolen cards; held out: {held_out.sum():,}")
    for decision, threshold in (("review", REVIEW), ("block", BLOCK)):
        precision, recall = quality(scores >= threshold, stolen[held_out])
        print(f"{decision} at {threshold}: precision {precision:.3f}, recall {recall:.3f}")
    print(f"written to {file}")


def drawn(rng: Random) -> Iterator[Payment]:
    """Card payments that the bank let through, and thefts among the cards that made them."""
    honest = list(_honest())
    yield from honest
    first, last = honest[0].at, honest[-1].at
    for victim in rng.sample(honest, THEFTS):
        at = rng.randrange(first, last)
        for n in range(rng.randrange(3, 9)):
            at += int(rng.expovariate(1 / 20) * 1_000_000) + 1_000_000
            testing = n < 2
            dollars = rng.uniform(0.5, 4) if testing else victim.dollars * rng.lognormvariate(1.6, 0.7)
            region = victim.region if rng.random() < 0.5 else rng.choice(REGIONS).name
            yield Payment(victim.card, at, dollars, region, True)


def _honest() -> Iterator[Payment]:
    options = Traffic(
        seed=SEED,
        rate=20,
        events=PAYMENTS,
        start=datetime(2026, 3, 1, tzinfo=UTC),
        streams={"payments": 1},
        duplicates=0,
        malformed=0,
        future=0,
    )
    for record in records(options):
        event = json.loads(record.value)
        if event["event_type"] == "payment_authorized" and "card_hash" in event:
            at = datetime.fromisoformat(event["event_time"])
            dollars = event["amount"] / UNITS_PER_DOLLAR[event["currency"]]
            yield Payment(
                event["card_hash"], int(at.timestamp() * 1e6), dollars, event["region"], stolen=False
            )


def measured(payments: list[Payment]) -> tuple[list[str], np.ndarray]:
    """The features, by the code of the engine; those without a memory are the payment's own."""
    signals = load_app(HERE.parent).app.signal_sets["fraud"]
    plan = FeaturePlan(remembered(signals.features.values()), signals.memory_us)
    given = [
        Arrived(p.card, p.at, 0, n, p.at, str(n), _values(plan, p), is_new=True)
        for n, p in enumerate(payments)
    ]
    found = features_of(plan, given)
    with_memory = [name for name, feature in signals.features.items() if feature in plan.features]
    rows = [[p.dollars, *map(_number, found[0, n])] for n, p in enumerate(payments)]
    return ["dollars", *with_memory], np.array(rows)


def _values(plan: FeaturePlan, payment: Payment) -> tuple[str, ...]:
    return tuple(
        payment.region if feature.expression == "region" else f"{payment.dollars:.10f}"
        for feature in plan.valued
    )


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def trained(names: list[str], matrix: np.ndarray, wanted: np.ndarray) -> dict[str, Any]:
    """A logistic regression by Newton's method, with a little ridge; thefts weigh more than they are many."""
    logs = np.array([name in LOGS for name in names])
    given = np.where(logs, np.log1p(np.clip(matrix, 0, None)), matrix)
    means, scales = np.nanmean(given, axis=0), np.nanstd(given, axis=0) + 1e-9
    x = np.where(np.isnan(given), 0.0, (given - means) / scales)
    x = np.hstack([x, np.ones((len(x), 1))])
    weights = np.where(wanted, np.sqrt((~wanted).sum() / wanted.sum()), 1.0)
    beta = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(x @ beta, -30, 30)))
        gradient = x.T @ (weights * (wanted - p)) - 1.0 * beta
        curvature = (x * (weights * p * (1 - p))[:, None]).T @ x + np.eye(len(beta))
        step = np.linalg.solve(curvature, gradient)
        beta += step
        if np.abs(step).max() < 1e-9:
            break
    features = [
        {
            "name": name,
            "weight": round(float(beta[n]), 6),
            "mean": round(float(means[n]), 6),
            "scale": round(float(scales[n]), 6),
            "log": bool(logs[n]),
        }
        for n, name in enumerate(names)
    ]
    intercept = round(float(beta[-1]), 6)
    return {"kind": "logistic", "version": VERSION, "intercept": intercept, "features": features}


def scored(model: dict[str, Any], matrix: np.ndarray) -> np.ndarray:
    return Logistic(model).score(matrix)


def quality(said: np.ndarray, wanted: np.ndarray) -> tuple[float, float]:
    right = (said & wanted).sum()
    return right / max(said.sum(), 1), right / wanted.sum()


if __name__ == "__main__":
    main()
