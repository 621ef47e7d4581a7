"""CPU time and peak memory of this process and everything it started, but for the embedded services."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from types import TracebackType

import psutil


@dataclass(frozen=True)
class Reading:
    seconds: float
    cpu_seconds: float
    peak_mb: float


class Meter:
    """Samples while its block runs. A process that ends in between keeps its last reading."""

    def __init__(self, leave_out: set[int]) -> None:
        self._leave_out = leave_out
        self._cpu: dict[int, float] = {}
        self._peak = 0.0
        self._done = threading.Event()

    def __enter__(self) -> Meter:
        self._sample()
        self._at_start = dict(self._cpu)
        self._peak = 0.0
        self._began = time.perf_counter()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        self._sample()
        cpu = sum(used - self._at_start.get(pid, 0.0) for pid, used in self._cpu.items())
        self.reading = Reading(time.perf_counter() - self._began, cpu, self._peak)

    def _watch(self) -> None:
        while not self._done.wait(0.5):
            self._sample()

    def _sample(self) -> None:
        resident = 0
        for process in self._family():
            try:
                times = process.cpu_times()
                self._cpu[process.pid] = times.user + times.system
                resident += process.memory_info().rss
            except psutil.Error:
                continue
        self._peak = max(self._peak, resident / 1e6)

    def _family(self) -> list[psutil.Process]:
        """This process and its descendants, without those that are left out and their own."""
        found, known = [psutil.Process()], set(self._leave_out)
        # Parents come before their children; one walk through the system's processes for all of them.
        for process in found[0].children(recursive=True):
            try:
                left_out = process.pid in known or process.ppid() in known
            except psutil.Error:
                continue
            if left_out:
                known.add(process.pid)
            else:
                found.append(process)
        return found
