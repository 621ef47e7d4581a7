"""Headrace turns Kafka topics into live tables and streams with Spark, and accounts for every event."""

from headrace.alerts import Alert
from headrace.app import App, Source
from headrace.dimensions import Dimension, table
from headrace.errors import HeadraceError
from headrace.measures import (
    count,
    distinct,
    first_of,
    last_of,
    max_of,
    mean_of,
    min_of,
    quantiles,
    stddev_of,
    sum_of,
    top,
    variance_of,
)
from headrace.metrics import Metric
from headrace.models import Model, model
from headrace.panels import Panel
from headrace.patterns import Pattern
from headrace.sessions import Sessions
from headrace.signals import Signals, rule, seconds_since_last, times_last
from headrace.windows import running, sliding, tumbling

__version__ = "0.1.0"
__all__ = [
    "Alert",
    "App",
    "Dimension",
    "HeadraceError",
    "Metric",
    "Model",
    "Panel",
    "Pattern",
    "Sessions",
    "Signals",
    "Source",
    "__version__",
    "count",
    "distinct",
    "first_of",
    "last_of",
    "max_of",
    "mean_of",
    "min_of",
    "model",
    "quantiles",
    "rule",
    "running",
    "seconds_since_last",
    "sliding",
    "stddev_of",
    "sum_of",
    "table",
    "times_last",
    "top",
    "tumbling",
    "variance_of",
]
