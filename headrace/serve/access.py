"""Who asks, and what they may see: bearer tokens with roles, and the roles that a contract names.

A stream is classified when one of its fields is confidential or restricted, or masked. With tokens, only the
roles that may read it (the contract's `roles`) see its metrics, dead letters, late events and examples.
Without tokens everybody who reaches the server sees every stream, but never the value of a classified field.
An event id is a field too: where the contract classifies it, it is null for those without the role.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from headrace.contracts.model import Contract, Field
from headrace.errors import UsageError
from headrace.metrics import Metric
from headrace.ops.load import LoadedApp
from headrace.patterns import Pattern
from headrace.serve.problems import Problem

EVERY_ROLE = "*"
CLASSIFIED = ("confidential", "restricted", "secret")
LEVELS = ("public", "internal", "confidential", "restricted", "secret")
# Measures that show single values of events; sums and counts do not.
REVEALING = ("min", "max", "first", "last", "top", "quantiles")
_WORD = re.compile(r"\w+")
_HASH = re.compile(r"[0-9a-f]{64}")

Tokens = Mapping[str, frozenset[str]]  # sha256 of the token, in hex, to its roles


@dataclass(frozen=True)
class Caller:
    """`anonymous` where no tokens are configured."""

    roles: frozenset[str] = frozenset()
    anonymous: bool = True


class Access:
    """What each caller may see of one app."""

    def __init__(self, loaded: LoadedApp, tokens: Tokens | None = None) -> None:
        self._loaded, self._tokens = loaded, tokens

    @property
    def asks_for_tokens(self) -> bool:
        return self._tokens is not None

    def caller(self, authorization: str) -> Caller:
        """Raises a 401 problem for a token that is missing or unknown; it is never repeated or logged."""
        if self._tokens is None:
            return Caller()
        scheme, _, token = authorization.partition(" ")
        roles = self._tokens.get(sha256(token.strip().encode()).hexdigest())
        if scheme.lower() != "bearer" or roles is None:
            detail = "the token is not known" if authorization else "this server asks for a token"
            raise Problem(
                401,
                detail,
                hint="send it as: Authorization: Bearer <token>",
                headers={"WWW-Authenticate": 'Bearer realm="headrace"'},
            )
        return Caller(roles, anonymous=False)

    def sees_stream(self, caller: Caller, stream: str) -> bool:
        contract = self._loaded.contract(stream)
        return caller.anonymous or not is_classified(contract) or holds_role(caller, contract)

    def sees_fields(self, caller: Caller, stream: str) -> bool:
        """Whether the values of classified fields may be shown."""
        contract = self._loaded.contract(stream)
        return not is_classified(contract) or holds_role(caller, contract)

    def sees_ids(self, caller: Caller, stream: str) -> bool:
        """Whether the ids of its events may be shown."""
        contract = self._loaded.contract(stream)
        return contract.event_id not in classified_names(contract) or self.sees_fields(caller, stream)

    def sees_metric(self, caller: Caller, metric: Metric) -> bool:
        if reveals(metric, self._loaded.contract(metric.of)):
            return self.sees_fields(caller, metric.of)
        return self.sees_stream(caller, metric.of)

    def visible_metrics(self, caller: Caller) -> list[Metric]:
        return [m for m in self._loaded.app.metrics.values() if self.sees_metric(caller, m)]

    def visible_patterns(self, caller: Caller) -> list[Pattern]:
        return [p for p in self._loaded.app.patterns.values() if self._sees_pattern(caller, p)]

    def _sees_pattern(self, caller: Caller, pattern: Pattern) -> bool:
        """Its alerts show single values: the key, and the fields that the declaration names."""
        if classified_names(self._loaded.contract(pattern.of)) & {*pattern.key, *pattern.show}:
            return self.sees_fields(caller, pattern.of)
        return self.sees_stream(caller, pattern.of)

    def refusal(self, stream: str) -> Problem:
        roles = ", ".join(sorted(reading_roles(self._loaded.contract(stream)))) or "nobody"
        return Problem(403, f"'{stream}' is classified", hint=f"its contract lets these roles read: {roles}")


async def caller_of(request: Request) -> Caller:
    access: Access = request.app.state.access
    return access.caller(request.headers.get("authorization", ""))


Asking = Annotated[Caller, Depends(caller_of)]


def read_tokens(file: Path) -> Tokens:
    """A TOML file with a line for each token: its sha256 in hex, and its roles."""
    try:
        given = tomllib.loads(file.read_text())
    except OSError as error:
        raise UsageError(f"the tokens cannot be read: {error.strerror}", where=str(file)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # The parser's own words could repeat a secret.
        raise UsageError("the tokens are not valid TOML", where=str(file), hint=_LINE) from None
    for number, (digest, roles) in enumerate(given.items(), 1):
        if not _HASH.fullmatch(digest):
            raise UsageError(f"entry {number} is not the sha256 of a token", where=str(file), hint=_LINE)
        if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
            raise UsageError(f"entry {number} has no list of roles", where=str(file), hint=_LINE)
    if not given:
        raise UsageError("there is no token in it", where=str(file), hint=_LINE)
    return {digest: frozenset(roles) for digest, roles in given.items()}


_LINE = '"<sha256 of the token, 64 hex digits>" = ["analyst"]'


def is_classified(contract: Contract) -> bool:
    return any(is_classified_field(field) for field in every_field(contract))


def is_classified_field(field: Field) -> bool:
    return field.mask is not None or field.classification.lower() in CLASSIFIED


def classified_names(contract: Contract) -> set[str]:
    """Of the fields that may be shown alone: those inside of others never are."""
    return {field.name for field in contract.fields if is_classified_field(field)}


def classification_of(contract: Contract) -> str:
    """The highest classification of its fields."""
    named = {field.classification.lower() for field in every_field(contract)}
    known = [level for level in LEVELS if level in named]
    return known[-1] if known else "none"


def reveals(metric: Metric, contract: Contract) -> bool:
    """Whether a metric shows single values of classified fields, in its dimensions or its measures."""
    used = set(metric.dimensions)
    for measure in metric.measures.values():
        if measure.kind in REVEALING:
            used |= set(_WORD.findall(measure.expression))
    return bool(used & classified_names(contract))


def reading_roles(contract: Contract) -> set[str]:
    return {role.name for role in contract.roles if "read" in role.access.lower()}


def holds_role(caller: Caller, contract: Contract) -> bool:
    return EVERY_ROLE in caller.roles or bool(caller.roles & reading_roles(contract))


def every_field(contract: Contract) -> Iterator[Field]:
    todo = list(contract.fields)
    while todo:
        field = todo.pop()
        yield field
        todo += [*field.type.fields, *([field.type.element] if field.type.element else [])]
