"""Signals: every event of a stream scored against what its key did just before. Frozen values, no Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

from headrace.alerts import TOPIC
from headrace.contracts.durations import parse_duration
from headrace.dimensions import Dimension
from headrace.errors import AppError, UsageError
from headrace.measures import Measure
from headrace.metrics import NAME
from headrace.models import Model
from headrace.windows import MICROSECOND

FeatureKind = Literal[
    "count", "sum", "mean", "distinct", "times_last", "seconds_since_last", "own", "dimension"
]
Publish = Literal["decisions", "all"]
Lane = Literal["normal", "realtime"]
ALLOW = "allow"
REMEMBERED = ("count", "sum", "mean", "distinct")
WITH_MEMORY = (*REMEMBERED, "times_last", "seconds_since_last")
OWN_COLUMNS = (
    *("id", "event_id", "partition", "offset", "event_time", "log_time", "complete"),
    *("score", "decision", "version", "shadow_score", "shadow_decision", "shadow_version", "scored_at"),
)


@dataclass(frozen=True)
class Feature:
    """A number (or a text) about an event; `expression` and `where` are Spark SQL over its fields.

    Of a `dimension` feature, `expression` is the name of the table and its column.
    """

    kind: FeatureKind
    expression: str = ""
    where: str = ""


@dataclass(frozen=True)
class Rule:
    """A score as an SQL expression over the features."""

    expression: str
    version: str


Scorer = Rule | Model
Refuse = Callable[[str, str], AppError]


@dataclass(frozen=True)
class Signals:
    """The features of an event are over those of its key that arrived before it, as far back as `memory`."""

    name: str
    of: str
    key: str
    memory: timedelta
    features: Mapping[str, Feature]
    scorer: Scorer
    decisions: tuple[tuple[str, float], ...]  # the highest threshold first
    where: str = ""
    shadow: Scorer | None = None
    tables: tuple[Dimension, ...] = ()
    activity_by: str = ""
    topic: str = ""
    publish: Publish = "decisions"
    retain: timedelta = timedelta(days=7)
    declared_at: str = ""
    lane: Lane = "normal"

    @property
    def remembers(self) -> bool:
        """Whether any feature looks at earlier events."""
        return any(feature.kind in WITH_MEMORY for feature in self.features.values())

    @property
    def memory_us(self) -> int:
        return self.memory // MICROSECOND

    @property
    def labels(self) -> tuple[str, ...]:
        """The fields of an event that its row shows: the key, and whom suspicious activity is counted for."""
        return tuple(dict.fromkeys((self.key, self.activity_by)))


def times_last(expression: str) -> Feature:
    """How many times the value of the key's last event: 10.0 is ten times as much."""
    return Feature("times_last", expression)


def seconds_since_last() -> Feature:
    return Feature("seconds_since_last")


def rule(expression: str, version: str = "") -> Rule:
    """A score with a version of its own; without one, a digest of the expression names it."""
    digest = hashlib.sha256(" ".join(expression.split()).encode()).hexdigest()[:8]
    return Rule(expression, version or digest)


def make_signals(
    name: str,
    of: str,
    key: str,
    where: str,
    memory: str,
    features: Mapping[str, Feature | Measure | str],
    scorer: Scorer | str | None,
    decision: Mapping[str, float],
    shadow: Scorer | str | None,
    tables: Sequence[Dimension],
    activity_by: str,
    topic: str,
    publish: Publish,
    retain: str,
    declared_at: str,
    lane: Lane = "normal",
) -> Signals:
    """Raises AppError for what is wrong without looking at a contract."""
    what = f"signals '{name}'"

    def refuse(problem: str, hint: str = "") -> AppError:
        return AppError(f"{what}: {problem}", where=declared_at, hint=hint)

    try:
        remembered, kept = parse_duration(memory), parse_duration(retain)
    except UsageError as error:
        raise refuse(error.what, error.hint) from error
    if remembered <= timedelta() or kept <= timedelta():
        raise refuse("memory and retain must be longer than nothing")
    if scorer is None:
        raise refuse("no score", 'score="least(1.0, payments_5m / 10)"')
    if publish not in get_args(Publish):
        raise refuse(f"there is no publish {publish!r}", '"decisions" leaves out what is allowed, or "all"')
    if topic and not TOPIC.fullmatch(topic):
        raise refuse(f"'{topic}' is no name for a topic", "letters, digits, dots, _ and -, at most 200")
    signals = Signals(
        *(name, of, key, remembered, {n: _feature(n, f, tables, refuse) for n, f in features.items()}),
        *(_scorer(scorer), _decisions(decision, refuse), where, _scorer(shadow) if shadow else None),
        tables=tuple(tables),
        activity_by=activity_by or key,
        topic=topic,
        publish=publish,
        retain=kept,
        declared_at=declared_at,
        lane=lane,
    )
    _check_names(signals, refuse)
    return signals


def _scorer(given: Scorer | str) -> Scorer:
    return rule(given) if isinstance(given, str) else given


def _feature(name: str, given: object, tables: Sequence[Dimension], refuse: Refuse) -> Feature:
    if isinstance(given, Feature):
        return given
    if isinstance(given, str):
        of_table = given.partition(".")[0] in [table.name for table in tables]
        return Feature("dimension" if of_table else "own", given)
    if isinstance(given, Measure) and given.kind in REMEMBERED:
        return Feature(given.kind, given.expression, given.where)  # type: ignore[arg-type]
    raise refuse(
        f"'{name}' is no feature",
        "count(), sum_of, mean_of, distinct, times_last, seconds_since_last, or SQL over the event's fields",
    )


def _decisions(given: Mapping[str, float], refuse: Refuse) -> tuple[tuple[str, float], ...]:
    if not given:
        raise refuse("no decision", 'decision={"block": 0.9, "review": 0.6}')
    for decision, threshold in given.items():
        if decision == ALLOW or not NAME.fullmatch(decision):
            raise refuse(f"'{decision}' is no name for a decision", f"'{ALLOW}' is below all thresholds")
        if isinstance(threshold, bool) or not isinstance(threshold, int | float):
            raise refuse(f"the threshold of '{decision}' is no number", "like 0.9")
    if len(set(given.values())) < len(given):
        raise refuse("two decisions have the same threshold", "the higher one wins")
    return tuple(sorted(((d, float(t)) for d, t in given.items()), key=lambda pair: -pair[1]))


def _check_names(signals: Signals, refuse: Refuse) -> None:
    if not signals.features:
        raise refuse("no features", 'features={"payments_5m": count()}')
    for name in (signals.name, *signals.features):
        if not NAME.fullmatch(name):
            raise refuse(
                f"'{name}' is no name", "lower-case letters, digits and _, a letter first: it names a column"
            )
    columns = (*OWN_COLUMNS, *signals.labels, *signals.features)
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice:
        raise refuse(
            f"two columns '{twice}'",
            f"every table has {', '.join((*OWN_COLUMNS, *signals.labels))}: give the feature another name",
        )
