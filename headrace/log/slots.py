"""Transactional ids that stay with a process: a slot is a locked file, free when its process is gone."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

SLOTS = 1000


class Slot:
    """The first slot of a sink that no other process on this machine holds."""

    def __init__(self, folder: Path, sink: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(SLOTS):
            lock = os.open(folder / f"{sink}.{number}", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            self._lock = lock
            self.transactional_id = transactional_id(sink, number)
            return
        raise RuntimeError(f"all {SLOTS} publishing slots of {sink} are taken")

    def release(self) -> None:
        os.close(self._lock)


def transactional_id(sink: str, number: int) -> str:
    return f"{sink}.{socket.gethostname()}.{number}"


def used_ids(folder: Path, sink: str) -> list[str]:
    """Every transactional id that a process of this machine has ever used for the sink."""
    numbers = [int(file.suffix[1:]) for file in folder.glob(f"{sink}.*") if file.suffix[1:].isdigit()]
    return [transactional_id(sink, number) for number in sorted(numbers)]
