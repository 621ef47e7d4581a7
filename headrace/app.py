"""What a user declares: an app, its sources, and what to derive from them. No Spark, no side effects."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import AppError


@dataclass(frozen=True)
class Source:
    """Choices about one stream. `publish=False` keeps accepted events out of the validated topic."""

    name: str
    publish: bool = True
    max_batch: int | None = None  # None: the setting max_batch
    where: str = ""


class App:
    """An app: a name, a folder of contracts, and declarations. Declaring starts nothing."""

    def __init__(self, name: str, contracts: str = "contracts") -> None:
        caller = inspect.stack()[1]
        self.name = name
        self.file = Path(caller.filename)
        self.contracts_dir = self.file.parent / contracts
        self.sources: dict[str, Source] = {}

    def source(self, name: str, *, publish: bool = True, max_batch: int | None = None) -> Source:
        """Set the choices for one stream; a stream without a declaration has the defaults."""
        where = _callers_line()
        if name in self.sources:
            raise AppError(
                f"source '{name}' is declared twice",
                where=where,
                hint=f"the first declaration is at {self.sources[name].where}",
            )
        if max_batch is not None and max_batch < 1:
            raise AppError(f"max_batch must be at least 1, not {max_batch}", where=where)
        source = Source(name, publish, max_batch, where)
        self.sources[name] = source
        return source

    def choices(self, name: str) -> Source:
        return self.sources.get(name, Source(name))


def _callers_line() -> str:
    frame = inspect.stack()[2]
    return f"{frame.filename}:{frame.lineno}"
