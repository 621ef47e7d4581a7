"""A real server on a real port, in a thread, and a reader of its events."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from headrace.connections import Connections
from headrace.ops.load import LoadedApp
from headrace.serve.access import Tokens
from headrace.serve.app import make_app
from headrace.serve.server import Server, address_of, listening_socket


@contextmanager
def running_server(
    loaded: LoadedApp,
    connections: Connections,
    tokens: Tokens | None = None,
    *,
    port: int = 0,
    send_buffer: int = 0,
) -> Iterator[str]:
    """The address of a server that lasts as long as the block."""
    listening = listening_socket("127.0.0.1", port)
    if send_buffer:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    server = Server(make_app(loaded, connections, tokens))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started, 20)
        yield address_of(listening)
    finally:
        server.handle_exit(15, None)
        thread.join(15)
        assert not thread.is_alive(), "the server does not stop"


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.02)


@dataclass(frozen=True)
class Event:
    name: str
    data: Any
    id: str


class Follower:
    """Reads server-sent events as the standard says; `id` is the last one that came."""

    def __init__(self, response: httpx.Response, after: str) -> None:
        self._lines = response.iter_lines()
        self.id = after

    def next(self) -> Event:
        name, data = "message", ""
        for line in self._lines:
            if not line:
                if data:
                    return Event(name, json.loads(data), self.id)
                name, data = "message", ""
                continue
            field, _, value = line.partition(": ")
            match field:
                case "event":
                    name = value
                case "data":
                    data += value
                case "id":
                    self.id = value
        raise EOFError

    def until(self, wanted: Callable[[Event], bool], seconds: float = 14.0) -> list[Event]:
        """Shorter than the time between pings: these alone would keep the connection going for ever."""
        deadline = time.monotonic() + seconds
        seen = []
        while time.monotonic() < deadline:
            seen.append(self.next())
            if wanted(seen[-1]):
                return seen
        raise AssertionError(f"no event as wanted among {[event.name for event in seen][-20:]}")


@contextmanager
def following(address: str, seconds: float = 20.0, **parameters: Any) -> Iterator[Follower]:
    after = parameters.pop("after", "")
    headers = parameters.pop("headers", {}) | ({"Last-Event-ID": after} if after else {})
    with (
        httpx.Client(timeout=seconds) as client,
        client.stream("GET", f"{address}/live", params=parameters, headers=headers) as response,
    ):
        assert response.status_code == 200, response.read()
        yield Follower(response, after)
