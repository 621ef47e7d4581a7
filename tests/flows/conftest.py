"""A store of its own for the tests of flows: most of them need no broker and no Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.local.scratch_store import scratch_store


@pytest.fixture(scope="session")
def store_url() -> Iterator[str]:
    with scratch_store() as url:
        yield url
