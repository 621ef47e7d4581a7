"""One answer for all who ask at the same time, kept for a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class _Kept(Generic[Result]):
    made_at: float
    task: asyncio.Task[Result]
    before: _Kept[Result] | None = None  # given to those who ask while the new one is made

    @property
    def is_good(self) -> bool:
        return self.task.done() and not self.task.cancelled() and self.task.exception() is None


class Shared(Generic[Result]):
    """Keeps at most `most` answers; an error is given to those who wait for it and is not kept.

    An answer that is older than `seconds` is made anew. If it is not older than that by more than `grace`,
    nobody waits for the new one: it is for those who ask next.
    """

    def __init__(self, seconds: float, most: int = 256, grace: float = 0.0) -> None:
        self._seconds, self._most, self._grace = seconds, most, grace
        self._kept: dict[Hashable, _Kept[Result]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Result]]) -> Result:
        found = self._kept.get(key)
        if found is None or self._is_old(found):
            task = asyncio.ensure_future(_made(make))
            task.add_done_callback(_look_at_error)
            before = _Kept(found.made_at, found.task) if found is not None and found.is_good else None
            self._kept.pop(key, None)
            self._kept[key] = found = _Kept(time.monotonic(), task, before)
            while len(self._kept) > self._most:
                self._kept.pop(next(iter(self._kept)))
        if not found.task.done() and found.before is not None and self._is_in_grace(found.before):
            return found.before.task.result()
        # A client that goes away must not take the answer from the others.
        return await asyncio.shield(found.task)

    def _is_old(self, found: _Kept[Result]) -> bool:
        if not found.task.done():
            return False
        return not found.is_good or time.monotonic() - found.made_at > self._seconds

    def _is_in_grace(self, found: _Kept[Result]) -> bool:
        return time.monotonic() - found.made_at <= self._seconds + self._grace


async def _made(make: Callable[[], Awaitable[Result]]) -> Result:
    return await make()


def _look_at_error(task: asyncio.Task[Result]) -> None:
    if not task.cancelled():
        task.exception()
