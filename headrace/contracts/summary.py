"""A contract in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.contracts.durations import format_duration
from headrace.contracts.field_changes import mask_name, type_name
from headrace.contracts.model import Contract, Field, Rules
from headrace.contracts.problems import shown
from headrace.contracts.topics import topic_configs


def check_line(contract: Contract) -> str:
    """One line per contract: enough to see that the right file was read."""
    topics = ", ".join((contract.topics.raw, *contract.topics.outputs))
    count = len(contract.fields)
    return f"{shown(contract.file)}: {contract.name} {contract.version}, {count} fields, topics {topics}"


def summary(contract: Contract) -> str:
    facts = [
        ("owner", contract.owner or "nobody"),
        ("status", contract.status),
        ("event id", contract.event_id),
        ("event time", contract.event_time),
        ("key", contract.key),
        ("lateness", format_duration(contract.lateness)),
        ("future skew", format_duration(contract.max_future_skew)),
        ("dedupe horizon", format_duration(contract.dedupe_horizon)),
        ("idle after", format_duration(contract.idle_after)),
        ("retention", format_duration(contract.retention) + (", compacted" if contract.compacted else "")),
        *_promises(contract),
        ("roles", ", ".join(f"{role.name} ({role.access})" for role in contract.roles) or "none"),
    ]
    lines = [f"{contract.name} {contract.version}"]
    lines += [contract.description] if contract.description else []
    lines += ["", *(f"  {name:<15} {value}" for name, value in facts), "", "fields"]
    lines += _aligned(_field_rows(contract.fields))
    masked = [(path, mask_name(field.mask)) for path, field in _walk(contract.fields) if field.mask]
    lines += ["", "masked in every output", *_aligned(masked)] if masked else ["", "no field is masked"]
    lines += ["", "topics", *_aligned(_topic_rows(contract))]
    return "\n".join(lines)


def _promises(contract: Contract) -> list[tuple[str, str]]:
    promised = [
        (name, format_duration(duration))
        for name, duration in (("freshness", contract.freshness), ("latency", contract.latency))
        if duration is not None
    ]
    if contract.error_rate is not None:
        promised.append(("error rate", f"{contract.error_rate * 100:g} percent"))
    return promised


def _walk(fields: Iterable[Field], parent: str = "") -> Iterator[tuple[str, Field]]:
    for field in fields:
        yield parent + field.name, field
        yield from _walk_inside(field, parent + field.name)


def _walk_inside(field: Field, path: str) -> Iterator[tuple[str, Field]]:
    yield from _walk(field.type.fields, f"{path}.")
    if field.type.element:
        inner = path + ("[]" if field.type.kind == "array" else "{}")
        yield inner, field.type.element
        yield from _walk_inside(field.type.element, inner)


def _field_rows(fields: Iterable[Field]) -> list[tuple[str, ...]]:
    return [
        (path, type_name(field.type), "required" if field.required else "optional", _rules_text(field.rules))
        for path, field in _walk(fields)
    ]


def _topic_rows(contract: Contract) -> list[tuple[str, ...]]:
    return [
        (topic, f"{asked.partitions} partitions", ", ".join(f"{k}={v}" for k, v in asked.config.items()))
        for topic, asked in topic_configs(contract).items()
    ]


def _rules_text(rules: Rules) -> str:
    said = [
        "one of " + ", ".join(rules.enum) if rules.enum is not None else "",
        f"matches {rules.pattern}" if rules.pattern is not None else "",
        f">= {rules.minimum}" if rules.minimum is not None else "",
        f"> {rules.exclusive_minimum}" if rules.exclusive_minimum is not None else "",
        f"<= {rules.maximum}" if rules.maximum is not None else "",
        f"< {rules.exclusive_maximum}" if rules.exclusive_maximum is not None else "",
        f"length >= {rules.min_length}" if rules.min_length is not None else "",
        f"length <= {rules.max_length}" if rules.max_length is not None else "",
    ]
    return "; ".join(part for part in said if part)


def _aligned(rows: Iterable[tuple[str, ...]]) -> list[str]:
    rows = list(rows)
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
