"""An app's own traffic model: the module `traffic` next to its app.py, with `Traffic` and `records`."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import AppError, UsageError
from headrace.log.record import Record

__all__ = ["Record", "TrafficModel", "load_traffic"]


@dataclass(frozen=True)
class TrafficModel:
    """`Traffic` is a dataclass of options, all with defaults; `records` makes the records they describe."""

    Traffic: Callable[..., Any]
    records: Callable[[Any], Iterator[Record]]
    file: Path

    def options(self, **given: object) -> Any:
        """The options with the given ones set; one that this model does not have is a UsageError."""
        known = [f.name for f in dataclasses.fields(self.Traffic)]  # type: ignore[arg-type]
        for name in given:
            if name not in known:
                raise UsageError(
                    f"this app's traffic has no option '{name}'",
                    where=str(self.file),
                    hint=f"it has {', '.join(known)}",
                )
        return self.Traffic(**given)


def load_traffic(app: Path) -> TrafficModel:
    """Load the model of an app, given its folder or its app.py."""
    folder = app if app.is_dir() else app.parent
    package, module = folder / "traffic" / "__init__.py", folder / "traffic.py"
    file = package if package.exists() else module
    if not file.exists():
        raise AppError(
            "no traffic model",
            where=str(folder),
            hint="write traffic.py next to app.py, with a dataclass Traffic and a function records(options)",
        )
    # Two apps may both have a `traffic`: the module is named after its place.
    name = f"headrace_traffic_{hashlib.sha1(str(file.resolve()).encode()).hexdigest()[:12]}"
    loaded = sys.modules.get(name)
    if loaded is None:
        search = [str(file.parent)] if file == package else None
        spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=search)
        assert spec is not None and spec.loader is not None
        loaded = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(loaded)
        except BaseException:
            del sys.modules[name]
            raise
    options, records = getattr(loaded, "Traffic", None), getattr(loaded, "records", None)
    if not (isinstance(options, type) and dataclasses.is_dataclass(options) and callable(records)):
        raise AppError(
            "a traffic model needs a dataclass Traffic and a function records(options)", where=str(file)
        )
    return TrafficModel(options, records, file)
