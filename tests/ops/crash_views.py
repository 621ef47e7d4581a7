"""What the gate, the metrics, the sessions and the enrichment of the app that is killed must say."""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from headrace.ops.audit import audit_source
from tests.ops.crash_history import DAY, MINUTE, SECOND, Fields, History, source_of
from tests.ops.crash_shop import Shop
from tests.oracle import alerts_oracle
from tests.oracle.enrich_oracle import DimensionRow, enriched
from tests.oracle.moments import micros, micros_of
from tests.oracle.sessions_oracle import LateEvent, Oracle, SessionRow, SessionSpec


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


def check_running(shop: Shop, history: History) -> None:
    """All is counted where it grows; what is shown is one of its versions, and these follow one another."""
    days = Counter(event.event_time // DAY for event in history.events["clickstream"])
    day = "(extract(epoch FROM window_end) / 86400)::bigint - 1"
    late = Counter(
        dict(
            shop.rows(f"SELECT {day}, count(*) FROM headrace.late_events WHERE metric = 'so_far' GROUP BY 1")
        )
    )
    grown = dict(shop.rows(f"SELECT {day}, n FROM crash.so_far__growing"))
    assert +Counter(grown) == days - late
    shown = shop.rows(f"SELECT {day}, n, revision FROM crash.so_far")
    assert shown
    for number, n, revision in shown:
        versions = shop.rows(
            "SELECT revision, (array_agg((\"values\" ->> 'n')::bigint))[1] FROM headrace.revisions"
            f" WHERE metric = 'so_far' AND {day} = %s GROUP BY revision ORDER BY revision",
            number,
        )
        assert [version for version, _ in versions] == list(range(1, revision + 1))
        counts = [count for _, count in versions]
        assert counts == sorted(set(counts)) and counts[-1] == n <= grown[number]


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
