"""A Postgres of one command's own: started when it needs tables, gone when it ends."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.local.postgres import Postgres


@contextmanager
def scratch_store() -> Iterator[str]:
    """The URL of an empty database that lasts as long as the block."""
    with tempfile.TemporaryDirectory(prefix="headrace-store-") as folder:
        # Postgres may run as another user than the one who owns the folder.
        Path(folder).chmod(0o711)
        service = Postgres(Path(folder))
        service.start()
        try:
            yield service.url
        finally:
            service.stop()
