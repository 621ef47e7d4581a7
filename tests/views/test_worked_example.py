"""The life of one row, record by record: two partitions, one-minute windows, 20 s and 60 s."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from pyspark.sql import SparkSession

from headrace import App, count, distinct, last_of, min_of, sum_of, top, tumbling
from headrace.local.services import Services
from tests.oracle.metrics_oracle import Event
from tests.views.stream import Stream

app = App("example")
SALES = app.metric(
    "sales_1m",
    of="sales",
    window=tumbling("1 minute"),
    measures={"n": count()},
    preliminary_after="20 seconds",
    final_after="60 seconds",
)
STEPS = """
0 09:00:10  1 open        0 0
1 09:00:40  2 open        0 0
0 09:01:25  2 open        0 0
1 09:01:30  2 preliminary 1 0
0 09:00:55  3 corrected   2 0
0 09:02:05  3 corrected   2 0
0 09:00:30  3 corrected   2 1
1 09:00:20  4 corrected   3 1
1 09:02:10  4 final       3 1
1 09:00:59  4 final       3 2
"""


def _micros(clock: str) -> int:
    time = datetime.fromisoformat(f"2026-03-01T{clock}").replace(tzinfo=UTC)
    return int(time.timestamp()) * 1_000_000


def test_each_record_changes_the_row_as_the_table_says(spark: SparkSession, services: Services) -> None:
    stream = Stream(spark, services.store_url, SALES)
    key = (_micros("09:00:00"), _micros("09:01:00"), "all")
    for offset, line in enumerate(STEPS.strip().splitlines()):
        partition, clock, events, state, revision, late = line.split()
        at = _micros(clock)
        stream.feed([Event(int(partition), offset, f"e{offset}", at, at, {})])
        row = stream.rows(SALES)[key]
        shown = (row["events"], row["state"], row["revision"], row["late_events"])
        assert shown == (int(events), state, int(revision), int(late)), f"record {offset + 1}: {line}"
    late = stream.query(
        "SELECT event_id, reason, extract(epoch FROM late_by)::int FROM headrace.late_events"
        " WHERE app = %(app)s ORDER BY event_id"
    )
    assert late == [("e6", "late", 5), ("e9", "late", 10)]


def test_a_formula_that_fails_on_an_event_is_null_and_stops_nobody(
    spark: SparkSession, services: Services
) -> None:
    each = App("each").metric(
        "each_1m",
        of="sales",
        window=tumbling("1 minute"),
        where="CAST(kind AS INT) IS NULL",
        measures={"n": count(), "each": sum_of("price / items"), "last": last_of("array(kind)[items]")},
    )
    stream = Stream(spark, services.store_url, each)
    at = _micros("09:00:10")
    fields = [{"kind": "sale", "price": Decimal(9), "items": items} for items in (3, 0, 1)]
    stream.feed([Event(0, n, f"e{n}", at, at, given) for n, given in enumerate(fields)])
    [row] = stream.rows(each).values()
    assert (row["n"], row["each"], row["last"]) == (3, 12, "sale")


def test_rows_are_kept_for_as_long_as_declared(spark: SparkSession, services: Services) -> None:
    kept = App("kept").metric(
        "sales_1m", of="sales", window=tumbling("1 minute"), measures={"n": count()}, retain="5 minutes"
    )
    stream = Stream(spark, services.store_url, kept)
    for offset, clock in enumerate(("09:00:10", "09:03:40", "09:07:30", "09:08:59")):
        at = _micros(clock)
        stream.feed([Event(0, offset, f"e{offset}", at, at, {})])
    starts = [start for start, *_ in sorted(stream.rows(kept))]
    assert starts == [_micros("09:03:00"), _micros("09:07:00"), _micros("09:08:00")]


def test_a_window_may_be_final_at_its_end(spark: SparkSession, services: Services) -> None:
    at_once = App("at_once").metric(
        "sales_1m", of="sales", window=tumbling("1 minute"), measures={"n": count()}, final_after="0 seconds"
    )
    stream = Stream(spark, services.store_url, at_once)
    times = [_micros(clock) for clock in ("09:00:10", "09:01:10", "09:00:20")]
    stream.feed([Event(0, offset, f"e{offset}", at, at, {}) for offset, at in enumerate(times)])
    row = stream.rows(at_once)[(_micros("09:00:00"), _micros("09:01:00"), "all")]
    assert (row["n"], row["state"], row["late_events"]) == (1, "final", 1)


def test_any_text_can_be_a_group_and_a_value(spark: SparkSession, services: Services) -> None:
    by_kind = App("texts").metric(
        "kinds_1m",
        of="sales",
        window=tumbling("1 minute"),
        by="kind",
        measures={
            "n": count(),
            "least": min_of("kind"),
            "last": last_of("kind"),
            "different": distinct("kind"),
            "first": top("kind", 1),
        },
    )
    stream = Stream(spark, services.store_url, by_kind)
    at = _micros("09:00:10")
    kinds = ["a\tb", "a\nb", "a\rb", "\\N", "\\", "", "(none)", "{1,2}", '"', "a\0b", None]
    stream.feed([Event(0, n, f"e{n}", at, at, {"kind": kind}) for n, kind in enumerate(kinds)])
    shown = {"(none)": "\\(none)", "a\0b": "a\N{REPLACEMENT CHARACTER}b", None: "(none)"}
    for kind in kinds:
        row = stream.rows(by_kind)[(_micros("09:00:00"), _micros("09:01:00"), "kind", shown.get(kind, kind))]
        value = kind and kind.replace("\0", "\N{REPLACEMENT CHARACTER}")
        assert (row["n"], row["least"], row["last"]) == (1, value, value)


def test_groups_that_are_written_alike_are_one(spark: SparkSession, services: Services) -> None:
    by_kind = App("alike").metric(
        "kinds_1m", of="sales", window=tumbling("1 minute"), by="kind", measures={"n": count()}
    )
    stream = Stream(spark, services.store_url, by_kind)
    at = _micros("09:00:10")
    kinds = ["(none)", "\\(none)", "a\0b", "a\N{REPLACEMENT CHARACTER}b"]
    stream.feed([Event(0, n, f"e{n}", at, at, {"kind": kind}) for n, kind in enumerate(kinds)])
    assert {key[3]: row["n"] for key, row in stream.rows(by_kind).items()} == {
        "\\(none)": 2,
        "a\N{REPLACEMENT CHARACTER}b": 2,
    }
