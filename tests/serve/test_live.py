"""/live: changes arrive, nothing is missed between two connections, and nobody is buffered without limit."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from headrace.local.postgres import Postgres
from headrace.serve import live_client
from headrace.serve.live_client import Client, parcel_of
from headrace.serve.live_feeds import Changes, MetricFeed, Position
from tests.serve.running import Event, following, running_server, wait_until
from tests.serve.seed import Seed, connections_to

METRIC = "conversion_1m"


@dataclass(frozen=True)
class Stage:
    seed: Seed
    url: str
    address: str
    begin: datetime

    def batch(self, seconds: int, **options: Any) -> None:
        self.seed.batch(
            self.begin + timedelta(seconds=seconds), events=2, streams=("clickstream",), **options
        )

    def state(self) -> dict[tuple[Any, ...], Any]:
        """The table as it is, by key."""
        with httpx.Client(base_url=self.address) as client:
            rows = client.get(f"/api/v1/metrics/{METRIC}/rows", params={"limit": 1000}).json()["items"]
        return {place(row): row for row in rows}


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["window_start"], row["grouping"], *row["dimensions"].values()


def rows_of(events: list[Event]) -> list[dict[str, Any]]:
    return [event.data for event in events if event.name == "row"]


def committed(events: list[Event]) -> str:
    """The id of a row: the last one of a commit has a new one."""
    return next(event.id for event in reversed(events) if event.name == "row")


@pytest.fixture(scope="module")
def stage(new_database: Callable[[], str]) -> Iterator[Stage]:
    url = new_database()
    begin = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=1)
    seed = Seed(url)
    with running_server(seed.loaded, connections_to(url)) as address:
        made = Stage(seed, url, address, begin)
        made.batch(0)
        yield made


def is_row(event: Event) -> bool:
    return event.name == "row"


def test_a_change_arrives_within_a_second_of_its_commit(stage: Stage) -> None:
    with following(stage.address, metrics=METRIC) as follower:
        assert follower.next().name == "ready"
        for n in range(3):
            stage.batch(10 + n)
            done = time.monotonic()
            rows = rows_of(follower.until(lambda e: is_row(e) and e.data["grouping"] == "all"))
            assert time.monotonic() - done < 1
            assert {row["metric"] for row in rows} == {METRIC}
            shown = dict(rows[-1])
            del shown["metric"]
            assert shown == stage.state()[place(shown)]


def test_only_what_was_asked_for(stage: Stage) -> None:
    with following(stage.address, metrics="revenue_10m,visitors_5m") as follower:
        follower.next()
        stage.batch(15)
        rows = rows_of(follower.until(lambda e: is_row(e) and e.data["metric"] == "visitors_5m"))
    assert {row["metric"] for row in rows} == {"revenue_10m", "visitors_5m"}


def test_a_client_that_comes_back_has_missed_nothing(stage: Stage) -> None:
    known = stage.state()
    with following(stage.address, metrics=METRIC) as follower:
        follower.next()
        stage.batch(20)
        first = follower.until(lambda e: e.id != "" and is_row(e))
        for row in rows_of(first):
            known[place(row)] = row
        left_at = first[-1].id
    # Meanwhile: rows change, become preliminary and final, and a final row counts late events.
    stage.batch(70)
    stage.batch(140)
    stage.batch(300, late=2)
    with following(stage.address, metrics=METRIC, after=left_at) as follower:
        for event in follower.until(lambda e: e.name == "ready"):
            assert event.name != "reset"
            if is_row(event):
                known[place(event.data)] = event.data
        before = follower.id
        stage.batch(310)
        for row in rows_of(follower.until(lambda e: e.id != before)):
            known[place(row)] = row
    now = stage.state()
    states = {row["state"] for row in now.values()}
    assert "final" in states and any(row["late_events"] for row in now.values())
    assert {key: {k: v for k, v in row.items() if k != "metric"} for key, row in known.items()} == now


def test_whoever_leaves_in_the_middle_of_catching_up_goes_on_from_there(stage: Stage) -> None:
    with following(stage.address, metrics=f"{METRIC},revenue_10m") as follower:
        left_at = follower.next().id
    stage.batch(400)
    with following(stage.address, metrics=f"{METRIC},revenue_10m", after=left_at) as follower:
        first = follower.until(lambda e: is_row(e) and e.id != left_at)
    done = first[-1].data["metric"]
    with following(stage.address, metrics=f"{METRIC},revenue_10m", after=first[-1].id) as follower:
        rest = rows_of(follower.until(lambda e: e.name == "ready"))
    assert {row["metric"] for row in rest} == {METRIC, "revenue_10m"} - {done}


@pytest.mark.parametrize("cursor", ["rubbish", "e30x", "W10", "eyJjb252ZXJzaW9uXzFtIjpbMSwiYSJdfQ"])
def test_a_cursor_that_no_server_gave_is_a_reset(stage: Stage, cursor: str) -> None:
    with following(stage.address, metrics=METRIC, cursor=cursor) as follower:
        events = follower.until(lambda e: e.name == "ready")
    assert [e.name for e in events] in (["reset", "ready"], ["ready"])
    assert events[0].name == "reset" or cursor == "e30x"


def test_a_cursor_of_the_future_is_a_reset(stage: Stage) -> None:
    ahead = Client({METRIC: Position(datetime(2100, 1, 1, tzinfo=UTC))}, pipeline=False)
    with following(stage.address, metrics=METRIC, after=ahead.cursor()) as follower:
        assert follower.next().name == "reset"


def test_many_clients_get_the_same(stage: Stage) -> None:
    async def follow(client: httpx.AsyncClient, ready: asyncio.Semaphore) -> list[str]:
        lines = []
        async with client.stream("GET", "/live", params={"metrics": METRIC}) as response:
            async for line in response.aiter_lines():
                if line == "event: ready":
                    ready.release()
                if line.startswith('data: {"metric"'):
                    lines.append(line)
                if line.startswith("id: ") and lines:
                    return lines
        return lines

    async def all_of_them() -> list[list[str]]:
        limits = httpx.Limits(max_connections=None)
        ready = asyncio.Semaphore(0)
        async with httpx.AsyncClient(base_url=stage.address, timeout=30, limits=limits) as client:
            tasks = [asyncio.create_task(follow(client, ready)) for _ in range(50)]
            for _ in tasks:
                await ready.acquire()
            await asyncio.to_thread(stage.batch, 410)
            return await asyncio.gather(*tasks)

    first, *others = asyncio.run(all_of_them())
    assert len(first) > 5 and all(other == first for other in others)


def test_clients_that_come_and_go_during_commits_disturb_nobody(stage: Stage) -> None:
    """Each leaves as soon as it hears of a change, while the hub looks at the next metric."""
    stopped = threading.Event()

    def commit() -> None:
        while not stopped.is_set():
            stage.batch(412)

    writer = threading.Thread(target=commit)
    writer.start()
    try:
        for _ in range(10):
            with following(stage.address, topics="metrics,alerts") as follower:
                follower.until(is_row)
    finally:
        stopped.set()
        writer.join()
    with following(stage.address, metrics=METRIC) as follower:
        follower.next()
        stage.batch(413)
        assert follower.until(is_row)


def test_a_defect_while_following_does_not_end_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    since, broken = MetricFeed.since, [True]

    async def sometimes(feed: MetricFeed, position: Position) -> Changes:
        if broken.pop() if broken else False:
            raise RuntimeError
        return await since(feed, position)

    with following(stage.address, metrics=METRIC) as follower:
        follower.next()
        monkeypatch.setattr(MetricFeed, "since", sometimes)
        stage.batch(414)
        assert follower.until(is_row) and broken == []


def test_a_client_that_does_not_read_is_not_buffered_without_limit() -> None:
    async def run() -> None:
        begin = Position(datetime(2026, 1, 1, tzinfo=UTC))
        client = Client({"m": begin}, pipeline=True)
        for n in range(1, 2000):
            changes = Changes([b"x" * 10_000], Position(begin.at + timedelta(seconds=n)))
            client.push(parcel_of("m", "row", changes))
            client.push_pipeline(b"p" * 10_000)
            assert client.waiting_bytes <= live_client.WAITING_BYTES
        assert client.too_slow
        events = [event async for event in client.events()]
        assert len(events) == 1 and b"event: reset" in events[0]

    asyncio.run(run())


def test_a_slow_client_is_told_to_begin_anew(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_client, "WAITING_BYTES", 50_000)
    touch = "UPDATE turanmart.products_1m SET updated_at = clock_timestamp() WHERE state <> 'final'"
    tell = """SELECT pg_notify('headrace', '{"query": "turanmart.clickstream"}')"""
    with (
        running_server(stage.seed.loaded, connections_to(stage.url), send_buffer=4096) as address,
        psycopg.connect(stage.url, autocommit=True) as connection,
        socket.socket() as client,
    ):
        host, port = address.removeprefix("http://").split(":")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        client.sendall(f"GET /live?metrics=products_1m HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        client.settimeout(10)
        text = client.recv(400)
        sent = 0
        while sent < 2_000_000:  # much more than the buffers between here and there hold
            rows = connection.execute(touch).rowcount
            assert rows > 10
            connection.execute(tell)
            sent += rows * 400
        while chunk := client.recv(1 << 20):
            text += chunk
    assert b"event: reset" in text[-2000:] and text.endswith(b"0\r\n\r\n")
    assert len(text) < 1_000_000


def test_after_a_restart_of_the_store_changes_arrive_again(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    service = Postgres(tmp_path)
    service.start()
    try:
        seed = Seed(service.url)
        begin = datetime.now(UTC) - timedelta(hours=1)
        seed.batch(begin, streams=("clickstream",))
        with (
            running_server(seed.loaded, connections_to(service.url)) as address,
            following(address, 60.0, metrics=METRIC) as follower,
        ):
            follower.next()
            service.stop()
            assert httpx.get(f"{address}/api/v1/metrics/{METRIC}/rows", timeout=20).status_code == 503
            service.start()
            seed.batch(begin + timedelta(seconds=1), streams=("clickstream",))
            rows = rows_of(follower.until(is_row))
            assert rows[0]["metric"] == METRIC
            wait_until(lambda: httpx.get(f"{address}/api/v1/metrics").status_code == 200, 20)
    finally:
        service.stop()


def test_alerts_are_followed_too(stage: Stage) -> None:
    with (
        psycopg.connect(stage.url, autocommit=True) as connection,
        following(stage.address, topics="alerts") as follower,
    ):
        follower.next()
        connection.execute(
            "INSERT INTO headrace.alerts VALUES ('a1', 'turanmart', 'low', %s, 'page', 'open', '',"
            " 'region', '{\"region\": \"almaty\"}', now(), now(), 1, '{\"conversion_rate\": 0.5}',"
            " 'low', '', 1, now(), now(), NULL)",
            (METRIC,),
        )
        connection.execute("""SELECT pg_notify('headrace', '{"query": "turanmart.clickstream"}')""")
        event = follower.next()
    assert (event.name, event.data["id"], event.data["values"]) == ("alert", "a1", {"conversion_rate": 0.5})
    listed = httpx.get(f"{stage.address}/api/v1/alerts", params={"state": "open"}).json()
    assert listed["items"] == [event.data]
    assert httpx.get(f"{stage.address}/api/v1/alerts?state=resolved").json()["items"] == []


def test_alerts_of_patterns_are_followed_too(stage: Stage) -> None:
    with (
        psycopg.connect(stage.url, autocommit=True) as connection,
        following(stage.address, topics="alerts") as follower,
    ):
        follower.next()
        connection.execute(
            "INSERT INTO headrace.alerts VALUES ('p1', 'turanmart', 'failed_logins', 'failed_logins',"
            " 'warning', 'open', '', 'customer_id', '{\"customer_id\": \"c-1\"}', now(), now(), 1,"
            ' \'{"events": 3, "matched": [{"event_id": "e1"}]}\', \'told\', \'\', 1, now(), now(), NULL)'
        )
        connection.execute("""SELECT pg_notify('headrace', '{"query": "turanmart.logins"}')""")
        event = follower.next()
    assert (event.name, event.data["id"]) == ("alert", "p1")
    assert event.data["values"]["matched"] == [{"event_id": "e1"}]
    listed = httpx.get(f"{stage.address}/api/v1/alerts", params={"alert": "failed_logins"}).json()
    assert listed["items"] == [event.data]
