"""The rules of joins one by one, with times at the second."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from headrace import App
from headrace.contracts.model import Contract
from headrace.errors import AppError
from headrace.flows.join_resolve import resolve_join
from headrace.joins import Join, JoinSide
from headrace.local.services import Services
from headrace.ops.audit_flows import flow_audits, flow_findings
from headrace.store.connection import Store
from tests.flows.two_streams import CONTRACTS, TwoStreams
from tests.oracle.joins_oracle import Event

SECOND = 1_000_000
START = 1_772_355_600 * SECOND  # 2026-03-01 09:00


class Shop:
    """Orders and payments of one partition each, at seconds after nine."""

    def __init__(self, spark: SparkSession, url: str, **join: Any) -> None:
        given: dict[str, Any] = {
            "left": "orders",
            "right": "payments",
            "on": ("order_id", "order_ref"),
            "within": "60 seconds",
            "order": "log",
            "left_unmatched": "no_payment",
            "right_unmatched": "no_order",
            "columns": {"amount": "left.amount", "paid_time": "right.event_time"},
            "topic": "paid.v1",
            "dead_letters": "unpaid.v1",
            **join,
        }
        self.join: Join = App("shop").join("order_paid", **given)
        self.stream = TwoStreams(spark, url, self.join)
        self._offsets = dict.fromkeys(CONTRACTS, 0)

    def happen(self, source: str, *events: tuple[float, str | None, str], spark: bool = False) -> None:
        """Each with its second, key and amount, in one batch; its id is the source's letter and a number."""
        made = []
        for second, key, amount in events:
            n = self._offsets[source]
            self._offsets[source] += 1
            at = START + int(second * SECOND)
            fields = {
                "order_id": key,
                "order_ref": key,
                "amount": Decimal(amount) if amount else None,
                "kind": "paid",
                "items": 1,
            }
            made.append(Event(0, n, f"{source[0]}{n}", at, at, fields))
        self.stream.feed(source, made, through_spark=spark)

    def matches(self) -> set[tuple[str, str]]:
        return {(m["left_id"], m["right_id"]) for m in self.stream.matches(self.join)}

    def letters(self) -> set[tuple[str, str | None, str | None]]:
        return {(x["reason"], x["left_id"], x["right_id"]) for x in self.stream.letters(self.join)}


@pytest.fixture
def shop(spark: SparkSession, services: Services) -> Any:
    return lambda **join: Shop(spark, services.store_url, **join)


def test_both_ends_of_the_interval_belong_to_it(shop: Any) -> None:
    s = shop(kind="one_to_many")
    s.happen("orders", (100, "a", "1"))
    s.happen("payments", (39.999999, "a", "1"), (40, "a", "1"), (160, "a", "1"), (160.000001, "a", "1"))
    assert s.matches() == {("o0", "p1"), ("o0", "p2")}


def test_an_event_is_unmatched_once_no_partner_can_come(shop: Any) -> None:
    """Payments may be a minute late: an order waits for the watermark of payments to pass two minutes."""
    s = shop()
    s.happen("orders", (0, "a", "1"))
    s.happen("payments", (120, "b", "1"))
    assert s.letters() == set()
    s.happen("payments", (120.000001, "c", "1"))
    assert s.letters() == {("no_payment", "o0", None)}
    s.happen("orders", (360, "z", "1"))
    assert s.letters() == {("no_payment", "o0", None), ("no_order", None, "p0"), ("no_order", None, "p1")}


def test_a_row_has_both_ids_and_the_columns(shop: Any) -> None:
    s = shop(check={"amount_differs": "left.amount = right.amount"})
    s.happen("payments", (5, "a", "1.50"), (6, "b", "2"), spark=True)
    s.happen("orders", (7, "a", "1.5"), (8, "b", "3"), (9, None, "3"), spark=True)
    [row] = s.stream.matches(s.join)
    assert (row["key"], row["left_id"], row["right_id"], row["amount"]) == ("a", "o0", "p0", Decimal("1.5"))
    assert row["paid_time"].isoformat() == "2026-03-01T09:00:05+00:00"
    assert row["event_time"] == row["left_time"] > row["right_time"] == row["paid_time"]
    [published] = s.stream.outbox("paid.v1")
    assert published["key"] == "a"
    assert published["value"] == {
        "join": "order_paid",
        "id": row["id"],
        "key": "a",
        "left_id": "o0",
        "right_id": "p0",
        "left_time": "2026-03-01T09:00:07.000000Z",
        "right_time": "2026-03-01T09:00:05.000000Z",
        "event_time": "2026-03-01T09:00:07.000000Z",
        "amount": 1.5,
        "paid_time": "2026-03-01T09:00:05.000000Z",
    }
    assert s.letters() == {("amount_differs", "o1", "p1"), ("no_key", "o2", None)}
    letter = next(x for x in s.stream.letters(s.join) if x["reason"] == "amount_differs")
    assert (letter["side"], letter["key"], letter["values"]["amount"]) == ("pair", "b", 3)


def test_a_failed_check_uses_up_nobody_and_is_told_once(shop: Any) -> None:
    s = shop(check="left.amount = right.amount")
    s.happen("orders", (0, "a", "10"))
    s.happen("payments", (1, "a", "9"))
    s.happen("payments", (2, "a", "10"))
    assert s.matches() == {("o0", "p1")}
    s.happen("orders", (400, "z", "1"))
    s.happen("payments", (400, "z", "2"))
    assert s.letters() == {("check_failed", "o0", "p0"), ("check_failed", "o1", "p2")}
    [left] = s.stream.rows(
        "SELECT matched, unmatched FROM headrace.flow_sides WHERE query = %(query)s",
        query=s.stream.query("payments"),
    )
    assert left == {"matched": 1, "unmatched": 1}


@pytest.mark.parametrize("first", ["orders", "payments"])
def test_one_to_one_takes_the_first_of_the_log(shop: Any, first: str) -> None:
    s = shop()
    second = "payments" if first == "orders" else "orders"
    s.happen(first, (3, "a", "1"), (1, "a", "1"))
    s.happen(second, (2, "a", "1"), (4, "a", "1"), (5, "a", "1"))
    assert s.matches() == {("o0", "p0"), ("o1", "p1")}


def test_by_event_time_a_pair_waits_until_nothing_earlier_can_come(shop: Any) -> None:
    s = shop(order="event_time", kind="first_match")
    s.happen("orders", (10, "a", "1"))
    s.happen("payments", (20, "a", "1"))
    s.happen("payments", (15, "a", "1"))
    assert s.matches() == set()
    s.happen("payments", (75.000001, "z", "1"))
    s.happen("orders", (130, "z", "1"))
    assert s.matches() == set()
    s.happen("orders", (130.000001, "y", "1"))
    assert s.matches() == {("o0", "p1")}


def test_an_event_does_not_meet_itself(spark: SparkSession, services: Services) -> None:
    s = Shop(
        spark,
        services.store_url,
        right="orders",
        on="order_id",
        kind="one_to_many",
        left_unmatched="lonely",
        right_unmatched=None,
    )
    s.happen("orders", (0, "a", "1"), (1, "a", "1"), (2, "b", "1"))
    s.happen("orders", (3, "a", "1"))
    ids = {"o0", "o1", "o3"}
    assert s.matches() == {(x, y) for x in ids for y in ids if x != y}
    s.happen("orders", (1000, "c", "1"))
    assert s.letters() == {("lonely", "o2", None)}


def test_a_source_that_never_spoke_is_not_waited_for_for_ever(shop: Any) -> None:
    s = shop()
    s.happen("orders", (0, "a", "1"))
    s.happen("orders", (10_000, "b", "1"))
    assert s.letters() == set()
    Store(s.stream.url).transact(
        lambda connection: connection.execute(
            "UPDATE headrace.joins SET since = now() - interval '8 minutes' WHERE app = %s", (s.stream.app,)
        )
    )
    s.happen("orders", (10_001, "c", "1"))
    assert s.letters() == {("no_payment", "o0", None)}
    s.happen("payments", (1, "a", "1"), (9_641, "b", "1"), (10_000, "b", "1"))
    assert s.matches() == {("o1", "p2")}
    late = s.stream.rows("SELECT event_id, reason FROM headrace.flow_late WHERE app = %(app)s")
    assert late == [{"event_id": "p0", "reason": "idle_wake"}]


def test_texts_that_postgres_does_not_keep(shop: Any) -> None:
    s = shop()
    s.happen("orders", (0, "a\0b", "1"), (0, "k" * 5000, "1"))
    s.happen("payments", (0, "a\0b", "1"), (0, "k" * 5000, "1"))
    assert s.matches() == {("o0", "p0"), ("o1", "p1")}


def test_old_rows_are_forgotten_and_the_audit_knows(shop: Any) -> None:
    s = shop(retain="1 hour")
    for second in (0, 10_000):
        s.happen("orders", (second, "a", "1"), (second, "b", "1"))
        s.happen("payments", (second, "a", "1"))
    s.happen("orders", (20_000, "z", "1"))
    s.happen("payments", (20_000, "z", "1"))
    assert len(s.matches()) == 3 and len(s.letters()) == 2
    s.stream.forget_old("orders")
    assert s.matches() == {("o4", "p2")} and s.letters() == set()
    assert audit(s) == []


def test_the_audit_finds_what_is_missing(shop: Any) -> None:
    s = shop(kind="one_to_many")
    s.happen("orders", (0, "a", "1"), (0, "b", "1"), (0, "c", "1"))
    s.happen("payments", (0, "a", "1"), (1, "a", "1"))
    assert audit(s) == []
    for statement, found in (
        ("DELETE FROM {app}.order_paid__left WHERE key = 'b'", "3 taken, 2 accounted for"),
        ("DELETE FROM {app}.order_paid WHERE right_id = 'p1'", "2 matches written, 1 there"),
        ("DELETE FROM headrace.flow_ledger WHERE query = '{app}.orders'", "1 batches differ"),
    ):
        Store(s.stream.url).transact(
            lambda c, text=statement: c.execute(sql.SQL(text.replace("{app}", s.stream.app)))
        )
        assert any(found in note for note in audit(s)), audit(s)


def audit(s: Shop) -> list[str]:
    def look(connection: Any) -> list[str]:
        audits = [a for source in CONTRACTS for a in flow_audits(connection, s.stream.query(source))]
        assert [(a.flow, a.side) for a in audits] == [("order_paid", "left"), ("order_paid", "right")]
        return [finding.note for finding in flow_findings("t", audits)]

    return Store(s.stream.url).transact(look)


def test_a_change_of_meaning_is_refused_and_others_are_not(spark: SparkSession, services: Services) -> None:
    s = Shop(spark, services.store_url)
    app = App("again")
    same = {"left": "orders", "right": "payments", "on": ("order_id", "order_ref"), "order": "log"}
    columns = {"amount": "left.amount", "paid_time": "right.event_time"}
    reprepare(spark, s, app.join("order_paid", **same, within="60 seconds", columns=columns, retain="1 day"))
    changed = App("more").join("order_paid", **same, within="61 seconds", columns=columns)
    with pytest.raises(AppError, match="another meaning: within changed"):
        reprepare(spark, s, changed)


def reprepare(spark: SparkSession, s: Shop, join: Join) -> None:
    from headrace.store.join_fold import JoinFold

    resolved = resolve_join(spark, JoinSide(join, "left", CONTRACTS["orders"], CONTRACTS["payments"]))
    queries = {"left": s.stream.query("orders"), "right": s.stream.query("payments")}
    fold = JoinFold(s.stream.app, queries, resolved, "left")  # type: ignore[arg-type]
    Store(s.stream.url).transact(lambda connection: fold.prepare(connection, {}))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "Order"}, "no name for a join"),
        ({"on": ()}, "on names the fields"),
        ({"within": "soon"}, "is not a duration"),
        ({"kind": "many"}, "there is no kind 'many'"),
        ({"order": "random"}, "there is no order"),
        ({"columns": {"key": "left.amount"}}, "no name for a column"),
        ({"check": {"Bad": "true"}}, "no name for a reason"),
        ({"left_unmatched": "x", "right_unmatched": "x"}, "two things have the reason"),
        ({"topic": "a b"}, "no name for a topic"),
        ({"topic": "a", "dead_letters": "a"}, "need two topics"),
        ({"on": "order_id"}, "'payments' has no field 'order_id'"),
        ({"on": ("items", "order_ref")}, "never equal"),
        ({"left_where": "knid = 'x'"}, "no column 'knid'"),
        ({"left_where": "amount"}, "not a condition"),
        ({"check": "amount = 1"}, "does not say whose it is"),
        ({"check": "left.amuont = right.amount"}, "the left has no column 'amuont'"),
        ({"check": "left.amount"}, "not a condition"),
        ({"check": "rand() > left.amount"}, "different every time"),
        ({"check": "concat(left.kind, right.kind) = 'x'"}, "not possible where both sides meet"),
        ({"columns": {"when": "right.event_time - left.event_time"}}, "is not possible"),
        ({"columns": {"x": "left.amount +"}}, "cannot read"),
    ],
)
def test_mistakes_are_named(spark: SparkSession, wrong: dict[str, Any], said: str) -> None:
    given = {
        "left": "orders",
        "right": "payments",
        "on": ("order_id", "order_ref"),
        "within": "1 minute",
        **wrong,
    }
    with pytest.raises(AppError, match=said) as caught:
        join = App("wrong").join(given.pop("name", "paid"), **given)
        resolve_join(spark, JoinSide(join, "left", CONTRACTS["orders"], CONTRACTS["payments"]))
    assert "test_join_rules.py" in caught.value.where


def test_what_one_side_can_compute_spark_computes(spark: SparkSession) -> None:
    join = App("one").join(
        "paid",
        left="orders",
        right="payments",
        on=[("order_id", "order_ref"), "kind"],
        within="1 minute",
        columns={"label": "upper(left.kind)", "gap": "abs(left.amount - right.amount)"},
    )
    found = resolve_join(spark, side_of(join, CONTRACTS["orders"], CONTRACTS["payments"]))
    assert "UPPER" in json.dumps(found.sides["left"].taken)
    assert found.columns["label"][1:] == ("text", "left") and found.columns["gap"][1:] == ("numeric", None)
    assert found.order == "event_time"  # payments are spread by customer


def side_of(join: Join, left: Contract, right: Contract) -> JoinSide:
    return JoinSide(join, "left", left, right)


def test_where_the_key_is_the_partition_the_log_has_the_order(spark: SparkSession) -> None:
    join = App("one").join("again", left="orders", right="orders", on="order_id", within="1 minute")
    assert resolve_join(spark, side_of(join, CONTRACTS["orders"], CONTRACTS["orders"])).order == "log"
    assert join.unmatched == {"left": "no_right", "right": "no_left"}
