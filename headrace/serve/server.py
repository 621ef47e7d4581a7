"""Running the application: where it listens, and how it stops without waiting for those who follow."""

from __future__ import annotations

import ipaddress
import logging
import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.errors import ServiceError, UsageError
from headrace.serve.problems import Problem, problem_response

STOP_SECONDS = 3
BACKLOG = 1024


class KnownHosts:
    """Only requests that name this machine: a web page could let a name of its own lead to it."""

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app, self._known = app, {"localhost", "127.0.0.1", "[::1]", host, f"[{host}]"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
            if _without_port(given) not in self._known:
                problem = Problem(421, "this server answers only to the name of its own machine")
                await problem_response(problem)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Server(uvicorn.Server):
    """Ends the streams of /live first: they never end by themselves."""

    def __init__(self, app: FastAPI, host: str = "127.0.0.1") -> None:
        is_open = not app.state.access.asks_for_tokens and is_loopback(host)
        # The access log is off: addresses of requests can hold what people look for.
        config = uvicorn.Config(
            KnownHosts(app, host) if is_open else app,
            log_level=logging.WARNING,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=STOP_SECONDS,
            timeout_keep_alive=30,
            backlog=BACKLOG,
        )
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._app.state.serving.hub.close_clients()
        super().handle_exit(sig, frame)


def refuse_open_door(host: str, *, with_tokens: bool, allowed: bool) -> None:
    """Without tokens, only this machine may ask, unless the operator says otherwise."""
    if with_tokens or allowed or is_loopback(host):
        return
    raise UsageError(
        f"listening on {host} without tokens would show everything to everybody",
        hint="set serve_tokens, or say that it is meant: headrace serve --without-tokens",
    )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listening_socket(host: str, port: int) -> socket.socket:
    """Before anything else starts, so that a taken port is told at once. Port 0 takes a free one.

    Who comes before the application is ready waits, instead of being turned away.
    """
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        raise ServiceError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            hint="choose another --port, or stop what uses this one",
        ) from error
    listening.set_inheritable(True)
    return listening


def _without_port(host: str) -> str:
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
