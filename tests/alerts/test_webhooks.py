"""Webhooks against a real server that refuses, hangs and answers."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headrace import tumbling
from headrace.errors import UsageError
from headrace.ops.webhooks import Webhooks, check_addresses
from headrace.store.connection import Store
from tests.alerts.history import Cell, History, at

SECRET = "s3cret-of-the-test"


class Receiver:
    """Answers with the given statuses in turn, the last one again; 0 is no answer, -1 one without an end."""

    def __init__(self) -> None:
        self.answers = [200]
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.released = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((dict(self.headers), body))
                number = min(len(receiver.requests), len(receiver.answers))
                status = receiver.answers[number - 1]
                if status == 0:
                    receiver.released.wait(30)
                    return
                while status == -1 and not receiver.released.wait(0.05):
                    try:
                        self.wfile.write(b"H")
                    except OSError:
                        return
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/hook?token=in-the-address"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def kinds(self) -> list[str]:
        return [json.loads(body)["kind"] for _, body in self.requests]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    yield server
    server.close()


@pytest.fixture
def history(store_url: str) -> History:
    made = History(store_url, tumbling("1 minute"), final_after="1 minute")
    made.alert(webhook="oncall")
    made.start()
    return made


def webhooks(history: History, receiver: Receiver, **more: Any) -> Webhooks:
    given = {"attempts": 3, "seconds": 5.0, "first_pause": timedelta(milliseconds=20), **more}
    addresses = {"oncall": receiver.address}
    return Webhooks(Store(history.url), [history.query], addresses, SECRET, **given)


def until_settled(hooks: Webhooks, history: History, seconds: float = 10.0) -> list[dict[str, Any]]:
    """Deliver until nothing waits; returns what became of the events."""
    until = time.monotonic() + seconds
    while True:
        hooks.deliver()
        rows = history.rows(
            "SELECT seq, delivery, attempts, last_error FROM headrace.alert_events WHERE app = %(app)s"
            " ORDER BY position"
        )
        if all(row["delivery"] != "waiting" for row in rows):
            return rows
        assert time.monotonic() < until, rows
        time.sleep(0.01)


def open_and_resolve(history: History) -> None:
    history.feed([Cell(at(0), "tashkent", 10, 10)], at(1))
    history.feed([], at(2))


def test_a_server_that_fails_first_hears_every_event_in_order(history: History, receiver: Receiver) -> None:
    open_and_resolve(history)
    receiver.answers = [503, 302, 204]
    hooks = webhooks(history, receiver)
    rows = until_settled(hooks, history)
    assert [(row["delivery"], row["attempts"]) for row in rows] == [("delivered", 3), ("delivered", 1)]
    assert receiver.kinds() == ["opened", "opened", "opened", "resolved"]
    keys = [headers["Idempotency-Key"] for headers, _ in receiver.requests]
    [alert] = history.alerts()
    assert keys == [f"{alert['id']}-1"] * 3 + [f"{alert['id']}-2"]
    assert hooks.deliver() == 0
    assert [json.loads(body) for _, body in receiver.requests[2:]] == history.events()


def test_the_signature_is_over_time_and_body(history: History, receiver: Receiver) -> None:
    open_and_resolve(history)
    until_settled(webhooks(history, receiver), history)
    for headers, body in receiver.requests:
        stamp = headers["Headrace-Timestamp"]
        assert abs(int(stamp) - time.time()) < 60
        wanted = hmac.new(SECRET.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
        assert headers["Headrace-Signature"] == f"sha256={wanted}"
        assert headers["Content-Type"] == "application/json"


def test_after_the_last_attempt_an_event_is_dead_and_says_why(
    history: History, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    open_and_resolve(history)
    receiver.answers = [500]
    with caplog.at_level(logging.DEBUG):
        rows = until_settled(webhooks(history, receiver), history)
    dead = {"delivery": "dead", "attempts": 3, "last_error": "it answered 500"}
    assert rows == [{"seq": 1, **dead}, {"seq": 2, **dead}]
    assert len(receiver.requests) == 6
    assert "gave up" in caplog.text
    assert SECRET not in caplog.text and "in-the-address" not in caplog.text and "tashkent" not in caplog.text


def test_a_server_that_does_not_answer_in_time(history: History, receiver: Receiver) -> None:
    history.feed([Cell(at(0), "tashkent", 10, 10)], at(1))
    receiver.answers = [0, -1, 200]
    hooks = webhooks(history, receiver, seconds=0.5, attempts=20)
    began = time.monotonic()
    assert hooks.deliver() == 0
    assert time.monotonic() - began < 5
    assert history.rows("SELECT last_error FROM headrace.alert_events WHERE app = %(app)s") == [
        {"last_error": "no answer within 0.5 s"}
    ]
    [row] = until_settled(hooks, history)
    assert row["delivery"] == "delivered" and row["attempts"] >= 3


def test_a_server_that_is_away_costs_one_attempt_for_all_that_wait(history: History) -> None:
    cells = [Cell(at(0), f"region {n}", 10, 10) for n in range(5)]
    history.feed(cells, at(1))
    away = Receiver()
    away.close()
    hooks = webhooks(history, away, first_pause=timedelta(hours=1))
    assert hooks.deliver() == 0
    rows = history.rows(
        "SELECT attempts, last_error FROM headrace.alert_events WHERE app = %(app)s ORDER BY position"
    )
    assert rows == [{"attempts": 1, "last_error": "ConnectError"}, *[{"attempts": 0, "last_error": ""}] * 4]


def test_a_webhook_needs_an_address() -> None:
    with pytest.raises(UsageError, match=r"app\.py:3: the setting webhooks has no 'oncal'") as caught:
        check_addresses({"oncal": "app.py:3"}, {"oncall": "https://x"})
    assert caught.value.hint == "did you mean 'oncall'?"
    with pytest.raises(UsageError, match="webhook 'oncall' is no address"):
        check_addresses({"oncall": "app.py:3"}, {"oncall": "ftp://x"})
    check_addresses({"oncall": "app.py:3"}, {"oncall": "https://x"})
