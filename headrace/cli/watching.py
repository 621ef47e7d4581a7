"""Showing something once, or again and again: in place on a terminal, as text or JSON lines in a pipe."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.errors import ServiceError

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from headrace.ops.pipeline import PipelineView

EVERY_SECONDS = 2.0
PIPE_WIDTH = 150  # a pipe has no width: a table that cuts its cells there could not be searched


@contextmanager
def pipeline_view(app: Path | None) -> Iterator[PipelineView]:
    """The pipeline of the folder's app, or of the one that is named."""
    from headrace.local.connect import found_connections
    from headrace.ops.load import load_app
    from headrace.ops.pipeline import PipelineView
    from headrace.settings import load

    settings = load()
    loaded = load_app(app or settings.folder / settings.app)
    view = PipelineView(loaded, found_connections(settings), settings.connect_seconds)
    try:
        yield view
    finally:
        view.close()


def show(
    look: Callable[[], dict[str, Any]],
    render: Callable[[dict[str, Any]], RenderableType],
    *,
    as_json: bool,
    watch: bool,
) -> dict[str, Any]:
    """Look once, or until Ctrl-C; returns what was seen last."""
    if not watch:
        seen = look()
        _print_json(seen, 1) if as_json else _console().print(render(seen))
        return seen
    if as_json:
        return _repeat(look, lambda seen: _print_json(seen, None))
    if not sys.stdout.isatty():
        return _repeat(look, lambda seen: _console().print(render(seen)))
    from rich.live import Live

    with Live(console=_console(), refresh_per_second=4) as live:
        return _repeat(look, lambda seen: live.update(render(seen)))


def _repeat(look: Callable[[], dict[str, Any]], tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """A service that is away for a moment does not end the watching."""
    seen: dict[str, Any] = {}
    try:
        while True:
            try:
                seen = look()
                tell(seen)
            except ServiceError as error:
                print(f"waiting: {error.what}", file=sys.stderr, flush=True)
            sys.stdout.flush()
            time.sleep(EVERY_SECONDS)
    except KeyboardInterrupt:
        return seen


def _print_json(seen: dict[str, Any], indent: int | None) -> None:
    print(json.dumps(seen, indent=indent), flush=True)


def _console() -> Any:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
