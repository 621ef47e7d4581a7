"""An alert: a threshold on a metric with a name. Frozen values; checking against its metric happens later."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, get_args

from headrace.errors import AppError, known_names
from headrace.metrics import NAME

State = Literal["preliminary", "final"]
Severity = Literal["info", "warning", "critical"]
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,200}")
MOST_WINDOWS = 1000
_NUMBER = re.compile(r"-?[0-9]{1,100}(\.[0-9]{1,100})?")
MISSING = "-"


@dataclass(frozen=True)
class Alert:
    """Opens for a group when `windows` windows in a row satisfy `when`; the first that does not ends it."""

    name: str
    metric: str
    when: str
    by: tuple[str, ...] = ()
    windows: int = 1
    state: State = "preliminary"  # how sure a window must be to count
    severity: Severity = "warning"
    topic: str = ""
    message: str = ""
    runbook: str = ""
    webhook: str = ""  # a name in the setting `webhooks`
    declared_at: str = ""


def make_alert(
    name: str,
    metric: str,
    when: str,
    by: Sequence[str],
    windows: int,
    state: State,
    severity: Severity,
    topic: str,
    message: str,
    runbook: str,
    webhook: str,
    declared_at: str,
) -> Alert:
    """Raises AppError for what is wrong without looking at the metric."""
    what = f"alert '{name}'"
    if isinstance(by, str) or not all(isinstance(label, str) for label in by):
        raise AppError(f"{what}: by is a list of names", where=declared_at, hint='by=["region"]')
    alert = Alert(
        *(name, metric, when, tuple(by), windows, state, severity),
        *(topic, message or f"{name}: {_doubled(when)}", runbook, webhook, declared_at),
    )
    if not NAME.fullmatch(name):
        raise AppError(
            f"'{name}' is no name for an alert",
            where=declared_at,
            hint="lower-case letters, digits and _, a letter first",
        )
    if not when.strip():
        raise AppError(f"{what} has no condition", where=declared_at, hint='when="error_rate > 0.05"')
    if type(windows) is not int or not 1 <= windows <= MOST_WINDOWS:
        raise AppError(
            f"{what}: windows is a whole number from 1 to {MOST_WINDOWS}, not {windows!r}", where=declared_at
        )
    for option, value, known in (("state", state, State), ("severity", severity, Severity)):
        if value not in get_args(known):
            hint = known_names(str(value), get_args(known))
            raise AppError(f"{what}: there is no {option} {value!r}", where=declared_at, hint=hint)
    if topic and not TOPIC.fullmatch(topic):
        raise AppError(
            f"{what}: '{topic}' is no name for a topic",
            where=declared_at,
            hint="letters, digits, dots, _ and -, at most 200 of them",
        )
    if webhook and not NAME.fullmatch(webhook):
        raise AppError(
            f"{what}: webhook is the name of an address in the settings",
            where=declared_at,
            hint='webhook="oncall", and in headrace.toml: [webhooks] oncall = "https://…"',
        )
    for _ in message_fields(alert):
        pass
    return alert


def message_fields(alert: Alert) -> Iterator[str]:
    """The names that the message shows; raises AppError where it cannot be read."""
    what = f"alert '{alert.name}', message"
    try:
        for _, field, form, conversion in string.Formatter().parse(alert.message):
            if field is None:
                continue
            if not field.isidentifier() or conversion or "{" in (form or ""):
                raise ValueError(f"'{{{field}}}' is not a name")
            if all(_formatted(value, form or "") is None for value in (1, 1.5, "text")):
                raise ValueError(f"'{form}' is no format")
            yield field
    except ValueError as error:
        hint = 'write it like "conversion in {region} is {conversion_rate:.2%}"; {{ is a brace'
        raise AppError(f"{what}: {error}", where=alert.declared_at, hint=hint) from error


def written_message(alert: Alert, known: Mapping[str, Any]) -> str:
    """The message with the values of one window; a value that a format does not fit is shown as it is."""
    parts = []
    for text, field, form, _ in string.Formatter().parse(alert.message):
        parts.append(text)
        if field is not None:
            value = known.get(field)
            shown = MISSING if value is None else _formatted(value, form or "")
            parts.append(str(value) if shown is None else shown)
    return "".join(parts)


def _formatted(value: Any, form: str) -> str | None:
    """A text that is a number is formatted like one: decimals are text in documents."""
    number = form and isinstance(value, str) and _NUMBER.fullmatch(value)
    try:
        return format((Decimal(value) if "." in value else int(value)) if number else value, form)
    except (ValueError, TypeError):
        return None


def _doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
