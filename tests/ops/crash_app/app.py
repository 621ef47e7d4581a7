"""The app that is killed: two streams, and one of everything that can be derived from them.

What it says is repeated in plain Python by `tests/ops/crash_results.py`: change both together.
"""

from headrace import (
    App,
    count,
    distinct,
    first_of,
    last_of,
    rule,
    running,
    seconds_since_last,
    sliding,
    sum_of,
    table,
    times_last,
    tumbling,
)

app = App("crash")
app.source("clickstream", max_batch=800)
app.source("payments", max_batch=500)

app.metric(
    "by_minute",
    of="clickstream",
    window=tumbling("1 minute"),
    by=[[], ["region"]],
    measures={"n": count(), "customers": distinct("customer_id")},
    final_after="30 seconds",
)
app.metric(
    "rolling",
    of="clickstream",
    window=sliding("3 minutes", every="1 minute"),
    measures={"n": count()},
    final_after="10 seconds",
)
app.metric(
    "so_far",
    of="clickstream",
    window=running(reset="1 day", trigger="1 minute"),
    measures={"n": count()},
    final_after="10 minutes",
)
app.metric(
    "paid_by_minute",
    of="payments",
    window=tumbling("1 minute"),
    by=["region"],
    measures={"n": count(), "bad": count("method = 'card'")},
    derived={"rate": "bad / n"},
    final_after="30 seconds",
)
app.alert(
    "many_cards",
    on="paid_by_minute",
    when="rate > 0.5 AND n >= 4",
    by=["region"],
    windows=2,
    state="final",
    topic="crash.alerts.v1",
)
app.sessions(
    "visits",
    of="clickstream",
    key="customer_id",
    gap="2 minutes",
    max_length="10 minutes",
    measures={
        "pages": count("event_type = 'page_view'"),
        "shown": sum_of("price"),
        "entry": first_of("page"),
        "exit": last_of("page"),
    },
    preliminary_after="30 seconds",
    final_after="2 minutes",
)
app.join(
    "checkout_paid",
    left="clickstream",
    right="payments",
    on="trace_id",
    left_where="event_type = 'checkout_started'",
    right_where="event_type = 'payment_authorized'",
    within="10 minutes",
    kind="first_match",
    order="log",
    check={"too_dear": "right.amount <= 5000000"},
    columns={"region": "left.region", "amount": "right.amount"},
    left_unmatched="no_payment",
    right_unmatched="no_checkout",
    topic="crash.paid.v1",
    dead_letters="crash.unpaid.v1",
)
app.join(
    "seen_clicked",
    left="clickstream",
    right="clickstream",
    on=["session_id", "product_id"],
    left_where="event_type = 'product_impression'",
    right_where="event_type = 'product_click'",
    within="5 minutes",
    kind="one_to_one",
    columns={"region": "left.region"},
    left_unmatched=None,
    right_unmatched="no_impression",
    topic="crash.clicked.v1",
    dead_letters="crash.unseen.v1",
)
app.pattern(
    "cards_then_wallet",
    of="payments",
    key="customer_id",
    sequence="C{2,} !R W",
    define={
        "C": "method = 'card'",
        "W": "method = 'wallet'",
        "R": "event_type = 'payment_failed' AND method = 'bank_transfer'",
    },
    within="5 minutes",
    quiet="2 minutes",
    topic="crash.alerts.v1",
)
app.pattern(
    "many_payments",
    of="payments",
    key="customer_id",
    where="event_type = 'payment_authorized'",
    count=4,
    within="1 minute",
    quiet="1 minute",
    topic="crash.alerts.v1",
)
app.pattern(
    "abandoned",
    of="clickstream",
    key="customer_id",
    starts="event_type = 'checkout_started'",
    without="event_type = 'purchase'",
    within="2 minutes",
    final_after="1 minute",
    quiet="0 seconds",
    topic="crash.absences.v1",
)
app.signals(
    "fraud",
    of="payments",
    key="card_hash",
    where="event_type = 'payment_authorized'",
    memory="2 minutes",
    features={
        "amount_now": "amount",
        "payments_2m": count(),
        "amount_2m": sum_of("amount"),
        "orders_2m": distinct("order_id"),
        "times_last_amount": times_last("amount"),
        "seconds_since": seconds_since_last(),
    },
    score=rule("least(1.0, payments_2m / 8 + coalesce(times_last_amount, 0) / 40)", version="1"),
    decision={"block": 0.6, "review": 0.2},
    activity_by="customer_id",
    topic="crash.signals.v1",
)
app.enrich(
    "clickstream_enriched",
    of="clickstream",
    with_=table("products", key="product_id", file="products.csv", types={"list_price": "number"}),
    columns={"category": "products.category", "list_price": "products.list_price"},
    topic="crash.enriched.v1",
)
