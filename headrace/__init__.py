"""Headrace turns Kafka topics into live tables and streams with Spark, and accounts for every event."""

from headrace.app import App, Source
from headrace.errors import HeadraceError

__version__ = "0.1.0"
__all__ = ["App", "HeadraceError", "Source", "__version__"]
