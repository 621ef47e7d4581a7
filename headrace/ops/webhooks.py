"""Telling webhooks of alerts: signed, tried again with pauses, given up after a limit.

A webhook may hear of an event twice, after a crash between its answer and our note: the header
Idempotency-Key is the same both times.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import httpx

from headrace.errors import UsageError, known_names
from headrace.store.alert_outbox import Delivery, due_deliveries, note_delivered, note_failed
from headrace.store.connection import Store

logger = logging.getLogger(__name__)

AT_ONCE = 100
FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(minutes=5)


class Webhooks:
    """Addresses by name, and how to reach them. Addresses are secret: they may carry a token."""

    def __init__(
        self,
        store: Store,
        queries: Sequence[str],
        addresses: Mapping[str, str],
        secret: str,
        *,
        attempts: int = 10,
        seconds: float = 10.0,
        first_pause: timedelta = FIRST_PAUSE,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store, self._queries, self._addresses = store, queries, addresses
        self._secret, self._attempts, self._first_pause = secret, attempts, first_pause
        self._stopping = stopping
        # Its line for every request would have the address in it.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._seconds = seconds

    def deliver(self) -> int:
        """Send what is due; returns how many events were delivered."""
        count, away = 0, set[str]()
        due = self._due()
        while due and not self._stopping():
            delivered = 0
            for delivery in due:
                # One that does not answer is asked once; what else waits for it keeps its attempts.
                if delivery.webhook in away or self._stopping():
                    continue
                if self._deliver(delivery):
                    delivered += 1
                else:
                    away.add(delivery.webhook)
            count += delivered
            due = self._due() if delivered else []
        return count

    def _due(self) -> list[Delivery]:
        return self._store.transact(lambda connection: due_deliveries(connection, self._queries, AT_ONCE))

    def _deliver(self, delivery: Delivery) -> bool:
        error = self._send(delivery)
        if not error:
            self._store.transact(lambda connection: note_delivered(connection, delivery.position))
            return True
        give_up = delivery.attempts + 1 >= self._attempts
        pause = min(self._first_pause * 2**delivery.attempts, LONGEST_PAUSE)
        self._store.transact(
            lambda connection: note_failed(connection, delivery.position, error, pause, give_up=give_up)
        )
        what = "gave up" if give_up else f"next try in {pause.total_seconds():g} s"
        logger.warning("webhook %s, event %s: %s; %s", delivery.webhook, delivery.event_id, error, what)
        return False

    def _send(self, delivery: Delivery) -> str:
        """What went wrong, in words that carry no address; empty if nothing."""
        address = self._addresses.get(delivery.webhook)
        if address is None:
            return "the setting webhooks has no such name"
        body = delivery.payload.encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "headrace",
            "Idempotency-Key": delivery.event_id,
            **signature(self._secret, body, int(time.time())),
        }
        try:
            # A deadline for all of it: httpx alone would wait for a server that sends a byte now and then.
            status = asyncio.run(asyncio.wait_for(_post(address, body, headers), self._seconds))
        except TimeoutError:
            return f"no answer within {self._seconds:g} s"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return type(error).__name__
        return "" if 200 <= status < 300 else f"it answered {status}"


async def _post(address: str, body: bytes, headers: dict[str, str]) -> int:
    """Only the status counts: a long answer must not fill the memory."""
    async with (
        httpx.AsyncClient(timeout=None, follow_redirects=False) as client,
        client.stream("POST", address, content=body, headers=headers) as answer,
    ):
        return answer.status_code


def signature(secret: str, body: bytes, timestamp: int) -> dict[str, str]:
    """The time is signed too, so that an old message cannot be sent again as a new one."""
    signed = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {"Headrace-Timestamp": str(timestamp), "Headrace-Signature": f"sha256={signed}"}


def check_addresses(names: Mapping[str, str], addresses: Mapping[str, object]) -> None:
    """`names` are webhooks with the place that asks for them; raises UsageError for one without address."""
    for name, where in names.items():
        address = addresses.get(name)
        if not isinstance(address, str):
            hint = known_names(name, addresses) if addresses else f'[webhooks] {name} = "https://…"'
            raise UsageError(f"the setting webhooks has no '{name}'", where=where, hint=hint)
        if not address.startswith(("https://", "http://")):
            raise UsageError(
                f"webhook '{name}' is no address", where=where, hint="it begins with https:// or http://"
            )
