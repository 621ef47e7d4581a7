"""The catalogue: every stream with its contract, as others may read it."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import yaml

from headrace.contracts.durations import format_duration
from headrace.contracts.json_schema import json_schema
from headrace.contracts.model import Contract
from headrace.ops.load import LoadedApp
from headrace.serve.access import classification_of, is_classified, reading_roles


def catalogue(loaded: LoadedApp) -> list[dict[str, Any]]:
    return [_entry(loaded, loaded.contracts[name]) for name in sorted(loaded.contracts)]


def contract_document(contract: Contract, *, examples: bool) -> Any:
    """The ODCS file as JSON; without `examples` where the caller may not see the stream's values."""
    document = _plain(yaml.safe_load(contract.file.read_text()))
    return document if examples else _without_examples(document)


def schema_document(contract: Contract, *, examples: bool) -> Any:
    document = json_schema(contract)
    return document if examples else _without_examples(document)


def _entry(loaded: LoadedApp, contract: Contract) -> dict[str, Any]:
    topics = contract.topics
    return {
        "name": contract.name,
        "description": contract.description,
        "owner": contract.owner,
        "version": contract.version,
        "status": contract.status,
        "classification": classification_of(contract),
        "classified": is_classified(contract),
        "roles": sorted(reading_roles(contract)),
        "topics": {
            "raw": topics.raw,
            "validated": topics.validated,
            "invalid": topics.invalid,
            "late": topics.late,
        },
        "partitions": contract.partitions,
        "publishes": loaded.source(contract.name).publish,
        "event_id": contract.event_id,
        "event_time": contract.event_time,
        "key": contract.key,
        "lateness": format_duration(contract.lateness),
        "idle_after": format_duration(contract.idle_after),
        "retention": format_duration(contract.retention),
        "slo": _objectives(contract),
        "metrics": [metric.name for metric in loaded.metrics_of(contract.name)],
    }


def _objectives(contract: Contract) -> dict[str, float | None]:
    freshness, latency = getattr(contract, "freshness", None), getattr(contract, "latency", None)
    return {
        "freshness_seconds": freshness.total_seconds() if freshness else None,
        "latency_seconds": latency.total_seconds() if latency else None,
        "error_rate": getattr(contract, "error_rate", None),
    }


def _without_examples(document: Any) -> Any:
    """Examples and defaults are values; everything else is a description."""
    if isinstance(document, dict):
        return {k: _without_examples(v) for k, v in document.items() if k not in ("examples", "default")}
    if isinstance(document, list):
        return [_without_examples(item) for item in document]
    return document


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return value
