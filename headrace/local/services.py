"""Kafka and Postgres for one working folder: started here, or found where the settings say."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO

import psutil

from headrace.errors import ServiceError
from headrace.local import postgres
from headrace.local.broker import Broker
from headrace.local.lock import take_lock
from headrace.local.postgres import Postgres
from headrace.local.reach import check_kafka, check_postgres, shown
from headrace.local.service import Service, kept_ports, write_atomically
from headrace.settings import Settings, load

SPACE_NEEDED = 500 * 1024 * 1024


@dataclass(frozen=True)
class ServiceFact:
    """What others may know about one service; never a password."""

    name: str
    address: str
    embedded: bool
    pid: int = 0
    keeper_pid: int = 0
    since: str = ""


@dataclass(frozen=True)
class RunningServices:
    """The services of a running `headrace up`, as another process in the same folder finds them."""

    pid: int
    since: str
    bootstrap: str
    kafka_options: dict[str, str] = field(repr=False)
    java_kafka_options: dict[str, str] = field(repr=False)
    store_url: str = field(repr=False)
    facts: tuple[ServiceFact, ...]


class Services:
    """A context manager around the broker and the database.

    `bootstrap`, `kafka_options` (librdkafka, without the bootstrap servers), `java_kafka_options` and
    `store_url` are valid after `start()`.
    """

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        self.folder = folder.absolute()
        self.settings = settings or load(self.folder)
        self.state = self.folder / ".headrace"
        self._broker = None if self.settings.kafka_bootstrap else Broker(self.state, self.settings.kafka_port)
        self._postgres = (
            None if self.settings.store_url else Postgres(self.state, self.settings.postgres_port)
        )
        self._beside: list[Service] = []
        self._lock: IO[str] | None = None
        self._since = ""
        self.kafka_options = self.settings.librdkafka_options()
        self.java_kafka_options = self.settings.java_kafka_options()

    @property
    def broker(self) -> Broker:
        if self._broker is None:
            raise ServiceError("Kafka is not ours to control", hint="kafka_bootstrap names an existing one")
        return self._broker

    @property
    def postgres(self) -> Postgres:
        if self._postgres is None:
            raise ServiceError("Postgres is not ours to control", hint="store_url names an existing one")
        return self._postgres

    @property
    def bootstrap(self) -> str:
        return self.settings.kafka_bootstrap or self.broker.address

    @property
    def store_url(self) -> str:
        return self.settings.store_url or self.postgres.url

    @property
    def embedded(self) -> list[Service]:
        return [service for service in (self._broker, self._postgres) if service is not None]

    def start(self) -> Services:
        """Start what is ours, check what is not, both at once; on failure nothing is left running."""
        self._check_folder()
        self._lock = take_lock(self.state / "lock")
        try:
            self._start_both()
            self._since = _now()
            self.publish()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop cleanly; nothing happens if nothing runs."""
        if self._lock is None:
            return
        with ExitStack() as at_the_end:
            at_the_end.callback(self._unlock)
            with ThreadPoolExecutor(2) as pool:
                for stopped in [pool.submit(service.stop) for service in self.embedded]:
                    stopped.result()

    def publish(self) -> None:
        """Write where the services are, for other commands in this folder. Call it again after a restart."""
        mine = [*self.embedded, *self._beside]
        # A service that is not started yet, or not this time, keeps its port.
        ports = kept_ports(self.state / "ports.json") | {service.name: service.port for service in mine}
        write_atomically(self.state / "ports.json", json.dumps(ports))
        me = os.getpid()
        told = {
            "pid": me,
            "created": psutil.Process(me).create_time(),
            "since": self._since,
            "services": [asdict(fact) for fact in self.facts()],
        }
        write_atomically(self.state / "services.json", json.dumps(told, indent=1))

    def tell_of(self, service: Service) -> None:
        """One more service runs beside ours: show it to other commands too."""
        self._beside.append(service)
        self.publish()

    def facts(self) -> tuple[ServiceFact, ...]:
        kafka = (
            _fact(self._broker)
            if self._broker
            else ServiceFact("kafka", self.settings.kafka_bootstrap, False)
        )
        store = (
            _fact(self._postgres) if self._postgres else ServiceFact("postgres", shown(self.store_url), False)
        )
        return kafka, store, *map(_fact, self._beside)

    @staticmethod
    def running(folder: Path, settings: Settings | None = None) -> RunningServices | None:
        """The services of the `headrace up` that runs in this folder, or None."""
        state = folder.absolute() / ".headrace"
        try:
            told = json.loads((state / "services.json").read_text())
            if psutil.Process(told["pid"]).create_time() != told["created"]:
                return None
        except (OSError, ValueError, KeyError, psutil.Error):
            return None
        settings = settings or load(folder)
        facts = tuple(ServiceFact(**fact) for fact in told["services"])
        kafka, store, *_ = facts
        store_url = (
            postgres.url(state, int(store.address.rpartition(":")[2]))
            if store.embedded
            else settings.store_url
        )
        return RunningServices(
            pid=told["pid"],
            since=told["since"],
            bootstrap=kafka.address,
            kafka_options=settings.librdkafka_options(),
            java_kafka_options=settings.java_kafka_options(),
            store_url=store_url,
            facts=facts,
        )

    def __enter__(self) -> Services:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start_both(self) -> None:
        for service in self.embedded:
            service.given_up.clear()
        with ThreadPoolExecutor(2) as pool:
            starting = [pool.submit(self._start_kafka), pool.submit(self._start_postgres)]
            try:
                for done in as_completed(starting):
                    done.result()
            except BaseException:
                # The other one must not keep an error or a Ctrl-C waiting until it is healthy.
                for service in self.embedded:
                    service.given_up.set()
                raise

    def _start_kafka(self) -> None:
        if self._broker:
            self._broker.start_seconds = self.settings.start_seconds
            self._broker.start()
        else:
            check_kafka(self.bootstrap, self.kafka_options, self.settings.connect_seconds)

    def _start_postgres(self) -> None:
        if self._postgres:
            self._postgres.start_seconds = self.settings.start_seconds
            self._postgres.start()
        else:
            check_postgres(self.store_url, self.settings.connect_seconds)

    def _check_folder(self) -> None:
        try:
            self.state.mkdir(parents=True, exist_ok=True)
            (self.state / "log").mkdir(exist_ok=True)
            probe = self.state / f"probe-{os.getpid()}"
            probe.touch()
            probe.unlink()
            free = shutil.disk_usage(self.state).free
        except OSError as error:
            raise ServiceError(
                f"cannot write here: {error.strerror}",
                where=str(self.state),
                hint="run headrace in a folder that you own, or give yourself the right to write",
            ) from error
        if self.embedded and free < SPACE_NEEDED:
            raise ServiceError(
                f"only {free // 2**20} MB free on this disk, the services need {SPACE_NEEDED // 2**20} MB",
                where=str(self.state),
                hint="free some space, or run headrace in a folder on another disk",
            )

    def _unlock(self) -> None:
        (self.state / "services.json").unlink(missing_ok=True)
        if self._lock:
            self._lock.close()
            self._lock = None


def _fact(service: Service) -> ServiceFact:
    since = service.since.isoformat(timespec="seconds") if service.since else ""
    return ServiceFact(service.name, service.address, True, service.pid, service.keeper_pid, since)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
