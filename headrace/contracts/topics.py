"""The Kafka topics that a contract asks for. Knows names and settings, not Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from headrace.contracts.model import Contract

# Somebody has to look at these by hand, and takes a holiday now and then.
_KEPT_FOR_REPAIR = timedelta(days=14)
# An output carries the original bytes and more headers: what just fitted the raw topic must fit here.
_OUTPUT_MAX_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True)
class TopicConfig:
    partitions: int
    config: dict[str, str]


def topic_configs(contract: Contract) -> dict[str, TopicConfig]:
    """Every topic of the stream with its partition count and its settings."""
    topics = contract.topics
    policy = "compact" if contract.compacted else "delete"
    repair = max(contract.retention, _KEPT_FOR_REPAIR)
    output = {"max.message.bytes": str(_OUTPUT_MAX_BYTES)}
    # The clocks are judged against the time of arrival, so the broker stamps it and no producer can.
    raw = _kept(contract.retention, policy) | {"message.timestamp.type": "LogAppendTime"}
    settings = {
        topics.raw: raw,
        topics.validated: _kept(contract.retention, policy) | output,
        topics.invalid: _kept(repair, "delete") | output,
        topics.late: _kept(repair, "delete") | output,
    }
    return {topic: TopicConfig(contract.partitions, config) for topic, config in settings.items()}


def _kept(retention: timedelta, policy: str) -> dict[str, str]:
    return {"cleanup.policy": policy, "retention.ms": str(retention // timedelta(milliseconds=1))}
