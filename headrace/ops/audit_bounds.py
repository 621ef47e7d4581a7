"""Which part of the log an audit looks at: offsets by partition, or log time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headrace.errors import UsageError
from headrace.log.scan import Range, TopicReader

FAR = 2**62


@dataclass(frozen=True)
class Bounds:
    """Empty bounds mean everything. The end is exclusive; the ledger widens a range to whole batches."""

    start: Mapping[int, int] = field(default_factory=dict)
    end: Mapping[int, int] = field(default_factory=dict)
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        if (self.start or self.end) and (self.since or self.until):
            raise UsageError("a range is given in offsets or in time, not in both")
        for partition in self.start.keys() & self.end.keys():
            if self.start[partition] >= self.end[partition]:
                raise UsageError(
                    f"the range of partition {partition} is empty:"
                    f" {self.start[partition]} is not before {self.end[partition]}"
                )
        if self.since and self.until and self.since >= self.until:
            raise UsageError(
                f"the range is empty: {self.since.isoformat()} is not before {self.until.isoformat()}"
            )

    @property
    def everything(self) -> bool:
        return not (self.start or self.end or self.since or self.until)

    def ranges(self, reader: TopicReader, topic: str, ends: Mapping[int, Range]) -> dict[int, Range]:
        """The bounds as offsets of every partition; partitions that offsets do not name are left out."""
        if unknown := sorted({*self.start, *self.end} - set(ends)):
            raise UsageError(
                f"{topic} has no partition {unknown[0]}", hint=f"it has partitions 0 to {len(ends) - 1}"
            )
        start, end = dict(self.start), dict(self.end)
        if self.since:
            start = reader.offsets_at(topic, self.since, ends)
        if self.until:
            end = reader.offsets_at(topic, self.until, ends)
        named = {*self.start, *self.end} or set(ends)
        return {p: (start.get(p, 0), end.get(p, FAR)) for p in sorted(named)}


def parse_bounds(
    start: Sequence[str], end: Sequence[str], since: str | None = None, until: str | None = None
) -> Bounds:
    """Bounds from what a command line gives: PARTITION:OFFSET pairs, ISO times."""
    return Bounds(
        _offsets(start, "--from-offset"),
        _offsets(end, "--to-offset"),
        parse_moment(since, "--since") if since is not None else None,
        parse_moment(until, "--until") if until is not None else None,
    )


def _offsets(pairs: Sequence[str], option: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for pair in pairs:
        partition, colon, offset = pair.partition(":")
        if not (colon and partition.isdecimal() and offset.isdecimal()):
            raise UsageError(f"{option} {pair}: not PARTITION:OFFSET", hint=f"for example {option} 0:12000")
        if int(partition) in found:
            raise UsageError(f"{option} names partition {partition} twice")
        found[int(partition)] = int(offset)
    return found


def parse_moment(text: str, option: str) -> datetime:
    """An ISO time, UTC if it names no zone; raises UsageError that names the option."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{option} {text}: not an ISO time", hint=f"for example {option} 2026-03-01T09:00:00Z"
        ) from None
