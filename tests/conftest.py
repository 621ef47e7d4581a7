"""What the test session shares: one broker, one database, one Spark session, each started on first use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from headrace.local.services import Services
from headrace.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> None:
    """A developer's own HEADRACE_ variables must not decide whether a test passes."""
    for name in [n for n in os.environ if n.startswith("HEADRACE_") and n != "HEADRACE_CACHE"]:
        del os.environ[name]


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """A broker and a Postgres that all tests share: use topic and table names of your own."""
    folder = tmp_path_factory.mktemp("services")
    with Services(folder, Settings(folder=folder)) as running:
        yield running


@pytest.fixture(scope="session", autouse=True)
def _quick_compiler() -> None:
    """Engines and commands that tests start live for seconds: what they compile thoroughly is wasted."""
    os.environ["SPARK_SUBMIT_OPTS"] = QUICK_COMPILER


@pytest.fixture(scope="session")
def spark(_quick_compiler: None) -> Iterator[SparkSession]:
    from headrace.spark import build_session

    # This one lives for all tests.
    del os.environ["SPARK_SUBMIT_OPTS"]
    try:
        session = build_session("tests", master="local[2]")
    finally:
        os.environ["SPARK_SUBMIT_OPTS"] = QUICK_COMPILER
    yield session
    session.stop()
