"""Where an app finds its log and its store, and the names under which its gates are known there."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Connections:
    """The log and the store of one app."""

    bootstrap: str
    kafka: dict[str, str] = field(repr=False)  # librdkafka's options
    java_kafka: dict[str, str] = field(repr=False)
    store_url: str = field(repr=False)

    @property
    def librdkafka(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self.bootstrap,
            # What matters comes back as an error or a delivery report: the library's own lines repeat it.
            "log_level": "2",
            # A broker that is back is noticed within a second, as Java's clients do; the library takes ten.
            "reconnect.backoff.max.ms": "1000",
            **self.kafka,
        }

    @property
    def java(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap, **self.java_kafka}


def query_name(app: str, stream: str) -> str:
    """The identity of a stream's gate: checkpoint, ledger, markers and consumer group have this name."""
    return f"{app}.{stream}"


def lane_query_name(app: str, stream: str) -> str:
    """The identity of a stream's real-time lane."""
    return f"{query_name(app, stream)}.realtime"
