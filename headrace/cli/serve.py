"""headrace serve: the API, the live changes and the dashboard."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Annotated

import typer


def serve(
    app: Annotated[
        Path | None, typer.Argument(help="The app: a folder, or its app.py.", show_default="the setting app")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Where to listen.", show_default="the setting serve_host")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="0 takes a free one.", show_default="the setting serve_port"),
    ] = None,
    without_tokens: Annotated[
        bool, typer.Option("--without-tokens", help="Allow other machines to ask without a token.")
    ] = False,
) -> None:
    """Serve the API and the dashboard of an app, against services that already run.

    \b
    Examples:
      headrace serve
      headrace serve apps/turanmart --port 8080
    """
    from headrace.local.connect import found_connections
    from headrace.ops.load import load_app
    from headrace.serve.access import read_tokens
    from headrace.serve.app import make_app
    from headrace.serve.server import Server, address_of, listening_socket, refuse_open_door
    from headrace.settings import load

    settings = load()
    address = host or settings.serve_host
    tokens = read_tokens(settings.folder / settings.serve_tokens) if settings.serve_tokens else None
    refuse_open_door(address, with_tokens=tokens is not None, allowed=without_tokens)
    loaded = load_app(app or settings.folder / settings.app)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S")
    connections = found_connections(settings)
    with listening_socket(address, settings.serve_port if port is None else port) as listening:
        asks = "a token is asked for" if tokens is not None else "no token is asked for"
        print(f"dashboard: {address_of(listening)} ({asks})", flush=True)
        # The server stops cleanly by itself and then sends itself the signal again: it has done its work.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        Server(make_app(loaded, connections, tokens), address).run(sockets=[listening])
