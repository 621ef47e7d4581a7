"""What every task does first in a Python worker of Spark."""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Spark collects garbage after every task: what a worker has loaded by its first one is none.

    Looking through all of it again would take longer than a small task does.
    """
    gc.collect()
    gc.freeze()
