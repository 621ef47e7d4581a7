"""/live: changes arrive, nothing is missed between two connections, and nobody is buffered without limit."""

from __future__ import annotations

import asyncio
import random
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from headrace.local.postgres import Postgres
from headrace.serve import alerts, live_client, live_feeds
from headrace.serve.live_client import Client, Parcel, parcel_of
from headrace.serve.live_feeds import Changes, MetricFeed, Position
from headrace.store.changes import announce
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
            shown = without_metric(rows[-1])
            assert shown == stage.state()[place(shown)]


def test_only_what_was_asked_for(stage: Stage) -> None:
    with following(stage.address, metrics="revenue_10m,visitors_5m") as follower:
        follower.next()
        stage.batch(15)
        rows = rows_of(follower.until(lambda e: is_row(e) and e.data["metric"] == "visitors_5m"))
    assert {row["metric"] for row in rows} == {"revenue_10m", "visitors_5m"}


GROUPED = f"{METRIC}:all,{METRIC}:region,{METRIC}:region.device_type"


def test_a_client_that_comes_back_has_missed_nothing(stage: Stage) -> None:
    """Whether it follows a metric or each of its groupings."""
    before = stage.state()
    known = {asked: dict(before) for asked in (METRIC, GROUPED)}
    left_at = {}
    for asked in known:
        with following(stage.address, metrics=asked) as follower:
            follower.next()
            stage.batch(20)
            first = follower.until(lambda e: e.id != "" and is_row(e))
            known[asked] |= {place(row): row for row in rows_of(first)}
            left_at[asked] = first[-1].id
    # Meanwhile: rows change, become preliminary and final, and a final row counts late events.
    stage.batch(70)
    stage.batch(140)
    stage.batch(300, late=2)
    for asked, id_ in left_at.items():
        with following(stage.address, metrics=asked, after=id_) as follower:
            missed = follower.until(lambda e: e.name == "ready")
            assert {event.name for event in missed} == {"row", "ready"}
            reached = follower.id
            stage.batch(310)
            missed += follower.until(lambda e, reached=reached: e.id != reached)  # type: ignore[misc]
            known[asked] |= {place(row): row for row in rows_of(missed)}
        now = stage.state()
        states = {row["state"] for row in now.values()}
        assert "final" in states and any(row["late_events"] for row in now.values())
        assert {k: without_metric(row) for k, row in known[asked].items()} == now


def without_metric(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "metric"}


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
    """And what was found before it, of another metric in the same commit, is not lost."""
    since, broken = MetricFeed.since, ["visitors_5m"]

    async def sometimes(feed: MetricFeed, position: Position) -> Changes:
        if feed.key in broken:
            broken.remove(feed.key)
            raise RuntimeError
        return await since(feed, position)

    with following(stage.address, metrics=f"{METRIC},visitors_5m,revenue_10m") as follower:
        follower.next()
        monkeypatch.setattr(MetricFeed, "since", sometimes)
        stage.batch(414)
        seen = rows_of(follower.until(lambda e: is_row(e) and e.data["metric"] == "visitors_5m"))
        assert {row["metric"] for row in seen} == {METRIC, "visitors_5m", "revenue_10m"} and not broken


class Told:
    """A feed by name alone, for what a client does with it."""

    event, source = "row", ""

    def __init__(self, key: str) -> None:
        self.key, self.subject = key, {"metric": key}

    async def newest(self) -> Position:
        raise NotImplementedError

    async def since(self, position: Position) -> Changes:
        raise NotImplementedError


BEGIN = Position(datetime(2026, 1, 1, tzinfo=UTC))


def parcel(feed: str, number: int, size: int = 10_000) -> Parcel:
    at = Position(BEGIN.at + timedelta(seconds=number))
    return parcel_of(Told(feed), Changes([f"{feed}{number} ".encode() + b"x" * size], at))


async def taken(sent: AsyncIterator[bytes], client: Client) -> list[tuple[str, str]]:
    """The events that wait, by name and beginning; what was pushed last is the end of them."""
    client.push_pipeline(b"the end")
    text = b""
    while not text.endswith(b"the end"):
        text += await anext(sent)
    return re.findall(r"event: (\w+)\ndata: (\S+)", text.decode())


def test_a_client_that_does_not_read_is_not_buffered_without_limit() -> None:
    async def run() -> None:
        client = Client({"slow": BEGIN, "late": BEGIN}, pipeline=True)
        for n in range(1, 2000):
            client.push(parcel("slow", n))
            client.push_pipeline(b"p" * 10_000)
            assert client.waiting_bytes <= live_client.WAITING_BYTES
        client.push(parcel("late", 1))
        events = await taken(client.events(), client)
        assert events == [("skipped", '{"metric":"slow","why":"the'), ("row", "late1")]
        assert client.positions["slow"].at == BEGIN.at + timedelta(seconds=1999)

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(20))
def test_what_a_client_does_not_get_it_is_told_of(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that came and notices that were obeyed make the client know the newest of every feed."""
    monkeypatch.setattr(live_client, "WAITING_BYTES", 50_000)
    chance = random.Random(seed)

    async def run() -> None:
        feeds = ("a", "b", "c")
        client = Client(dict.fromkeys(feeds, BEGIN), pipeline=True)
        sent = client.events()
        committed, known = dict.fromkeys(feeds, 0), dict.fromkeys(feeds, 0)
        skips = 0
        for number in range(1, 400):
            feed = chance.choice(feeds)
            committed[feed] = number
            at = Position(BEGIN.at + timedelta(seconds=number))
            if chance.random() < 0.05:
                client.skip(Told(feed), at, live_client.TOO_MANY)
            else:
                client.push(parcel(feed, number, size=chance.choice((10, 3_000, 20_000))))
            assert client.waiting_bytes <= 50_000
            if chance.random() < 0.2:
                for name, data in await taken(sent, client):
                    if name == "skipped":
                        skips += 1
                        fetched = data.split('"')[3]
                        known[fetched] = committed[fetched]
                    else:
                        assert int(data[1:]) > known[data[0]], "a row seems to go back"
                        known[data[0]] = int(data[1:])
                assert known == committed
        assert skips > 3

    asyncio.run(run())


def touch(stage: Stage, metric: str = "products_1m") -> int:
    """Every row that is not final changes, in one commit."""
    with psycopg.connect(stage.url) as connection:
        rows = connection.execute(f"UPDATE turanmart.{metric} SET updated_at = now() WHERE state <> 'final'")
        announce(connection, "turanmart.clickstream")
        return rows.rowcount


def test_a_slow_client_is_told_what_it_misses_and_goes_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_client, "WAITING_BYTES", 50_000)
    with (
        running_server(stage.seed.loaded, connections_to(stage.url), send_buffer=4096) as address,
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
            rows = touch(stage)
            assert rows > 10
            sent += rows * 400
        while b"event: skipped" not in text:
            text += client.recv(1 << 16)
        assert len(text) < 1_000_000
        said = text.rpartition(b"event: skipped")[2]
        stage.batch(415)
        while b"event: row" not in said:
            said += client.recv(1 << 16)
    assert b'"why":"the connection is slow"' in said and b"event: reset" not in text + said


def test_too_many_rows_are_told_and_not_sent(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_feeds, "MOST", 10)
    asked = f"products_1m,{METRIC}:all"
    with following(stage.address, metrics=asked) as follower:
        left_at = follower.next().id
        stage.batch(420)
        seen = follower.until(lambda e: e.name == "skipped")
        if not rows_of(seen):
            seen += follower.until(is_row)
        assert seen[0].data == {"metric": "products_1m", "why": "too many rows at once"}
        assert {row["metric"] for row in rows_of(seen)} == {METRIC}
        # It goes on behind what was skipped, and tells of few rows again.
        monkeypatch.setattr(live_feeds, "MOST", 1_000)
        stage.batch(421)
        after = follower.until(lambda e: is_row(e) and e.data["metric"] == "products_1m")
        assert {event.name for event in after} == {"row"}
        newest = {row["updated_at"] for row in rows_of(after)}
        assert len(newest) == 1, "only the rows of the second commit"
    monkeypatch.setattr(live_feeds, "MOST", 10)
    with following(stage.address, metrics=asked, after=left_at) as follower:
        resumed = follower.until(lambda e: e.name == "ready")
        assert [e.data["metric"] for e in resumed if e.name == "skipped"] == ["products_1m"]
        assert rows_of(resumed) and {row["grouping"] for row in rows_of(resumed)} == {"all"}
    with following(stage.address, metrics=asked, after=follower.id) as follower:
        assert follower.next().name == "ready", "it is told once"


@pytest.mark.parametrize(
    ("asked", "groupings"),
    [
        (f"{METRIC}:region", {"region"}),
        (f"{METRIC}:all", {"all"}),
        (f"{METRIC}:device_type.region,{METRIC}:all", {"region,device_type", "all"}),
        (f"{METRIC}:region,{METRIC}", {"all", "region", "region,device_type"}),
    ],
)
def test_a_grouping_can_be_followed_alone(stage: Stage, asked: str, groupings: set[str]) -> None:
    """Live, and after coming back."""
    with following(stage.address, metrics=asked) as follower:
        left_at = follower.next().id
        stage.batch(430)
        live = rows_of(follower.until(lambda e: e.id != left_at))
    with following(stage.address, metrics=asked, after=left_at) as follower:
        resumed = rows_of(follower.until(lambda e: e.name == "ready"))
    assert {row["grouping"] for row in live} == groupings
    assert len({place(row) for row in live}) == len(live), "no row twice"
    assert sorted(resumed, key=place) == sorted(live, key=place)


def test_one_look_serves_all_who_follow_a_grouping(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    since, looks = MetricFeed.since, Counter[str]()

    async def counted(feed: MetricFeed, position: Position) -> Changes:
        looks[feed.key] += 1
        return await since(feed, position)

    monkeypatch.setattr(MetricFeed, "since", counted)
    with ExitStack() as stack:
        followers = [
            stack.enter_context(following(stage.address, metrics=f"{METRIC}:region,visitors_5m:all"))
            for _ in range(5)
        ]
        for follower in followers:
            follower.next()
        stage.batch(440)
        for follower in followers:
            follower.until(is_row)
    assert looks == {f"{METRIC}:region": 1, "visitors_5m:all": 1}


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


def test_connections_that_broke_while_idle_are_not_noticed(stage: Stage) -> None:
    with (
        psycopg.connect(stage.url, autocommit=True) as connection,
        following(stage.address, metrics=METRIC) as follower,
    ):
        follower.next()
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name IN ('headrace-serve', 'headrace-live')"
        )
        assert ended.rowcount >= 2
        assert stage.state()
        stage.batch(450)
        assert follower.until(is_row)


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


def test_too_many_alerts_are_told_and_not_sent(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "MOST", 2)
    with (
        psycopg.connect(stage.url, autocommit=True) as connection,
        following(stage.address, topics="alerts", metrics=f"{METRIC}:all") as follower,
    ):
        follower.next()
        connection.execute(
            "INSERT INTO headrace.alerts SELECT 'm' || n, 'turanmart', 'low', %s, 'page', 'resolved', '',"
            " 'all', '{}', now(), now(), 1, '{}', '', '', 1, now(), now(), now()"
            " FROM generate_series(1, 3) n",
            (METRIC,),
        )
        announce(connection, "turanmart.clickstream")
        event = follower.next()
    assert (event.name, event.data) == ("skipped", {"alerts_of": METRIC, "why": "too many rows at once"})
