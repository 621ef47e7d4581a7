"""One connection to Postgres that outlives restarts of the database."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from headrace.errors import ServiceError
from headrace.store.schema import STATEMENTS

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Connection = psycopg.Connection[tuple[Any, ...]]


class Store:
    """Runs functions in transactions; waits, up to a deadline, for a database that is away.

    A function may run twice when the connection breaks during its commit, so it must be idempotent.
    """

    def __init__(self, url: str, wait_seconds: float = 120.0) -> None:
        self._url = url
        self._wait = wait_seconds
        self._connection: Connection | None = None

    def prepare(self) -> None:
        """Create the tables where they are missing."""

        def create(connection: Connection) -> None:
            # Two processes that create the same schema at once would collide without the lock.
            connection.execute("SELECT pg_advisory_xact_lock(72656164)")
            for statement in STATEMENTS:
                connection.execute(statement)

        self.transact(create)

    def transact(self, work: Callable[[Connection], Result]) -> Result:
        until = time.monotonic() + self._wait
        pause = 0.1
        while True:
            try:
                connection = self._connected()
                with connection.transaction():
                    return work(connection)
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                self.close()
                if time.monotonic() + pause > until:
                    raise ServiceError(
                        f"the store has not answered for {self._wait:.0f} s: {type(error).__name__}",
                        hint="start Postgres again, or check store_url",
                    ) from error
                logger.warning("the store is away, waiting: %s", type(error).__name__)
                time.sleep(pause)
                pause = min(pause * 2, 5.0)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._url, connect_timeout=5, autocommit=True)
        return self._connection
