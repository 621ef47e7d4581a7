"""What the app that is killed must have come to: each table and topic against plain Python.

The oracles get the accepted events from the validated topics, in the batches of the ledger. They share no
code with the engine.
"""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from confluent_kafka import Message

from headrace.ops.audit import audit_source
from tests.ops.crash_shop import STREAMS, Shop
from tests.oracle import alerts_oracle, joins_oracle, patterns_oracle
from tests.oracle.enrich_oracle import DimensionRow, enriched
from tests.oracle.metrics_oracle import Event
from tests.oracle.moments import micros, micros_of
from tests.oracle.sessions_oracle import LateEvent, Oracle, SessionRow, SessionSpec
from tests.oracle.signals_oracle import FeatureSpec, Scored, SignalSpec, scored

SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
Fields = Mapping[str, Any]


@dataclass(frozen=True)
class History:
    """The accepted events of each stream, and the batches of both in the order of their commits."""

    events: dict[str, list[Event]]
    batches: list[tuple[str, list[Event]]]

    def watermark(self, stream: str) -> int:
        clocks: dict[int, int] = {}
        for event in self.events[stream]:
            clocks[event.partition] = max(event.event_time, clocks.get(event.partition, 0))
        return min(clocks.values())


def check(shop: Shop) -> None:
    """Everything that was sent has come to what plain Python says, once."""
    for stream in STREAMS:
        check_gate(shop, stream)
    history = history_of(shop)
    check_metrics(shop, history)
    check_alerts(shop, history)
    check_sessions(shop, history)
    check_joins(shop, history)
    check_patterns(shop, history)
    check_signals(shop, history)
    check_enriched(shop)
    accepted = {f"crash.{stream}": len(events) for stream, events in history.events.items()}
    for query, flow, side, count in shop.rows(
        "SELECT query, flow, side, sum(accepted)::bigint FROM headrace.flow_ledger GROUP BY 1, 2, 3"
    ):
        assert count == accepted[query], (flow, side)


def check_gate(shop: Shop, stream: str) -> None:
    contract = shop.loaded.contract(stream)
    report = audit_source(
        shop.loaded.name, contract, shop.loaded.source(stream), shop.connections, recount=True
    )
    assert report.clean, report.findings
    assert report.fates.received == shop.sent[stream]
    found = Counter(source_of(m) for topic in contract.topics.outputs for m in shop.messages(topic))
    assert set(found.values()) == {1}
    assert len(found) == shop.sent[stream] - report.fates.duplicate


def history_of(shop: Shop) -> History:
    ranges: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
    for query, partition, first, end, batch in shop.rows(
        "SELECT query, partition, first_offset, end_offset, batch_id FROM headrace.ledger"
    ):
        ranges[query, partition].append((first, end, batch))
    batches: dict[tuple[str, int], list[Event]] = {
        (query, batch): []
        for query, batch in shop.rows("SELECT query, batch_id FROM headrace.batches ORDER BY finished_at")
    }
    for stream in STREAMS:
        query = f"crash.{stream}"
        for message in shop.messages(shop.loaded.contract(stream).topics.validated):
            event = event_of(message)
            [batch] = [n for first, end, n in ranges[query, event.partition] if first <= event.offset < end]
            batches[query, batch].append(event)
    for events in batches.values():
        events.sort(key=lambda e: (e.partition, e.offset))
    in_order = [(query.removeprefix("crash."), events) for (query, _), events in batches.items()]
    return History(
        {stream: [e for name, events in in_order if name == stream for e in events] for stream in STREAMS},
        in_order,
    )


def event_of(message: Message) -> Event:
    _, partition, offset, log_ms = source_of(message).decode().split("/")
    fields = json.loads(message.value() or b"", parse_float=Decimal)
    at = micros_of(fields["event_time"])
    assert at is not None
    return Event(int(partition), int(offset), fields["event_id"], at, int(log_ms) * 1000, fields)


def source_of(message: Message) -> bytes:
    [source] = [value for name, value in message.headers() or () if name == "headrace-source"]
    assert isinstance(source, bytes)
    return source


def check_metrics(shop: Shop, history: History) -> None:
    """Every table holds what plain counting of the validated topic gives, less what missed a window."""
    minutes = Counter(event.event_time // MINUTE for event in history.events["clickstream"])
    for metric, panes in (("by_minute", 1), ("rolling", 3)):
        wanted = Counter[int]()
        for minute, count in minutes.items():
            wanted.update({minute + k: count for k in range(panes)})
        end = "(extract(epoch FROM window_end) / 60)::bigint - 1"
        late: dict[Any, Any] = dict(
            shop.rows(
                f"SELECT {end}, count(*) FROM headrace.late_events WHERE metric = %s GROUP BY 1", metric
            )
        )
        wanted.subtract(late)
        rows = shop.rows(
            f"SELECT {end}, n, events, late_events FROM crash.{metric} WHERE \"grouping\" = 'all'"
        )
        assert {minute: n for minute, n, _, _ in rows if n} == {m: n for m, n in wanted.items() if n}
        assert all(n == events for _, n, events, _ in rows)
        assert {m: n for m, _, _, n in rows if n} == late


def check_alerts(shop: Shop, history: History) -> None:
    rows: dict[tuple[str, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for event in history.events["payments"]:
        key = (event.fields["region"], event.event_time // MINUTE * MINUTE)
        n, bad = rows[key]
        rows[key] = (n + 1, bad + (event.fields["method"] == "card"))
    late = shop.rows("SELECT * FROM headrace.late_events WHERE metric = 'paid_by_minute'")
    assert late == [], "payments come in order"
    rule = alerts_oracle.Rule("crash", "many_cards", 2, MINUTE, MINUTE, 30 * SECOND)
    wanted = alerts_oracle.alerts_of(rule, rows, history.watermark("payments"))
    assert len(wanted) > 1
    found = shop.rows(
        "SELECT id, dimensions ->> 'region', window_start, window_end, state FROM headrace.alerts"
        " WHERE alert = 'many_cards' ORDER BY window_start, id"
    )
    assert [(id_, region, micros(a), micros(b), state) for id_, region, a, b, state in found] == [
        (w.id, w.region, w.first, w.last, w.state) for w in wanted
    ]
    told = shop.rows(
        "SELECT id, seq, kind, payload ->> 'window_end' FROM headrace.alert_events WHERE alert = 'many_cards'"
    )
    assert sorted((id_, seq, kind, micros_of(end)) for id_, seq, kind, end in told) == sorted(
        (w.id, *event) for w in wanted for event in alerts_oracle.events_of(rule, w)
    )
    for topic in ("crash.alerts.v1", "crash.absences.v1"):
        payloads = shop.rows(
            "SELECT payload::text FROM headrace.alert_events WHERE topic = %s ORDER BY position", topic
        )
        published = [(m.value() or b"").decode() for m in shop.messages(topic)]
        assert [(text,) for text in published] == payloads


def check_sessions(shop: Shop, history: History) -> None:
    def values(fields: list[Fields], name: str) -> list[Any]:
        return [f[name] for f in fields if f.get(name) is not None]

    spec = SessionSpec(
        *("customer_id", 2 * MINUTE, 10 * MINUTE, 30 * SECOND, 2 * MINUTE),
        {
            "pages": lambda f: sum(e["event_type"] == "page_view" for e in f),
            "shown": lambda f: sum(map(Fraction, values(f, "price"))) if values(f, "price") else None,
            "entry": lambda f: next(iter(values(f, "page")), None),
            "exit": lambda f: next(reversed(values(f, "page")), None),
        },
    )
    oracle = Oracle(spec, DAY)
    for stream, events in history.batches:
        if stream == "clickstream":
            oracle.batch(events)
    wanted = oracle.outcome()
    assert {row.state for row in wanted.rows} >= {"open", "final"}
    rows = shop.rows(
        "SELECT customer_id, session_start, last_event, events, state, revision, pages, shown, entry, exit"
        " FROM crash.visits"
    )
    found = [
        SessionRow(key, micros(start), micros(last), *rest[:3], tuple(rest[3:]))
        for key, start, last, *rest in rows
    ]
    order: Callable[[SessionRow], Any] = lambda row: row[:4]  # noqa: E731
    for row, right in zip(sorted(found, key=order), sorted(wanted.rows, key=order), strict=True):
        assert row[:6] == right[:6]
        for value, wished in zip(row.values, right.values, strict=True):
            assert (Fraction(value) if isinstance(wished, Fraction) else value) == wished, row
    late = shop.rows(
        'SELECT event_id, partition, "offset", event_time, window_end, clock, late_by, reason'
        " FROM headrace.late_events WHERE metric = 'visits'"
    )
    assert wanted.late == sorted(
        LateEvent(
            *(id_, partition, offset, micros(at), micros(end), micros(clock)),
            *(late_by // timedelta(microseconds=1), reason),
        )
        for id_, partition, offset, at, end, clock, late_by, reason in late
    )
    counts = shop.rows(
        "SELECT accepted, counted, filtered, late FROM headrace.metric_ledger WHERE metric = 'visits'"
        " ORDER BY batch_id"
    )
    assert counts == [(c.accepted, c.counted, c.filtered, c.late) for c in wanted.counts]


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


def check_enriched(shop: Shop) -> None:
    """Each validated event once more, with the product as it was at its time."""
    versions: dict[str, list[DimensionRow]] = defaultdict(list)
    with (shop.folder / "app" / "products.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            since = datetime.fromisoformat(row["valid_from"]).astimezone(UTC)
            columns = {"category": row["category"], "list_price": float(row["list_price"])}
            versions[row["product_id"]].append(DimensionRow(row["product_id"], since, columns))
    accepted = dict(_by_source(shop, shop.loaded.contract("clickstream").topics.validated))
    found = list(_by_source(shop, "crash.enriched.v1"))
    assert Counter(source for source, _ in found) == Counter(accepted.keys())
    for source, value in found:
        given = accepted[source]
        key = json.loads(given).get("product_id")
        assert json.loads(value) == enriched(
            *(given, versions.get(key, [])),
            table="products",
            on="product_id",
            columns={"category": "category", "list_price": "list_price"},
            time="event_time",
        )
    [(counted,)] = shop.rows("SELECT sum(count)::bigint FROM headrace.enrich_totals")
    assert counted == len(found)


def _by_source(shop: Shop, topic: str) -> Iterator[tuple[bytes, bytes]]:
    for message in shop.messages(topic):
        value = message.value()
        assert isinstance(value, bytes)
        yield source_of(message), value
