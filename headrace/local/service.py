"""One embedded service: a child process under a keeper, its log, its port and its health."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from pathlib import Path

import psutil

from headrace.errors import ServiceError

KEEPER = Path(__file__).with_name("keeper.py")
STOP_SECONDS = 20.0
LOG_BYTES = 20 * 1024 * 1024
# Below the range from which systems take the ports of outgoing connections, so that a port that was ours
# yesterday, or before a crash, is rarely taken by a passing connection.
PORT_RANGE = (20_000, 32_000)
# Given to services of this process. One that is starting does not listen yet, so its port seems to be free.
_given: set[int] = set()
_giving = threading.Lock()


class Service(ABC):
    """A service that is started, stopped, killed and started again in one folder and on one port."""

    name: str
    stop_signal = "TERM"
    start_seconds = 60.0
    stop_seconds = STOP_SECONDS
    identity = "same"
    nice = 0

    def __init__(self, state: Path, port: int = 0) -> None:
        self.data = state / self.name
        self.log = state / "log" / f"{self.name}.log"
        self.fixed_port = port
        self.port = 0
        self.pid = 0
        self.since: datetime | None = None
        self.given_up = threading.Event()
        self._ports_file = state / "ports.json"
        self._keeper: subprocess.Popen[str] | None = None

    @abstractmethod
    def prepare(self) -> list[str]:
        """Make the folder ready and give the command that runs the service."""

    @abstractmethod
    def is_healthy(self) -> bool:
        """Whether the service answers a real request."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def runs_in(self) -> Path:
        return self.data

    @property
    def keeper_pid(self) -> int:
        return self._keeper.pid if self._keeper else 0

    def start(self) -> None:
        """Start and wait until healthy; on failure nothing is left running."""
        if self.is_running():
            return
        self.begin()
        self.wait()

    def wait(self) -> None:
        """Until healthy, after `begin`; on failure nothing is left running."""
        try:
            self._wait_healthy()
        except BaseException:
            self.kill()
            raise
        self.since = datetime.now(UTC)

    def begin(self) -> None:
        """Start without waiting."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.replace(self.log.with_name(f"{self.log.name}.1"))
        self.port = choose_port(
            self.name, self.fixed_port, self.port or kept_ports(self._ports_file).get(self.name, 0)
        )
        self.spawn(self.prepare())

    def stop(self) -> None:
        """Stop cleanly; the keeper kills the service if it does not end within its deadline."""
        keeper = self._keeper
        if keeper is None:
            return
        if keeper.stdin:
            keeper.stdin.close()
        try:
            keeper.wait(self.stop_seconds + 10)
        except subprocess.TimeoutExpired:
            self.kill()
        self._forget()

    def kill(self) -> None:
        """Kill -9 the service and its keeper, as a crash of the machine would."""
        keeper = self._keeper
        if keeper is None:
            return
        family = descendants(keeper.pid)
        for process in [psutil.Process(keeper.pid), *family] if keeper.poll() is None else family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        keeper.wait()
        psutil.wait_procs(family, timeout=10)
        self._forget()

    def is_running(self) -> bool:
        return self._keeper is not None and self._keeper.poll() is None

    def spawn(self, command: list[str]) -> None:
        with self.log.open("ab") as log:
            self._keeper = subprocess.Popen(
                [
                    *(sys.executable, "-I", str(KEEPER)),
                    *("--stop-signal", self.stop_signal, "--deadline", str(self.stop_seconds)),
                    *("--identity", self.identity, "--nice", str(self.nice), "--", *command),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                cwd=self.runs_in,
            )
        told = self._keeper.stdout.readline() if self._keeper.stdout else ""
        self.pid = int(told) if told.strip() else 0

    def log_tail(self, lines: int = 12) -> str:
        try:
            text = self.log.read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(f"    {line}" for line in text.splitlines()[-lines:])

    def _wait_healthy(self) -> None:
        until = time.monotonic() + self.start_seconds
        while not self.is_healthy():
            if self.given_up.is_set():
                raise ServiceError(f"the start of {self.name} was given up")
            if not self.is_running():
                raise ServiceError(
                    f"{self.name} ended while it was starting; its last words:\n{self.log_tail()}",
                    hint=f"the whole log is {self.log}",
                )
            if time.monotonic() > until:
                late = f"{self.name} did not answer within start_seconds ({self.start_seconds:.0f} s)"
                raise ServiceError(
                    f"{late}; its last words:\n{self.log_tail()}",
                    hint=f"the whole log is {self.log}",
                )
            time.sleep(0.05)

    def _forget(self) -> None:
        if self._keeper and self._keeper.stdin:
            self._keeper.stdin.close()
        if self._keeper and self._keeper.stdout:
            self._keeper.stdout.close()
        self._keeper = None
        self.pid = 0
        self.since = None


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def choose_port(name: str, fixed: int, kept: int) -> int:
    """The port the user fixed, else the one used before, else a free one that no other service was given."""
    if fixed and not is_free(fixed):
        raise ServiceError(
            f"port {fixed} for {name} is taken by another process",
            hint=f"stop that process, choose another {name}_port, or leave it out to take a free one",
        )
    with _giving:
        port = fixed or (kept if kept and is_free(kept) else _unused_port(name))
        _given.add(port)
    return port


def _unused_port(name: str) -> int:
    for _ in range(200):
        port = random.randint(*PORT_RANGE)
        if port not in _given and is_free(port):
            return port
    raise ServiceError(f"no free port on 127.0.0.1 for {name}", hint=f"set {name}_port in headrace.toml")


def kept_ports(ports_file: Path) -> dict[str, int]:
    """The ports of earlier starts, by service."""
    try:
        return {str(name): int(port) for name, port in json.loads(ports_file.read_text()).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def write_atomically(file: Path, text: str, mode: int = 0o644) -> None:
    """Readers see the old text or the new one, never a part."""
    part = file.with_name(f"{file.name}.part-{os.getpid()}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(file)
