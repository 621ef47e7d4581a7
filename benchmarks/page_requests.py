"""What TuranMart's dashboard asks the API for, besides following /live: those who load it ask all of this.

`tests/serve/test_page_requests.py` holds the list against the real page.
"""

from __future__ import annotations

PAGE = (
    "/api/v1/alerts?state=open&limit=100",
    "/api/v1/dead-letters/histogram?by=reason",
    "/api/v1/dead-letters?limit=1",
    "/api/v1/enrichments",
    "/api/v1/health?probe=false",
    "/api/v1/late-events/delays",
    "/api/v1/metrics",
    "/api/v1/metrics/checkout_latency_5m/rows?grouping=all&order=-window_start&limit=33",
    "/api/v1/metrics/conversion_1m/rows?grouping=region&order=-window_start&limit=165",
    "/api/v1/metrics/payment_errors_15m/rows?grouping=all&order=-window_start&limit=47",
    "/api/v1/metrics/revenue_10m/rows?grouping=region&order=-window_start&limit=165",
    "/api/v1/metrics/top_products_today/rows?grouping=all&order=-window_start&limit=2",
    "/api/v1/metrics/visitors_5m/rows?grouping=all&order=-window_start&limit=33",
    "/api/v1/panels",
    "/api/v1/pipeline",
    "/api/v1/sessions",
    "/api/v1/sessions/visits/summary",
)
# These ask the broker: where there is none, they wait for it.
OF_THE_BROKER = ("/api/v1/dead-letters?limit=1", "/api/v1/health?probe=false", "/api/v1/pipeline")
# What applications ask, and no page.
APPLICATIONS = (
    "/api/v1/metrics/conversion_1m/rows?state=final&limit=200",
    "/api/v1/metrics/revenue_10m/latest",
    "/api/v1/metrics/products_1m/latest?order=-purchases&limit=10",
    "/api/v1/metrics/conversion_1m/rows?as_of=2100-01-01&limit=100",
    "/api/v1/metrics/conversion_1m/revisions?limit=100",
    "/api/v1/ledger?limit=50",
    "/api/v1/sources",
)


def asked_paths(*, broker: bool) -> tuple[str, ...]:
    page = tuple(path for path in PAGE if broker or path not in OF_THE_BROKER)
    return (*page, *APPLICATIONS)
