"""Check that an existing Kafka or Postgres answers, and say what to do if it does not."""

from __future__ import annotations

import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from headrace.errors import ServiceError


def check_kafka(bootstrap: str, options: Mapping[str, str], seconds: float) -> None:
    """One metadata request; its failure names the broker and librdkafka's reason."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    reasons: list[str] = []
    until = time.monotonic() + seconds
    try:
        admin = AdminClient(
            {**options, "bootstrap.servers": bootstrap, "log_level": "0"},
            error_cb=lambda error: reasons.append(error.str()),
        )
        while True:
            try:
                admin.list_topics(timeout=1)
                return
            except KafkaException:
                admin.poll(0)
                if time.monotonic() > until:
                    raise
    except KafkaException as error:
        reason = reasons[0] if reasons else error.args[0].str()
        raise ServiceError(
            f"Kafka at {bootstrap} did not answer in {seconds:.0f} s: {reason}",
            hint="check kafka_bootstrap and the [kafka] options, and that the broker runs; "
            "leave kafka_bootstrap out to use the embedded broker",
        ) from error


def check_postgres(url: str, seconds: float) -> None:
    """One query, tried until the deadline: a database may still be starting."""
    import psycopg

    until = time.monotonic() + seconds
    while True:
        try:
            with psycopg.connect(url, connect_timeout=max(2, int(until - time.monotonic()))) as connection:
                connection.execute("select 1")
            return
        except psycopg.Error as error:
            if "starting up" in str(error) and time.monotonic() < until:
                time.sleep(0.1)
                continue
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ServiceError(
                f"Postgres at {shown(url)} cannot be used: {reason}",
                hint="check store_url (postgresql://user:password@host:port/database) and the server; "
                "leave store_url out to use the embedded Postgres",
            ) from error


def shown(url: str) -> str:
    """A database URL without its user, password and options."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.hostname or 'localhost'}{port}{parts.path}"
