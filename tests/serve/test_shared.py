"""Answers that many share: made once, given while the next one is made, and never an error for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from headrace.serve.shared import Shared


class Maker:
    """Numbers its answers; makes one when it is let."""

    def __init__(self) -> None:
        self.made, self.let = 0, asyncio.Event()
        self.fails = False

    async def __call__(self) -> int:
        self.made += 1
        number = self.made
        await self.let.wait()
        if self.fails:
            raise RuntimeError("away")
        return number


def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [100.0]
    monkeypatch.setattr("headrace.serve.shared.time.monotonic", lambda: now[0])

    def later(seconds: float) -> None:
        now[0] += seconds

    return later


def test_who_asks_at_the_same_time_shares_one_answer() -> None:
    async def run() -> None:
        shared, make = Shared[int](1.0), Maker()
        asked = [asyncio.create_task(shared.get("k", make)) for _ in range(5)]
        await asyncio.sleep(0)
        make.let.set()
        assert await asyncio.gather(*asked) == [1] * 5 and make.made == 1

    asyncio.run(run())


def test_nobody_waits_for_the_next_one_within_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    later = clock(monkeypatch)

    async def run() -> None:
        shared, make = Shared[int](1.0, grace=2.0), Maker()
        make.let.set()
        assert await shared.get("k", make) == 1
        make.let.clear()
        later(1.5)
        assert await asyncio.wait_for(shared.get("k", make), 5) == 1
        assert await asyncio.wait_for(shared.get("k", make), 5) == 1
        await asyncio.sleep(0)
        assert make.made == 2
        later(2.0)  # the first one is too old now, and the second not there yet
        waits = asyncio.create_task(shared.get("k", make))
        await asyncio.sleep(0)
        assert not waits.done()
        make.let.set()
        assert await waits == 2 and make.made == 2

    asyncio.run(run())


def test_an_error_is_told_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    later = clock(monkeypatch)

    async def run() -> None:
        shared, make = Shared[int](1.0, grace=2.0), Maker()
        make.let.set()
        assert await shared.get("k", make) == 1
        make.fails = True
        later(1.5)
        assert await shared.get("k", make) == 1
        for _ in range(3):
            await asyncio.sleep(0)  # the new one fails meanwhile
        with pytest.raises(RuntimeError, match="away"):
            await shared.get("k", make)
        make.fails = False
        assert await shared.get("k", make) == 4

    asyncio.run(run())


def test_the_answers_that_are_kept_are_few() -> None:
    async def run() -> None:
        shared, make = Shared[int](60.0, most=2), Maker()
        make.let.set()
        assert [await shared.get(key, make) for key in "abca"] == [1, 2, 3, 4]

    asyncio.run(run())
