"""How fast the API answers while clients follow changes, whether they all stay, and whether memory grows.

`python -m benchmarks.serve --seconds 120`: a store of its own with sample rows, a batch every second, a
server as users run it, requests at a fixed rate (a late answer delays no other), and clients of /live that
follow what the dashboard follows. The requests are those of the dashboard and of applications. Meanwhile a
real Chromium, if there is one, has the page open: that is how a commit's way to the screen is measured. With
`--traffic 2000` there are no samples: broker, engine and that many events a second run beside it instead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx
import psutil

from benchmarks.live_crowd import Crowd, start_crowd
from benchmarks.open_page import Opened, is_there, open_page
from benchmarks.page_requests import asked_paths
from headrace.local.connect import connections_of
from headrace.local.engine import EngineProcess
from headrace.local.serve import ServeProcess
from headrace.local.services import Services
from headrace.log.topics import ensure_topics
from headrace.ops.load import load_app
from headrace.settings import Settings
from tests.serve.seed import TURANMART, Seed, own_store


@dataclass
class Seen:
    """What was measured, in seconds and bytes."""

    answers: dict[str, list[float]] = field(default_factory=dict)
    asked_at: dict[str, list[float]] = field(default_factory=dict)
    errors: int = 0
    live: Crowd = field(default_factory=Crowd)
    page: Opened | None = None
    load: float = 0.0
    memory: list[tuple[float, int]] = field(default_factory=list)
    cpu_share: float = 0.0  # of one core, by the server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rate", type=float, default=50.0, help="requests in a second")
    parser.add_argument("--clients", type=int, default=200, help="of /live")
    parser.add_argument(
        "--live-metrics",
        choices=("page", "all"),
        default="page",
        help="what they follow: as the dashboard, or all",
    )
    parser.add_argument("--minutes", type=int, default=120, help="of sample rows before now")
    parser.add_argument("--traffic", type=float, default=0.0, help="events a second through a whole engine")
    parser.add_argument(
        "--warm", type=float, default=60.0, help="seconds of traffic before the first request"
    )
    parser.add_argument(
        "--browser",
        action=argparse.BooleanOptionalAction,
        default=is_there(),
        help="open the dashboard in Chromium meanwhile",
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.traffic:
        with whole_shop(options) as (address, process, url):
            seen = asyncio.run(measure(options, None, url, address, process))
    else:
        with own_store() as url:
            seed = Seed(url)
            seed.fill(options.minutes, datetime.now(UTC))
            with serving(url) as (address, process):
                seen = asyncio.run(measure(options, seed, url, address, process))
    report = summary(seen)
    print(json.dumps(report, indent=1) if options.json else shown(report))


@contextmanager
def serving(store_url: str) -> Iterator[tuple[str, psutil.Process]]:
    """The server as a process of its own, without a broker."""
    environment = {"HEADRACE_STORE_URL": store_url, "HEADRACE_KAFKA_BOOTSTRAP": "127.0.0.1:1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", "serve", str(TURANMART), "--port", "0"],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        told = process.stdout.readline()
        address = told.split()[1]
        until = time.monotonic() + 30
        while True:
            try:
                httpx.get(f"{address}/openapi.json")
                break
            except httpx.TransportError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
        yield address, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def whole_shop(options: argparse.Namespace) -> Iterator[tuple[str, psutil.Process, str]]:
    """TuranMart as the demo runs it, under traffic that lasts as long as the measurement."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        with Services(folder, Settings(folder=folder)) as services:
            loaded, to = load_app(TURANMART), connections_of(services)
            for contract in loaded.contracts.values():
                ensure_topics(contract, to.librdkafka)
            engine, serve = EngineProcess(services.state, TURANMART), ServeProcess(services.state, TURANMART)
            seconds = options.warm + options.seconds + 10
            command = [sys.executable, "-m", "headrace.cli", "traffic", str(TURANMART)]
            command += ["--rate", str(options.traffic), "--seconds", str(seconds), "--json"]
            traffic: subprocess.Popen[bytes] | None = None
            try:
                engine.start()
                serve.start()
                traffic = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
                time.sleep(options.warm)
                yield serve.url, psutil.Process(serve.pid), to.store_url
            finally:
                if traffic is not None:
                    traffic.terminate()
                    traffic.wait(30)
                serve.stop()
                engine.stop()


async def measure(
    options: argparse.Namespace, seed: Seed | None, store_url: str, address: str, process: psutil.Process
) -> Seen:
    """Those who follow are a process of their own: reading their events must not delay the questions here."""
    seen = Seen()
    end = time.monotonic() + options.seconds
    paths = asked_paths(broker=seed is None)
    crowd, results = start_crowd(address, store_url, options.clients, options.live_metrics, end)
    page, drawn = open_page(address, store_url, end) if options.browser else (None, None)
    fed = [feed(seed, end)] if seed is not None else []
    await asyncio.gather(*fed, ask(address, paths, options.rate, end, seen), watch(process, end, seen))
    seen.load = os.getloadavg()[1]
    seen.live = await asyncio.to_thread(results.get, True, 60)
    crowd.join(10)
    if page is not None and drawn is not None:
        seen.page = await asyncio.to_thread(drawn.get, True, 60)
        page.join(10)
    return seen


async def feed(seed: Seed, end: float) -> None:
    number = 0
    while time.monotonic() < end:
        begin = time.monotonic()
        number += 1
        await asyncio.to_thread(seed.batch, datetime.now(UTC), events=5 + number, streams=("clickstream",))
        await asyncio.sleep(max(0.0, 1.0 - (time.monotonic() - begin)))


async def ask(address: str, paths: tuple[str, ...], rate: float, end: float, seen: Seen) -> None:
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
    async with httpx.AsyncClient(base_url=address, timeout=30, limits=limits) as client:
        tasks: set[asyncio.Task[None]] = set()
        number, begin = 0, time.monotonic()
        while time.monotonic() < end:
            task = asyncio.create_task(_one(client, paths[number % len(paths)], seen))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            number += 1
            await asyncio.sleep(max(0.0, begin + number / rate - time.monotonic()))
        await asyncio.gather(*tasks)


async def _one(client: httpx.AsyncClient, path: str, seen: Seen) -> None:
    begin = time.monotonic()
    answer = await client.get(path)
    seen.answers.setdefault(path, []).append(time.monotonic() - begin)
    seen.asked_at.setdefault(path, []).append(begin)
    seen.errors += answer.status_code != 200


async def watch(process: psutil.Process, end: float, seen: Seen) -> None:
    begin, used = time.monotonic(), sum(process.cpu_times()[:2])
    while time.monotonic() < end:
        seen.memory.append((time.monotonic() - begin, process.memory_info().rss))
        await asyncio.sleep(1.0)
    seen.cpu_share = (sum(process.cpu_times()[:2]) - used) / (time.monotonic() - begin)


def summary(seen: Seen) -> dict[str, object]:
    every = [seconds for answers in seen.answers.values() for seconds in answers]
    begun = [at for asked in seen.asked_at.values() for at in asked]
    connected = [s for s, at in zip(every, begun, strict=True) if at > seen.live.all_connected_at]
    # The first quarter warms up: connections, prepared statements, buffers.
    settled = [size for _, size in seen.memory[len(seen.memory) // 4 :]]
    third = max(1, len(settled) // 3)
    report: dict[str, object] = {
        "requests": len(every),
        "errors": seen.errors,
        "p50_ms": _rank(every, 50) * 1000,
        "p99_ms": _rank(every, 99) * 1000,
        "p99_ms_once_all_follow": _rank(connected, 99) * 1000,
        "seconds_until_all_follow": seen.live.all_connected_at - min(begun),
        "p99_ms_by_path": {path: _rank(s, 99) * 1000 for path, s in seen.answers.items()},
        "server_cpu_share": seen.cpu_share,
        "load_average": seen.load,
        "live_connected": seen.live.connected,
        "live_closed_by_the_server": seen.live.closed,
        "live_resets": seen.live.resets,
        "live_skipped": seen.live.skipped,
        "live_rows": seen.live.rows,
        "live_commits": seen.live.commits,
        "live_p50_ms_after_commit": _rank(seen.live.arrivals, 50) * 1000,
        "live_p99_ms_after_commit": _rank(seen.live.arrivals, 99) * 1000,
        "memory_mb_after_warm_up": statistics.mean(settled[:third]) / 2**20,
        "memory_mb_at_the_end": statistics.mean(settled[-third:]) / 2**20,
    }
    if seen.page is not None:
        report |= {
            "browser_commits_drawn": len(seen.page.arrivals),
            "browser_p50_ms_after_commit": _rank(seen.page.arrivals, 50) * 1000,
            "browser_p99_ms_after_commit": _rank(seen.page.arrivals, 99) * 1000,
            "browser_errors": len(seen.page.errors),
        }
    return report


def _rank(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else float("nan")


def shown(report: dict[str, object]) -> str:
    lines = []
    for name, value in report.items():
        if isinstance(value, dict):
            lines += [f"  {path}: {ms:.1f} ms" for path, ms in value.items()]
        else:
            lines.append(f"{name}: {value:.2f}" if isinstance(value, float) else f"{name}: {value}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
