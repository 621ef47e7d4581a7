"""The store as the API reads it: a bounded pool, statements with a deadline, and nothing that writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from headrace.serve.problems import unavailable, wrong

CONNECTIONS = 8
WAITING = 400
WAIT_SECONDS = 2.0
STATEMENT_SECONDS = 5
OPTIONS = (
    f"-c statement_timeout={STATEMENT_SECONDS}s -c default_transaction_read_only=on -c timezone=UTC"
    " -c idle_in_transaction_session_timeout=30s -c jit=off"
)

Row = dict[str, Any]
Text = LiteralString | sql.SQL | sql.Composed
Values = Sequence[Any] | Mapping[str, Any]


class NotThereYet(Exception):
    """A table or a column does not exist: the engine has not run, or runs an older declaration."""


class Database:
    """Runs single statements; what can go wrong is told as a problem."""

    def __init__(self, url: str, connections: int = CONNECTIONS) -> None:
        self._connections = connections
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[Row]] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=connections,
            timeout=WAIT_SECONDS,
            max_waiting=WAITING,
            max_idle=60,
            reconnect_timeout=0,
            configure=_configure,
            open=False,
            name="headrace-serve",
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                "options": OPTIONS,
                "connect_timeout": 5,
                "application_name": "headrace-serve",
            },
        )

    async def open(self) -> None:
        await self._pool.open(wait=False)

    async def close(self) -> None:
        await self._pool.close(timeout=5)

    async def rows(self, query: Text, values: Values = ()) -> list[Row]:
        """Raises NotThereYet for what the engine has not made yet."""
        try:
            return await self._answer(query, values)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            raise NotThereYet from error
        except psycopg.errors.UndefinedColumn as error:
            raise NotThereYet from error
        except psycopg.errors.QueryCanceled as error:
            raise unavailable(
                f"the answer took longer than {STATEMENT_SECONDS} s", "ask for a smaller range"
            ) from error
        except psycopg.DataError as error:
            raise wrong("", "a value cannot be looked up in the store") from error
        except (PoolTimeout, TooManyRequests) as error:
            raise unavailable("the store is busy or away", "try again in a moment") from error
        except (psycopg.OperationalError, psycopg.InterfaceError, PoolClosed) as error:
            raise unavailable("the store does not answer", "headrace status tells what runs") from error

    async def _answer(self, query: Text, values: Values) -> list[Row]:
        """A connection that broke while it was idle, as all do when the store restarts, costs another try.

        Asking each of them whether it lives before it is used would be one more way to the store and back.
        """
        for _ in range(self._connections):
            async with self._pool.connection() as connection:
                try:
                    return await (await connection.execute(query, values)).fetchall()
                except psycopg.OperationalError:
                    if not connection.closed:
                        raise
        raise unavailable("the store does not answer", "headrace status tells what runs")

    async def rows_if_there(self, query: Text, values: Values = ()) -> list[Row]:
        try:
            return await self.rows(query, values)
        except NotThereYet:
            return []

    async def one(self, query: Text, values: Values = ()) -> Row | None:
        found = await self.rows_if_there(query, values)
        return found[0] if found else None


async def _configure(connection: psycopg.AsyncConnection[Row]) -> None:
    # Numbers of a JSON column stay exact; the columns' types decide how they are shown.
    set_json_loads(partial(json.loads, parse_float=Decimal), connection)
