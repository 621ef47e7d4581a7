"""TuranMart, an online shop in Tashkent, Almaty, Bishkek, Samarkand and Astana.

Four streams come in: clickstream, payments, orders and logins. Their contracts are in `contracts/`;
the shoppers who make them up for demos and tests are in `traffic/`.
"""

from headrace import (
    App,
    count,
    distinct,
    first_of,
    last_of,
    model,
    quantiles,
    rule,
    running,
    seconds_since_last,
    sliding,
    sum_of,
    table,
    times_last,
    top,
    tumbling,
)

PURCHASE = "event_type = 'purchase'"
SHOWN = "event_type = 'product_impression'"

ALERTS = "checkout_anomaly_alerts.v1"
SUSPICIONS = "suspicious_activity_alerts.v1"

FAILED_LOGIN = "event_type = 'login_failed'"
ATTEMPT = "event_type IN ('payment_authorized', 'payment_failed')"
# 500 US dollars, in each currency and in that of each region.
LARGE_PAYMENT = (
    "amount >= CASE currency WHEN 'UZS' THEN 6300000 WHEN 'KZT' THEN 240000"
    " WHEN 'KGS' THEN 43500 ELSE 500 END"
)
LARGE_CART = (
    "price * quantity >= CASE region WHEN 'bishkek' THEN 43500"
    " WHEN 'almaty' THEN 240000 WHEN 'astana' THEN 240000 ELSE 6300000 END"
)

app = App("turanmart", contracts="contracts")

app.metric(
    "conversion_1m",
    of="clickstream",
    window=tumbling("1 minute"),
    by=[[], ["region"], ["region", "device_type"]],
    measures={"impressions": count(SHOWN), "purchases": count(PURCHASE)},
    derived={"conversion_rate": "purchases / impressions"},
    preliminary_after="20 seconds",
    final_after="2 minutes",
)

app.metric(
    "payment_errors_15m",
    of="payments",
    window=sliding("15 minutes", every="1 minute"),
    by=[[], ["region"]],
    where="event_type IN ('payment_authorized', 'payment_failed')",
    measures={"payments": count(), "failed": count("event_type = 'payment_failed'")},
    derived={"error_rate": "failed / payments"},
    final_after="2 minutes",
)

app.metric(
    "visitors_5m",
    of="clickstream",
    window=tumbling("5 minutes"),
    by=[[], ["page"]],
    measures={"views": count("event_type = 'page_view'"), "visitors": distinct("customer_id")},
    preliminary_after="2 minutes",
    final_after="3 minutes",
)

# Prices are in the currency of the region, so money is never added up across regions.
app.metric(
    "revenue_10m",
    of="clickstream",
    window=tumbling("10 minutes"),
    by=["region"],
    where=PURCHASE,
    measures={"revenue": sum_of("price * quantity"), "purchases": count()},
    derived={"basket": "revenue / purchases"},
    final_after="5 minutes",
)

for minutes in (1, 5, 60):
    app.metric(
        f"products_{minutes}m",
        of="clickstream",
        window=tumbling(f"{minutes} minutes"),
        by=["product_id", "region"],
        where="product_id IS NOT NULL",
        measures={
            "views": count(SHOWN),
            "carts": count("event_type = 'add_to_cart'"),
            "purchases": count(PURCHASE),
        },
        final_after="2 minutes",
        retain="2 days",
        limit=50_000,
    )

app.metric(
    "product_revenue_1h",
    of="clickstream",
    window=sliding("1 hour", every="5 minutes"),
    by=["product_id", "region"],
    where=PURCHASE,
    measures={"revenue": sum_of("price * quantity"), "pieces": sum_of("quantity")},
    final_after="10 minutes",
    retain="2 days",
    limit=50_000,
)

app.metric(
    "customer_events_5m",
    of="clickstream",
    window=tumbling("5 minutes"),
    by=["customer_id"],
    measures={"clicks": count("event_type = 'product_click'"), "purchases": count(PURCHASE)},
    final_after="2 minutes",
    retain="1 day",
    limit=50_000,
)

app.metric(
    "top_products_today",
    of="clickstream",
    window=running(reset="1 day", trigger="10 seconds"),
    measures={"products": top("product_id", 10, limit=10_000, where=PURCHASE)},
    where=PURCHASE,
    final_after="10 minutes",
)

app.metric(
    "checkout_latency_5m",
    of="clickstream",
    window=tumbling("5 minutes"),
    by=[[], ["region"]],
    where="checkout_ms IS NOT NULL",
    measures={"latency_ms": quantiles("checkout_ms")},
    final_after="2 minutes",
)

# A customer shops in one region, so a visit has one currency.
app.sessions(
    "visits",
    of="clickstream",
    key="customer_id",
    gap="30 minutes",
    max_length="4 hours",
    measures={
        "region": first_of("region"),
        "pages": count("event_type = 'page_view'"),
        "entry_page": first_of("page"),
        "exit_page": last_of("page"),
        "purchases": count(PURCHASE),
        "revenue": sum_of("price * quantity", where=PURCHASE),
    },
    derived={"converted": "purchases > 0"},
    final_after="10 minutes",
    retain="2 days",
)

# A quiet minute proves nothing: both look only at windows with enough to judge by.
app.alert(
    "low_conversion",
    on="conversion_1m",
    when="conversion_rate < 0.01 AND impressions >= 100",
    by=["region"],
    windows=3,
    severity="critical",
    topic=ALERTS,
    message="conversion in {region} is {conversion_rate:.2%}: {purchases:,} of {impressions:,} impressions",
    runbook="/runbooks/incident-alerts",
)

app.alert(
    "payment_errors",
    on="payment_errors_15m",
    when="error_rate > 0.05 AND payments >= 50",
    by=["region"],
    severity="critical",
    topic=ALERTS,
    message="{error_rate:.1%} of {payments:,} payments in {region} failed within 15 minutes",
    runbook="/runbooks/incident-alerts",
)

# All events of an order, a visit or a trace belong to one customer, and so to one partition of each stream:
# the log has their order, and nothing waits for latecomers.
app.join(
    "order_paid",
    left="orders",
    right="payments",
    on="order_id",
    left_where="event_type = 'order_created'",
    right_where="event_type = 'payment_authorized'",
    within="30 minutes",
    kind="one_to_one",
    order="log",
    check={
        "currency_differs": "left.currency = right.currency",
        "amount_differs": "left.total = right.amount",
    },
    columns={
        "customer_id": "left.customer_id",
        "region": "left.region",
        "amount": "right.amount",
        "currency": "right.currency",
        "method": "right.method",
        "paid_time": "right.event_time",
    },
    left_unmatched="no_payment",
    right_unmatched="no_order",
    topic="order_paid.v1",
    dead_letters="order_paid.unmatched.v1",
)

# A checkout and the payment that came of it share the trace of the request.
app.join(
    "checkout_paid",
    left="clickstream",
    right="payments",
    on="trace_id",
    left_where="event_type = 'checkout_started'",
    right_where="event_type = 'payment_authorized'",
    within="30 minutes",
    kind="first_match",
    order="log",
    columns={
        "customer_id": "left.customer_id",
        "region": "left.region",
        "device_type": "left.device_type",
        "order_id": "right.order_id",
        "amount": "right.amount",
        "currency": "right.currency",
        "paid_time": "right.event_time",
    },
    left_unmatched="no_payment",
    right_unmatched="no_checkout",
    topic="checkout_paid.v1",
    dead_letters="checkout_paid.unmatched.v1",
)

# Most of what is shown is not clicked: such impressions are counted, and not written.
app.join(
    "ad_click",
    left="clickstream",
    right="clickstream",
    on=["session_id", "product_id"],
    left_where="event_type = 'product_impression'",
    right_where="event_type = 'product_click'",
    within="1 hour",
    kind="first_match",
    order="log",
    columns={"campaign": "left.campaign", "region": "left.region", "device_type": "left.device_type"},
    left_unmatched=None,
    right_unmatched="no_impression",
    topic="ad_click.v1",
    dead_letters="ad_click.unmatched.v1",
    retain="2 days",
)

# What one customer does, one step after the other.
app.pattern(
    "card_testing",
    of="payments",
    key="customer_id",
    sequence="F{3,} H",
    define={
        "F": "event_type = 'payment_failed'",
        "H": f"event_type = 'payment_authorized' AND {LARGE_PAYMENT}",
    },
    within="10 minutes",
    quiet="30 minutes",
    show=["region"],
    severity="critical",
    topic=SUSPICIONS,
    message="{customer_id} in {region}: a large payment went through as number {events}, after failures only",
    runbook="/runbooks/incident-alerts",
)

app.pattern(
    "failed_logins",
    of="logins",
    key="customer_id",
    where=FAILED_LOGIN,
    count=3,
    within="2 minutes",
    quiet="30 minutes",
    show=["region"],
    topic=SUSPICIONS,
    message="{customer_id} in {region}: {events} failed logins within 2 minutes",
    runbook="/runbooks/incident-alerts",
)

app.pattern(
    "guessed_passwords",
    of="logins",
    key="customer_id",
    where=FAILED_LOGIN,
    count=4,
    within="10 minutes",
    quiet="1 hour",
    show=["region"],
    severity="critical",
    topic=SUSPICIONS,
    message="{customer_id} in {region}: more than 3 failed logins within 10 minutes",
    runbook="/runbooks/incident-alerts",
)

app.pattern(
    "many_purchase_attempts",
    of="payments",
    key="customer_id",
    where=ATTEMPT,
    count=6,
    within="10 minutes",
    quiet="30 minutes",
    topic=SUSPICIONS,
    message="{customer_id} tried to pay {events} times within 10 minutes",
    runbook="/runbooks/incident-alerts",
)

app.pattern(
    "abandoned_checkout",
    of="clickstream",
    key="customer_id",
    starts=f"event_type = 'checkout_started' AND {LARGE_CART}",
    without=PURCHASE,
    within="10 minutes",
    final_after="1 minute",
    quiet="1 hour",
    show=["region", "product_id"],
    severity="info",
    topic=SUSPICIONS,
    message="{customer_id} in {region} left a large cart with {product_id} at the till",
    runbook="/runbooks/incident-alerts",
)

# Amounts are in the currency of the region; what a card does is compared in dollars.
DOLLARS = (
    "CAST(amount AS DOUBLE)"
    " / CASE currency WHEN 'UZS' THEN 12600 WHEN 'KZT' THEN 480 WHEN 'KGS' THEN 87 ELSE 1 END"
)

app.signals(
    "fraud",
    of="payments",
    key="card_hash",
    where="event_type = 'payment_authorized'",
    memory="5 minutes",
    features={
        "dollars": DOLLARS,
        "payments_5m": count(),
        "dollars_5m": sum_of(DOLLARS),
        "regions_5m": distinct("region"),
        "times_last_amount": times_last(DOLLARS),
        "seconds_since_last": seconds_since_last(),
        "level": "customers.level",
    },
    with_=table("customers", key="customer_id", file="dimensions/customers.csv"),
    model=model("models/fraud.json", version="1"),
    decision={"block": 0.9, "review": 0.5},
    shadow=rule(
        "CASE WHEN payments_5m >= 3 AND times_last_amount >= 10 THEN 1.0"
        " WHEN payments_5m >= 3 OR regions_5m >= 2 THEN 0.6 ELSE 0.0 END",
        version="velocity-1",
    ),
    activity_by="customer_id",
    topic="fraud_signals.v1",
    retain="7 days",
)

# What a card pays at once needs no memory: the gateway hears of it before the customer has left the till.
app.signals(
    "large_payments",
    of="payments",
    key="card_hash",
    where="event_type = 'payment_authorized'",
    features={"dollars": DOLLARS, "level": "customers.level"},
    with_=table("customers", key="customer_id", file="dimensions/customers.csv"),
    score=rule(
        "CASE WHEN dollars >= 3000 THEN 1.0"
        " WHEN dollars >= 2000 AND coalesce(level, 'basic') = 'basic' THEN 0.6 ELSE 0.0 END",
        version="1",
    ),
    decision={"block": 0.9, "review": 0.5},
    activity_by="customer_id",
    topic="fraud_signals_fast.v1",
    lane="realtime",
)

app.enrich(
    "clickstream_enriched",
    of="clickstream",
    with_=table("products", key="product_id", file="dimensions/products.csv", types={"list_price": "number"}),
    columns={"category": "products.category", "list_price": "products.list_price"},
    topic="clickstream.enriched.v1",
)

# The dashboard, in this order.
app.panel(
    "Conversion",
    metric="conversion_1m",
    value="conversion_rate",
    by="region",
    unit="percent",
    note="Purchases for each product shown.",
)
app.panel(
    "Revenue",
    metric="revenue_10m",
    value="revenue",
    by="region",
    unit="local currency",
    shared_scale=False,
    note="In the currency of each region: do not compare across regions.",
)
app.panel(
    "Payment errors",
    metric="payment_errors_15m",
    value="error_rate",
    unit="percent",
    note="Failed payments of the last 15 minutes.",
)
app.panel("Unique visitors", metric="visitors_5m", value="visitors", note="Estimated, within 1.6 %.")
app.panel(
    "Checkout time",
    metric="checkout_latency_5m",
    value="latency_ms",
    unit="ms",
    note="From the press of pay to the confirmation.",
)
app.panel("Top products today", metric="top_products_today", value="products", unit="sold")
