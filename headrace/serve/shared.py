"""One answer for all who ask at the same time, kept for a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Shared(Generic[Result]):
    """Keeps at most `most` answers; an error is given to those who wait for it and is not kept."""

    def __init__(self, seconds: float, most: int = 256) -> None:
        self._seconds, self._most = seconds, most
        self._kept: dict[Hashable, tuple[float, asyncio.Task[Result]]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Result]]) -> Result:
        found = self._kept.get(key)
        if found is None or self._is_old(found):
            task = asyncio.ensure_future(_made(make))
            task.add_done_callback(_look_at_error)
            self._kept.pop(key, None)
            self._kept[key] = found = (time.monotonic(), task)
            while len(self._kept) > self._most:
                self._kept.pop(next(iter(self._kept)))
        # A client that goes away must not take the answer from the others.
        return await asyncio.shield(found[1])

    def _is_old(self, found: tuple[float, asyncio.Task[Result]]) -> bool:
        made_at, task = found
        if not task.done():
            return False
        return time.monotonic() - made_at > self._seconds or task.cancelled() or task.exception() is not None


async def _made(make: Callable[[], Awaitable[Result]]) -> Result:
    return await make()


def _look_at_error(task: asyncio.Task[Result]) -> None:
    if not task.cancelled():
        task.exception()
