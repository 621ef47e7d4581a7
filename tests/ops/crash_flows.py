"""What the joins, the patterns and the signals of the app that is killed must say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from tests.ops.crash_history import DAY, MINUTE, Fields, History
from tests.ops.crash_shop import STREAMS, Shop
from tests.oracle import joins_oracle, patterns_oracle
from tests.oracle.metrics_oracle import Event
from tests.oracle.signals_oracle import FeatureSpec, Scored, SignalSpec, scored


def check_joins(shop: Shop, history: History) -> None:
    def side(
        stream: str, event_type: str, key: Callable[[Fields], str | None], unmatched: str | None
    ) -> joins_oracle.SideSpec:
        lateness = shop.loaded.contract(stream).lateness // timedelta(microseconds=1)
        return joins_oracle.SideSpec(
            *(stream, key, lateness, DAY, lambda f: f["event_type"] == event_type, unmatched)
        )

    def trace(fields: Fields) -> str | None:
        return fields.get("trace_id")

    def shown(fields: Fields) -> str | None:
        return f"{fields['session_id']} {fields['product_id']}" if fields.get("product_id") else None

    specs = {
        "checkout_paid": joins_oracle.JoinSpec(
            side("clickstream", "checkout_started", trace, "no_payment"),
            side("payments", "payment_authorized", trace, "no_checkout"),
            *(10 * MINUTE, "first_match", "log"),
            lambda _, right: None if right["amount"] <= 5_000_000 else "too_dear",
        ),
        "seen_clicked": joins_oracle.JoinSpec(
            side("clickstream", "product_impression", shown, None),
            side("clickstream", "product_click", shown, "no_impression"),
            *(5 * MINUTE, "one_to_one", "event_time"),
        ),
    }
    topics = {
        "checkout_paid": ("crash.paid.v1", "crash.unpaid.v1"),
        "seen_clicked": ("crash.clicked.v1", "crash.unseen.v1"),
    }
    batches = [
        joins_oracle.Batch(stream, [joins_oracle.Event(**vars(event)) for event in events])
        for stream, events in history.batches
    ]
    for name, spec in specs.items():
        wanted = joins_oracle.outcome(spec, batches)
        assert len(wanted.matches) > 10 and wanted.letters and not any(wanted.late.values())
        matches = shop.rows(f"SELECT left_id, right_id, id FROM crash.{name}")
        letters = shop.rows(f"SELECT reason, left_id, right_id, id FROM crash.{name}__unmatched")
        for rows, expected, topic in zip(
            (matches, letters), (wanted.matches, wanted.letters), topics[name], strict=True
        ):
            assert sorted(map(repr, (row[:-1] for row in rows))) == sorted(map(repr, expected))
            published = Counter(str(record["id"]) for record in shop.objects(topic))
            assert published == Counter(str(row[-1]) for row in rows), f"{topic} is not the table"
        for side_ in joins_oracle.SIDES:
            [totals] = shop.rows(
                "SELECT taken, matched, unmatched, late FROM headrace.flow_sides"
                " WHERE flow = %s AND side = %s",
                *(name, side_),
            )
            assert totals == (wanted.taken[side_], wanted.matched[side_], wanted.unmatched[side_], 0)
            [(pending,)] = shop.rows(f"SELECT count(*) FROM crash.{name}__{side_} WHERE NOT matched")
            assert pending == wanted.pending[side_]


def check_patterns(shop: Shop, history: History) -> None:
    def seen(stream: str, **symbols: Callable[[Fields], bool]) -> list[patterns_oracle.Happened]:
        return [
            patterns_oracle.Happened(
                *(e.partition, e.offset, e.event_id, e.event_time, e.log_time, e.fields["customer_id"]),
                frozenset(symbol for symbol, test in symbols.items() if test(e.fields)),
            )
            for e in history.events[stream]
        ]

    clicks, payments = (
        shop.loaded.contract(stream).lateness // timedelta(microseconds=1) for stream in STREAMS
    )
    methods = seen(
        "payments",
        C=lambda f: f["method"] == "card",
        W=lambda f: f["method"] == "wallet",
        R=lambda f: f["event_type"] == "payment_failed" and f["method"] == "bank_transfer",
    )
    paid = seen("payments", E=lambda f: f["event_type"] == "payment_authorized")
    checkouts = seen(
        "clickstream",
        START=lambda f: f["event_type"] == "checkout_started",
        END=lambda f: f["event_type"] == "purchase",
    )
    wallet = ("then", [("times", ("is", "C"), 2, None), ("never", "R", ("is", "W"))])
    four = ("times", ("is", "E"), 4, 4)
    sequence = patterns_oracle.sequence_outcome
    outcomes = {
        "cards_then_wallet": sequence(wallet, frozenset("CW"), methods, payments, 5 * MINUTE, 2 * MINUTE),
        "many_payments": sequence(four, frozenset("E"), paid, payments, MINUTE, MINUTE),
        "abandoned": patterns_oracle.absence_outcome(checkouts, clicks, 2 * MINUTE, MINUTE, 0),
    }
    for name, outcome in outcomes.items():
        assert len(outcome.raised) > 3, name
        wanted = {
            patterns_oracle.alert_id("crash", name, raised): (
                *(raised.key, list(raised.events), raised.matches),
                "open" if raised.open else "resolved",
            )
            for raised in outcome.raised
        }
        rows = shop.rows('SELECT id, dimensions, "values", state FROM headrace.alerts WHERE alert = %s', name)
        assert wanted == {
            id_: (
                *(labels["customer_id"], [e["event_id"] for e in values["matched"]], values["matches"]),
                state,
            )
            for id_, labels, values, state in rows
        }
        told = shop.rows("SELECT id, seq, kind FROM headrace.alert_events WHERE alert = %s", name)
        kinds = ((1, "opened"), (2, "resolved"))
        assert sorted(map(repr, told)) == sorted(
            repr((id_, *kind))
            for id_, (*_, state) in wanted.items()
            for kind in kinds[: 1 if state == "open" else 2]
        )
        totals = shop.rows("SELECT matches, alerts, late FROM headrace.patterns WHERE pattern = %s", name)
        assert totals == [(sum(r.matches for r in outcome.raised), len(outcome.raised), len(outcome.late))]


def check_signals(shop: Shop, history: History) -> None:
    def amount(fields: Fields) -> Any:
        return fields["amount"]

    spec = SignalSpec(
        key="card_hash",
        memory=2 * MINUTE,
        where=lambda f: f["event_type"] == "payment_authorized",
        features={
            "amount_now": FeatureSpec("own", amount),
            "payments_2m": FeatureSpec("count"),
            "amount_2m": FeatureSpec("sum", amount),
            "orders_2m": FeatureSpec("distinct", lambda f: f["order_id"]),
            "times_last_amount": FeatureSpec("times_last", amount),
            "seconds_since": FeatureSpec("seconds_since_last"),
        },
        score=lambda f: min(1.0, f["payments_2m"] / 8 + (f["times_last_amount"] or 0) / 40),
        decisions={"block": 0.6, "review": 0.2},
    )
    cards: dict[str | None, list[Event]] = defaultdict(list)
    for event in history.events["payments"]:
        cards[event.fields.get("card_hash")].append(event)
    wanted: dict[str, Scored] = {}
    for events in cards.values():
        wanted |= scored(spec, events)
    features = ", ".join(spec.features)
    rows = shop.rows(f"SELECT event_id, id, decision, score, complete, {features} FROM crash.fraud")
    assert sorted(row[0] for row in rows) == sorted(wanted)
    for event_id, id_, decision, score, complete, *values in rows:
        right = wanted[event_id]
        assert (id_, decision, complete) == (f"fraud:{event_id}", right.decision, True)
        assert score == pytest.approx(right.score, rel=1e-12)
        for value, wished in zip(values, right.features.values(), strict=True):
            if isinstance(wished, Fraction):
                assert Fraction(value) == wished
            else:
                assert value == (pytest.approx(wished, rel=1e-12) if isinstance(wished, float) else wished)
    decided = Counter(right.decision for right in wanted.values())
    assert min(decided.values()) > 3 and len(decided) == 3
    assert decided == dict(shop.rows("SELECT decision, count FROM headrace.signal_totals"))
    suspicious = Counter(
        event.fields["customer_id"]
        for event in history.events["payments"]
        if event.event_id in wanted and wanted[event.event_id].decision != "allow"
    )
    assert suspicious == dict(shop.rows("SELECT customer_id, suspicious FROM crash.fraud__activity"))
    published = [(record["event_id"], record["decision"]) for record in shop.objects("crash.signals.v1")]
    assert sorted(map(repr, published)) == sorted(
        repr((id_, right.decision)) for id_, right in wanted.items() if right.decision != "allow"
    )
