"""Explaining one number: the events that make it up, those that missed it, and how it came to be.

The row, its revisions and its late events are in the store; the events are read from the validated topic.
The ledger tells which batches can hold them, so only that part of the topic is read. What is found is held
against the row: where it does not fit, the whole topic is read, and what is still missing is said.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from headrace.app import Source
from headrace.connections import Connections, query_name
from headrace.contracts.model import Contract
from headrace.errors import DataError, UsageError
from headrace.log.scan import Range, TopicReader
from headrace.metrics import Metric
from headrace.ops.audit_bounds import FAR
from headrace.ops.explain_events import Judge, Labels, candidates, needs_spark, plain_judge, spark_judge
from headrace.ops.explain_row import RowReader, Spans, StoredRow
from headrace.ops.explanation import Event, Explanation, Missed
from headrace.store.connection import Store
from headrace.store.times import moved
from headrace.views.pane_rows import OTHER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Session = Callable[[], AbstractContextManager["SparkSession"]]
SLACK = timedelta(minutes=1)  # by which the clocks of broker, database and engine may differ
_STORE_SECONDS = 10.0


def explain(
    app: str,
    metric: Metric,
    contract: Contract,
    source: Source,
    connections: Connections,
    window_start: datetime,
    by: Mapping[str, str],
    session: Session,
    *,
    limit: int | None = None,
) -> Explanation:
    """Explain the row of a window and a group; `session` is opened only if an expression needs Spark.

    Raises UsageError for a grouping that the metric does not have, DataError where there is no such row.
    """
    labels = chosen_labels(metric, by)
    if not source.publish:
        raise DataError(
            f"the events of '{contract.name}' are in no topic: its source has publish=False",
            where=source.where,
            hint="explain reads accepted events from the validated topic; publish them to see them",
        )
    rows = RowReader(
        Store(connections.store_url, _STORE_SECONDS), app, query_name(app, contract.name), metric
    )
    row = rows.read(window_start, labels)
    with ExitStack() as stack:
        if needs_spark(contract, metric, tuple(labels)):
            judge = spark_judge(stack.enter_context(session()), contract, metric, tuple(labels))
        else:
            judge = plain_judge(tuple(labels))
        reader = TopicReader(connections.librdkafka)
        reading = _Reading(reader, contract, metric, window_start, labels, row, judge, limit)
        found = reading.found(rows)
    return Explanation(
        metric.name,
        contract.name,
        window_start,
        moved(window_start, metric.window.size),
        labels,
        row.values,
        tuple(found.events),
        found.count,
        found.missed(row, by_group=bool(labels)),
        row.revisions,
        tuple(reading.remarks(found)),
    )


def parse_labels(pairs: Sequence[str]) -> dict[str, str]:
    """From what a command line gives: NAME=LABEL."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, label = pair.partition("=")
        if not (equals and name):
            raise UsageError(f"--by {pair}: not NAME=VALUE", hint="for example --by region=tashkent")
        if name in found:
            raise UsageError(f"--by names '{name}' twice")
        found[name] = label
    return found


def chosen_labels(metric: Metric, by: Mapping[str, str]) -> dict[str, str]:
    """The labels in the order of the metric's own grouping of these names."""
    for grouping in metric.groupings:
        if set(grouping) == set(by):
            return {name: by[name] for name in grouping}
    asked = f"not grouped by {', '.join(by)}" if by else "only grouped"
    known = "; ".join(_option(grouping) for grouping in metric.groupings)
    raise UsageError(f"metric '{metric.name}' is {asked}", hint=f"its groupings are: {known}")


def _option(grouping: Labels) -> str:
    return " ".join(f"--by {name}=…" for name in grouping) or "all (without --by)"


@dataclass
class _Found:
    """What a reading of the topic has found. `late`: by place, its arrival and whether it is of this row."""

    events: list[Event] = field(default_factory=list)
    count: int = 0
    late: dict[tuple[int, int], tuple[datetime, bool]] = field(default_factory=dict)

    def missed(self, row: StoredRow, *, by_group: bool) -> tuple[Missed, ...]:
        """The late events of this row; of a total, also those that have left the topic."""
        placed = [(late, self.late.get((late.partition, late.offset))) for late in row.late]
        return tuple(
            replace(late, arrived=place[0]) if place else late
            for late, place in placed
            if (place[1] if place else not by_group)
        )


@dataclass
class _Reading:
    reader: TopicReader
    contract: Contract
    metric: Metric
    start: datetime
    labels: dict[str, str]
    row: StoredRow
    judge: Judge
    limit: int | None

    def found(self, rows: RowReader) -> _Found:
        self.ends = self.reader.ends(self.contract.topics.validated)
        spans = rows.spans(self._reach(rows), self.row.last_batch)
        part = self._part(spans)
        found = self._read(part, spans)
        if self._agrees(found) or part == self.ends:
            return found
        everything = rows.spans(dict.fromkeys(self.ends, (0, FAR)), self.row.last_batch)
        return self._read(self.ends, everything)

    def remarks(self, found: _Found) -> list[str]:
        """What does not agree, and why as far as one can know."""
        topic, counted = self.contract.topics.validated, self.row.values["events"]
        said = []
        if found.count < counted:
            why = f"they are not in {topic}; headrace audit {self.contract.name} --recount tells more"
            if self.contract.compacted:
                why = f"{topic} keeps only the last event of each key"
            elif any(low > 0 for low, _ in self.ends.values()):
                why = f"retention has removed the beginning of {topic}"
            said.append(f"{counted - found.count} of the row's {counted} events are not listed: {why}")
        elif found.count > counted:
            limits = ", or the limit of groups has changed" if self._is_rest else ""
            said.append(
                f"{found.count} events are listed, the row counts {counted}:"
                f" its definition may have been another one{limits}"
            )
        late, missed = self.row.values["late_events"], len(found.missed(self.row, by_group=bool(self.labels)))
        if unplaced := self._unplaced(found):
            said.append(f"{unplaced} late events of the window have left {topic}: their group is not known")
        elif missed != late:
            said.append(f"{missed} events that missed the window are listed, the row counts {late}")
        return said

    @property
    def _is_rest(self) -> bool:
        return bool(self.labels) and set(self.labels.values()) == {OTHER}

    def _agrees(self, found: _Found) -> bool:
        return found.count == self.row.values["events"] and len(found.late) == len(self.row.late)

    def _unplaced(self, found: _Found) -> int:
        return len(self.row.late) - len(found.late) if self.labels else 0

    def _reach(self, rows: RowReader) -> dict[int, Range]:
        """The raw offsets of the window's events, in time or late."""
        end = moved(self.start, self.metric.window.size)
        if self.metric.window.time == "event":
            reach = rows.reach(self.start, end)
        else:
            topic = self.contract.topics.raw
            ends = self.reader.ends(topic)
            first, after = (self.reader.offsets_at(topic, at, ends) for at in (self.start, end))
            reach = {p: (first[p], after[p]) for p in ends if first[p] < after[p]}
        for late in self.row.late:
            low, high = reach.get(late.partition, (late.offset, late.offset + 1))
            reach[late.partition] = (min(low, late.offset), max(high, late.offset + 1))
        return reach

    def _part(self, spans: Spans) -> dict[int, Range]:
        """Where in the validated topic the batches lie, by the time of their publishing."""
        topic, ends = self.contract.topics.validated, self.ends
        if not spans.ranges or spans.until is None:
            return {}
        after = self.reader.offsets_at(topic, spans.until + SLACK, ends)
        first = {p: low for p, (low, _) in ends.items()}
        if spans.since is not None:
            first = self.reader.offsets_at(topic, spans.since - SLACK, ends)
        return {p: (max(low, first[p]), min(high, after[p])) for p, (low, high) in ends.items()}

    def _read(self, part: Mapping[int, Range], spans: Spans) -> _Found:
        found = _Found()
        late = {(each.partition, each.offset) for each in self.row.late}
        records = self.reader.records(self.contract.topics.validated, part)

        def in_time() -> Iterator[Event]:
            window = candidates(records, self.contract, self.metric, self.start, spans)
            for event, labels in self.judge(window):
                place = (event.partition, event.offset)
                if place in late:
                    found.late[place] = (event.arrived, self._is_mine(labels))
                elif self._is_mine(labels):
                    found.count += 1
                    yield event

        kept = sorted(in_time()) if self.limit is None else heapq.nsmallest(self.limit, in_time())
        found.events = kept
        return found

    def _is_mine(self, labels: Labels) -> bool:
        if self._is_rest:
            return labels not in self.row.own_rows
        return labels == tuple(self.labels.values())
