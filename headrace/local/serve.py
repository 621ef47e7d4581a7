"""The API and the dashboard of an app as one more service under a keeper."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from headrace.local.service import Service


class ServeProcess(Service):
    """`headrace serve` in the working folder; it needs neither Spark nor a running engine."""

    name = "serve"

    def __init__(self, state: Path, app: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(state, port)
        self._state, self._app, self._host = state, app.resolve(), host

    @property
    def runs_in(self) -> Path:
        return self._state.parent

    @property
    def address(self) -> str:
        host = "127.0.0.1" if self._host in ("0.0.0.0", "::", "localhost") else self._host
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def prepare(self) -> list[str]:
        command = [sys.executable, "-m", "headrace.cli", "serve", str(self._app)]
        return [*command, "--host", self._host, "--port", str(self.port)]

    def is_healthy(self) -> bool:
        """It answers; that all is well in what it looks at is another matter."""
        try:
            with urlopen(f"{self.url}/openapi.json", timeout=2):
                return True
        except HTTPError:
            return True
        except (URLError, OSError):
            return False
