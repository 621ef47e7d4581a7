"""Clients of /live in a process of their own, and what they see.

A commit is known by the time of its transaction: the notice of the store has it, and so has every row that
the commit changed. The notice is heard at the moment of the commit, the row when it arrives.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx
import psycopg

from headrace.store.changes import CHANNEL

CHANGED = re.compile(rb'"updated_at":"([^"]+)"')
MONOTONIC = time.monotonic  # the same clock for all processes of a machine


@dataclass
class Crowd:
    """What all clients have seen together; `arrivals` are seconds after a commit, one for each client."""

    connected: int = 0
    all_connected_at: float = 0.0
    closed: int = 0
    rows: int = 0
    skipped: int = 0
    resets: int = 0
    commits: int = 0
    arrivals: list[float] = field(default_factory=list)


@dataclass
class Follower:
    ready_at: float = 0.0
    first: dict[bytes, float] = field(default_factory=dict)  # arrival of each commit, by its time


class Commits:
    """Every commit that the store announces: its query and when it was heard of, by its time."""

    def __init__(self, store_url: str) -> None:
        self.heard: dict[datetime, tuple[str, float]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._listen, args=(store_url,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(10)

    def _listen(self, store_url: str) -> None:
        with psycopg.connect(store_url, autocommit=True) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            while not self._stopped.is_set():
                for notice in connection.notifies(timeout=0.5):
                    heard = MONOTONIC()
                    told = json.loads(notice.payload)
                    self.heard[datetime.fromisoformat(told["at"])] = told["query"], heard


def start_crowd(
    address: str, store_url: str, clients: int, which: str, end: float
) -> tuple[multiprocessing.Process, multiprocessing.Queue[Crowd]]:
    results: multiprocessing.Queue[Crowd] = multiprocessing.Queue()
    arguments = (address, store_url, clients, followed(address, which), end, results)
    crowd = multiprocessing.Process(target=_run, args=arguments, daemon=True)
    crowd.start()
    return crowd, results


def followed(address: str, which: str) -> str:
    """What the dashboard follows, as it finds out itself; or `all` metrics."""
    if which == "all":
        return "/live?topics=metrics,pipeline,alerts"
    panels = httpx.get(f"{address}/api/v1/panels").raise_for_status().json()["items"]
    shown = [panel for panel in panels if panel["shape"] != "ranking"]
    feeds = dict.fromkeys(f"{p['metric']}:{'.'.join(p['grouping']) or 'all'}" for p in shown)
    parameters = {"metrics": ",".join(feeds), "topics": "metrics,pipeline,alerts"}
    return f"/live?{httpx.QueryParams(parameters)}"


def _run(address: str, store_url: str, clients: int, path: str, end: float, results: Any) -> None:
    results.put(asyncio.run(_crowd(address, store_url, clients, path, end)))


async def _crowd(address: str, store_url: str, clients: int, path: str, end: float) -> Crowd:
    seen, followers = Crowd(), [Follower() for _ in range(clients)]
    commits = await asyncio.to_thread(Commits, store_url)
    tasks = [asyncio.create_task(_follow(address, path, seen, one)) for one in followers]
    await asyncio.sleep(max(0.0, end - MONOTONIC()))
    seen.closed = sum(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.to_thread(commits.stop)
    seen.connected = sum(one.ready_at > 0 for one in followers)
    seen.all_connected_at = max((one.ready_at for one in followers), default=0.0)
    seen.commits = len(commits.heard)
    seen.arrivals = arrivals(followers, commits.heard)
    return seen


async def _follow(address: str, path: str, seen: Crowd, mine: Follower) -> None:
    """Ends only when the server closes the connection."""
    host, port = address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 22)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    rest = b""
    while text := await reader.read(1 << 18):
        now = MONOTONIC()
        events, end, rest = (rest + text).rpartition(b"\n\n")
        if not end:
            continue
        if not mine.ready_at and b"event: ready" in events:
            mine.ready_at = now
        seen.rows += events.count(b"event: row")
        seen.skipped += events.count(b"event: skipped")
        seen.resets += events.count(b"event: reset")
        if b"event: row" in events:
            for changed in set(CHANGED.findall(events)):
                mine.first.setdefault(changed, now)


def arrivals(followers: list[Follower], heard: dict[datetime, tuple[str, float]]) -> list[float]:
    """For each client and commit: when it had its rows, or newer ones of the same query.

    Only commits that changed something that is followed count: those whose rows somebody has seen.
    """
    times = {text: datetime.fromisoformat(text.decode()) for one in followers for text in one.first}
    seen = defaultdict(list)
    for at in sorted({at for at in times.values() if at in heard}, reverse=True):
        seen[heard[at][0]].append(at)
    found = []
    for one in followers:
        first = {times[text]: arrived for text, arrived in one.first.items()}
        for commits in seen.values():
            earliest = float("inf")
            for at in commits:
                earliest = min(earliest, first.get(at, earliest))
                if one.ready_at < heard[at][1] and earliest < float("inf"):
                    found.append(max(0.0, earliest - heard[at][1]))
    return found
