"""The threads that carry alerts and the results of flows out of the store while the engine runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from headrace.alerts import Alert
from headrace.connections import Connections, query_name
from headrace.errors import HeadraceError, UsageError
from headrace.log.topics import ensure_alert_topics, ensure_flow_topics
from headrace.ops.load import LoadedApp
from headrace.ops.outbox_topics import OutboxTopics
from headrace.ops.webhooks import Webhooks, check_addresses
from headrace.settings import Settings
from headrace.store.alert_outbox import AlertOutbox
from headrace.store.connection import Store
from headrace.store.outbox import FlowOutbox

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5
LONGEST_PAUSE = 30.0
STOP_SECONDS = 10.0


class Delivery:
    """Topics in one thread, webhooks in another: a slow webhook holds up no topic."""

    def __init__(
        self, loaded: LoadedApp, settings: Settings, connections: Connections, sources: list[str]
    ) -> None:
        self._queries = [query_name(loaded.name, source) for source in sources]
        self._lanes = [*self._queries, *loaded.flow_lanes(sources)]
        self._flow_topics = loaded.flow_topics(sources)
        self._alerts: list[Alert] = [a for source in sources for a in loaded.alerts_of(source)]
        self._alerts += [p.alert for source in sources for p in loaded.patterns_of(source)]
        self._signals = [s for source in sources for s in loaded.signals_of(source)]
        self._settings, self._connections = settings, connections
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        hooks = {alert.webhook: alert.declared_at for alert in self._alerts if alert.webhook}
        check_addresses(hooks, settings.webhooks)
        for name in ("alert_keep_days", "webhook_attempts"):
            if getattr(settings, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(settings, name)}")

    def start(self) -> None:
        """Raises ServiceError where a topic cannot be made.

        An app without alerts may have had some: what they left in the outbox goes out too.
        """
        topics = {alert.topic for alert in self._alerts if alert.topic}
        ensure_alert_topics(
            topics, timedelta(days=self._settings.alert_keep_days), self._connections.librdkafka
        )
        for signals in self._signals:
            if signals.topic:
                ensure_alert_topics({signals.topic}, signals.retain, self._connections.librdkafka)
        ensure_flow_topics(self._flow_topics, self._connections.librdkafka)
        for kind, outbox, lanes in (
            ("alerts", AlertOutbox(), self._queries),
            ("flows", FlowOutbox(), self._lanes),
        ):
            publisher = OutboxTopics(
                *(kind, outbox, self._store(), lanes, self._connections.librdkafka),
                seconds=self._settings.publish_seconds,
            )
            self._run(f"topics of {kind}", publisher.publish, publisher.close)
        settings = self._settings
        webhooks = Webhooks(
            *(self._store(), self._queries, settings.webhooks),
            settings.signing_secret() if settings.webhooks else "",
            attempts=settings.webhook_attempts,
            seconds=settings.webhook_seconds,
            stopping=self._stopping.is_set,
        )
        self._run("alert webhooks", webhooks.deliver)

    def stop(self) -> None:
        """What waits in the outbox by now is tried once more; the rest goes out at the next start."""
        self._stopping.set()
        until = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        self._threads.clear()

    def _store(self) -> Store:
        return Store(self._connections.store_url, wait_seconds=10.0)

    def _run(self, name: str, work: Callable[[], int], close: Callable[[], None] = lambda: None) -> None:
        thread = threading.Thread(target=self._loop, args=(name, work, close), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _loop(self, name: str, work: Callable[[], int], close: Callable[[], None]) -> None:
        pause = POLL_SECONDS
        last = False
        while not last:
            last = self._stopping.wait(pause)
            try:
                work()
                pause = POLL_SECONDS
            except Exception as error:
                # Nothing is lost: the outbox keeps it. What Kafka or Postgres says holds no payload.
                pause = min(pause * 2, LONGEST_PAUSE)
                said = error.what if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
                logger.warning("%s: %s; next try in %.0f s", name, said, pause)
        close()
