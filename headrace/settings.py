"""Every setting once: name, default and help. `--help`, docs and the reference file come from this record.

Rising priority: the default, `headrace.toml` in the working folder, the environment (`HEADRACE_<NAME>`).
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.errors import UsageError
from headrace.kafka_options import JAVA_ONLY, LIBRDKAFKA_ONLY, java_from_librdkafka

FILE = "headrace.toml"
PREFIX = "HEADRACE_"
# Variables with our prefix that steer the program itself and are no settings of an app.
NOT_SETTINGS = frozenset({"HEADRACE_DEBUG", "HEADRACE_CACHE", "HEADRACE_CRASH"})


def _setting(default: Any, help: str, *, secret: bool = False) -> Any:
    return field(default=default, metadata={"help": help, "secret": secret}, repr=not secret)


def _table(help: str) -> Any:
    return field(default_factory=dict, metadata={"help": help, "secret": True}, repr=False)


@dataclass(frozen=True)
class Settings:
    """One record of all settings; `folder` is the working folder they were read in."""

    app: str = _setting("app.py", "the app: a Python file, or a folder with an app.py")
    kafka_bootstrap: str = _setting("", "host:port,… of an existing Kafka; empty starts the embedded broker")
    kafka_port: int = _setting(0, "port of the embedded broker; 0 takes a free one and keeps it")
    store_url: str = _setting(
        "", "postgresql://… of an existing store; empty starts the embedded Postgres", secret=True
    )
    postgres_port: int = _setting(0, "port of the embedded Postgres; 0 takes a free one and keeps it")
    mask_salt: str = _setting(
        "", "secret salt of masked fields; empty makes one in .headrace/salt", secret=True
    )
    checkpoint_dir: str = _setting(
        ".headrace/checkpoints", "where Spark keeps checkpoints: a folder or a URL"
    )
    spark_master: str = _setting("local[*]", "the Spark master")
    spark_driver_memory: str = _setting("1g", "memory of the Spark driver")
    shuffle_partitions: int = _setting(0, "state and shuffle partitions; 0 means one for each core")
    trigger_seconds: float = _setting(0.5, "time between the starts of two micro-batches, at least")
    realtime_seconds: float = _setting(
        300.0, "length of a batch of the real-time lane: what may be sent again after a crash"
    )
    publish_seconds: float = _setting(30.0, "deadline for Kafka to commit the records of a micro-batch")
    max_batch: int = _setting(500_000, "largest number of records in a micro-batch of one source")
    alert_keep_days: int = _setting(90, "how long resolved alerts and their events are kept, in days")
    webhook_secret: str = _setting(
        "", "secret that signs webhooks; empty makes one in .headrace/webhook_secret", secret=True
    )
    webhook_attempts: int = _setting(10, "how often a webhook is tried before its event is given up")
    webhook_seconds: float = _setting(10.0, "deadline for a webhook to answer")
    serve_host: str = _setting("127.0.0.1", "address that `headrace serve` listens on")
    serve_port: int = _setting(0, "port of the API and the dashboard; 0 takes a free one and keeps it")
    serve_tokens: str = _setting(
        "", "file with the sha256 of bearer tokens and their roles; empty asks for no token"
    )
    start_seconds: float = _setting(60.0, "deadline for an embedded service to start")
    connect_seconds: float = _setting(10.0, "deadline for an existing Kafka or Postgres to answer")
    webhooks: dict[str, Any] = _table("addresses of webhooks, by the name that alerts give")
    kafka: dict[str, Any] = _table("any client option, passed to librdkafka and to the Java client")
    spark: dict[str, Any] = _table("any spark.* option, passed to the Spark session")
    folder: Path = field(default_factory=Path.cwd, metadata={"internal": True})

    @property
    def state_dir(self) -> Path:
        return self.folder / ".headrace"

    def salt(self) -> str:
        """The salt of masked fields: the given one, else one made once and kept in `.headrace/salt`."""
        return self.mask_salt or kept_secret(self.state_dir / "salt")

    def signing_secret(self) -> str:
        """The secret of webhooks: the given one, else one made once and kept beside the salt."""
        return self.webhook_secret or kept_secret(self.state_dir / "webhook_secret")

    def librdkafka_options(self) -> dict[str, str]:
        """Options of [kafka] and [kafka.librdkafka] for confluent-kafka, without the bootstrap servers."""
        common = {name: value for name, value in self._common().items() if name not in JAVA_ONLY}
        return common | _flat(self.kafka.get("librdkafka", {}))

    def java_kafka_options(self) -> dict[str, str]:
        """Options of [kafka] and [kafka.java] for the Java client, with credentials in Java's own words."""
        common = {name: value for name, value in self._common().items() if name not in LIBRDKAFKA_ONLY}
        return common | java_from_librdkafka(self.librdkafka_options()) | _flat(self.kafka.get("java", {}))

    def spark_options(self) -> dict[str, str]:
        return _flat(self.spark)

    def _common(self) -> dict[str, str]:
        return _flat(
            {name: value for name, value in self.kafka.items() if name not in ("librdkafka", "java")}
        )


def load(folder: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings of a working folder. A name or type that is wrong is an error that says where."""
    folder = (folder or Path.cwd()).absolute()
    values = _from_file(folder / FILE) | _from_environment(os.environ if environ is None else environ)
    return Settings(**values, folder=folder)


def fields() -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(Settings) if not f.metadata.get("internal")]


def kept_secret(file: Path) -> str:
    """A random secret, made on first use and readable by its owner only."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.part-{os.getpid()}")
    try:
        if not file.exists():
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
                stream.write(secrets.token_urlsafe(32))
            # A link fails if another process was first: everybody ends with the same secret.
            os.link(part, file)
    except FileExistsError:
        pass
    finally:
        part.unlink(missing_ok=True)
    return file.read_text().strip()


def _from_file(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text()
        given = tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(file)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        line = re.search(r"at line (\d+)", str(error))
        raise UsageError(
            f"not valid TOML: {error}", where=f"{file}:{line[1]}" if line else str(file)
        ) from error
    return {name: _checked(name, value, f"{file}:{_line_of(name, text)}") for name, value in given.items()}


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    given = {}
    for variable, text in environ.items():
        if variable.startswith(PREFIX) and variable not in NOT_SETTINGS:
            name = variable.removeprefix(PREFIX).lower()
            given[name] = _checked(name, _parsed(name, text), f"environment variable {variable}")
    return given


def _checked(name: str, value: Any, where: str) -> Any:
    known = {f.name: f for f in fields()}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"the settings are: {', '.join(known)}"
        raise UsageError(f"unknown setting '{name}'", where=where, hint=hint)
    wanted = _type_of(known[name])
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        shown = "a secret" if known[name].metadata["secret"] else repr(value)
        raise UsageError(f"'{name}' must be {_NOUN[wanted]}, not {shown}", where=where)
    return value


def _parsed(name: str, text: str) -> Any:
    """The text of an environment variable as its setting's type, or the text itself if it is not one."""
    wanted = next((_type_of(f) for f in fields() if f.name == name), str)
    try:
        return wanted(text) if wanted in (int, float) else text
    except ValueError:
        return text


_NOUN: dict[type, str] = {str: "text", int: "a whole number", float: "a number", dict: "a table"}


def _type_of(f: dataclasses.Field[Any]) -> type:
    return dict if f.default is dataclasses.MISSING else type(f.default)


def _line_of(name: str, text: str) -> int:
    pattern = re.compile(rf"\s*(\[+\s*)?[\"']?{re.escape(name)}[\"']?\s*[=.\]]")
    return next((number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 1)


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """TOML reads an unquoted `a.b = 1` as a table in a table: join the names again."""
    flat: dict[str, str] = {}
    for name, value in table.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: _text(value)}
    return flat


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
