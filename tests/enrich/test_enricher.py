"""Enriched bytes against an oracle that parses them."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace import App, Dimension, table
from headrace.dimensions import ALWAYS, Row, versions_of
from headrace.enrich import Enrich
from headrace.enricher import FOUND, NO_KEY, UNKNOWN, Enricher, LaterLookup, make_enricher
from headrace.errors import AppError
from headrace.log.enriched import EnrichedBatch
from headrace.store.enrich_pins import packed, unpacked
from tests.oracle.enrich_oracle import DimensionRow, enriched

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = datetime(2026, 3, 1, 9, tzinfo=UTC)
COLUMNS = {"category": "kind", "list_price": "price"}


def products() -> Dimension:
    return table("products", key="product_id", file="products.csv", types={"price": "integer"})


def declared(**more: Any) -> Enrich:
    columns = {name: f"products.{column}" for name, column in COLUMNS.items()}
    given = {"of": "clicks", "with_": products(), "columns": columns, "topic": "clicks.enriched.v1"}
    return App("shop").enrich("clicks_enriched", **(given | more))


def enricher_of(rows: list[DimensionRow], enrich: Enrich) -> Enricher:
    given = [
        Row(
            row.key,
            (row.valid_from - EPOCH) // timedelta(microseconds=1),
            None,
            (row.values["price"], row.values["kind"]),
        )
        for row in rows
    ]
    return make_enricher(enrich, {"products": versions_of(("price", "kind"), given)}, "1.0.0")


def made_of(enricher: Enricher, value: bytes, key: str | None, at: int) -> tuple[bytes, str]:
    """The one event of a batch as the publisher makes it."""
    columns = {"fate": [0], "partition": [3], "key": [b"k"], "value": [value], "source": [b"s"]}
    times = {"event_time": [at], "lookup_product_id": pa.array([key], pa.string())}
    batch = EnrichedBatch(enricher, pa.RecordBatch.from_pydict({**columns, **times}))
    [(topic, partition, _, made, _)], [tally] = list(batch.records()), batch.tallies()
    assert (topic, partition, tally.partition) == ("clicks.enriched.v1", 3, 3)
    [label] = tally.enriched
    return made, label.removeprefix("clicks_enriched:")


def event(r: random.Random, number: int) -> bytes:
    at = START + timedelta(microseconds=r.randrange(60_000_000))
    fields: dict[str, Any] = {"event_id": f"e{number}", "event_time": at.isoformat(), "price": 498000.00}
    if r.random() < 0.9:
        fields["product_id"] = r.choice(["p1", "p2", "p3", "ключ", None])
    if r.random() < 0.2:
        fields["category"] = r.choice(["its own", {"category": [1, "}"]}, None])
    if r.random() < 0.2:
        fields["note"] = 'a "category" and a {"list_price": 1} and ünïcode'
    text = json.dumps(fields, ensure_ascii=r.random() < 0.5, indent=r.choice([None, 1]))
    return (text + r.choice(["", " ", "\n"])).encode()


@pytest.mark.parametrize("seed", range(10))
def test_an_enriched_event_is_the_oracles(seed: int) -> None:
    r = random.Random(seed)
    rows = {}
    for _ in range(30):
        start = START + timedelta(microseconds=r.randrange(60_000_000))
        key = r.choice(["p1", "p2", "ключ"])
        values = {"kind": r.choice(["kettle", 'a "quoted" one', None, "чайник"]), "price": r.randrange(100)}
        rows[key, start] = DimensionRow(key, start, values)
    enricher = enricher_of(list(rows.values()), declared())
    outcomes = set()
    for number in range(200):
        value = event(r, number)
        fields = json.loads(value)
        at = (datetime.fromisoformat(fields["event_time"]) - EPOCH) // timedelta(microseconds=1)
        made, outcome = made_of(enricher, value, fields.get("product_id"), at)
        wanted = enriched(
            value, list(rows.values()), table="products", on="product_id", columns=COLUMNS, time="event_time"
        )
        pairs = json.loads(made, object_pairs_hook=list)
        assert len({name for name, _ in pairs}) == len(pairs)
        assert json.loads(made) == wanted
        assert outcome == {True: "found", False: "unknown", None: "no_key"}[wanted["products_found"]]
        outcomes.add(outcome)
    assert outcomes == {"found", "unknown", "no_key"}


@pytest.mark.parametrize("seed", range(5))
def test_an_event_that_has_waited_has_the_same_bytes(seed: int) -> None:
    """With two tables, which know a key, its time, or neither."""
    r = random.Random(seed)
    makers = table("makers", key="maker", on="product_id", file="makers.csv")
    columns = {"category": "products.kind", "list_price": "products.price", "maker": "makers.name"}
    enrich = declared(with_=[products(), makers], columns=columns)
    times = [0, ALWAYS, 30_000_000]
    versions = {
        "products": versions_of(
            ("price", "kind"),
            [Row(k, t, t + 10**7 if t > 0 else None, (r.randrange(9), "ü")) for k in "ab" for t in times],
        ),
        "makers": versions_of(("name",), [Row(k, 5_000_000, None, (None,)) for k in ("b", "c")]),
    }
    unpinned = unpacked(packed(versions["products"]))
    assert unpinned == versions["products"]
    enricher, later = make_enricher(enrich, versions, "1.0.0"), LaterLookup(enrich, versions)
    seen = set()
    for number in range(100):
        value, key, at = event(r, number), r.choice(["a", "b", "c", None]), r.randrange(60_000_000)
        keys = pa.array([key], pa.string())
        tails, [outcome] = enricher.tails([keys, keys], np.array([at]))
        tail: bytes = tails[0].as_py()
        assert later.tail([key, key], at) == (tail, outcome)
        sound = value.endswith(b"}") and b'"category"' not in value and b'"list_price"' not in value
        direct = (value if sound else enricher.trimmed(value))[:-1] + tail
        assert later.completed(value, tail) == direct
        json.loads(direct)
        seen.add(outcome)
    assert seen == {FOUND, NO_KEY, UNKNOWN}


def test_a_table_keeps_its_digits_when_it_is_put_aside() -> None:
    rows = [Row("p-1", ALWAYS, 5, (Decimal("12.50"), "чайник", None)), Row("p-2", -3, None, (7, True, ""))]
    versions = versions_of(("a", "b", "c"), rows)
    again = unpacked(packed(versions))
    assert again == versions
    assert str(again.values["p-1"][0]) == str(versions.values["p-1"][0])


def test_the_events_own_numbers_stay_as_they_were_written() -> None:
    enricher = enricher_of([], declared())
    value = b'{"amount":498000.00,"big":12345678901234567890.10,"category":"x"}'
    made, _ = made_of(enricher, value, "p1", 0)
    assert made.startswith(b'{"amount":498000.00,"big":12345678901234567890.10,"category":null')


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"columns": {}}, "adds nothing"),
        ({"columns": {"category": "kind"}}, "no column of a table"),
        ({"columns": {"category": "customers.kind"}}, "no column of a table"),
        ({"unknown": "again"}, "no unknown='again'"),
        ({"retry_for": "1 minute"}, "retry_for is for unknown='retry'"),
        ({"unknown": "retry", "retry_for": "soon"}, "retry_for: 'soon' is not a duration"),
        ({"unknown": "retry", "retry_for": "0 s"}, "retry_for is nothing"),
        ({"unknown": "retry", "then": "retry"}, "no then='retry'"),
        ({"unknown": "retry", "waiting_limit": 0}, "waiting_limit must be at least 1"),
        ({"topic": "a b"}, "no name for a topic"),
    ],
)
def test_a_wrong_declaration_says_so(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(AppError, match=problem) as error:
        declared(**changed)
    assert error.value.where.startswith(__file__)
