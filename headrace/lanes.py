"""The real-time lane: what signals must be like to run in it. Frozen values, no Spark."""

from __future__ import annotations

from typing import get_args

from headrace.errors import AppError, known_names
from headrace.models import KINDS, Model
from headrace.signals import WITH_MEMORY, Lane, Signals

_NORMAL = 'or leave lane="realtime" out'


def check_lane(signals: Signals) -> None:
    """Raises AppError for the first part that the real-time lane cannot run."""
    what, where = f"signals '{signals.name}'", signals.declared_at
    if signals.lane not in get_args(Lane):
        raise AppError(
            f"{what}: there is no lane {signals.lane!r}",
            where=where,
            hint=known_names(str(signals.lane), get_args(Lane)),
        )
    if signals.lane != "realtime":
        return
    for name, feature in signals.features.items():
        if feature.kind in WITH_MEMORY:
            raise AppError(
                f"{what}, {name}: {feature.kind} looks at earlier events,"
                " and the real-time lane remembers none",
                where=where,
                hint=f"keep what the event itself or a table says, {_NORMAL}",
            )
    for scorer in (signals.scorer, signals.shadow):
        if isinstance(scorer, Model) and KINDS[scorer.file.suffix] != "JSON":
            raise AppError(
                f"{what}, model {scorer.file.name}: the real-time lane runs no artefact of"
                f" {KINDS[scorer.file.suffix]}, which needs Python",
                where=where,
                hint=f"a rule or a JSON artefact becomes SQL, {_NORMAL}",
            )
    if not signals.topic:
        raise AppError(
            f"{what}: the real-time lane writes to a topic, and none is declared",
            where=where,
            hint=f'topic="{signals.name}.v1", {_NORMAL}',
        )
