"""The audit: every record that was read has exactly one fate, and the log, the ledger and the topics agree.

The ledger is checked against itself and against the broker's offsets. A recount reads the raw topic and the
three output topics once more and judges every record again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from headrace.app import Source
from headrace.connections import Connections, query_name
from headrace.contracts.model import Contract
from headrace.errors import DataError
from headrace.log.scan import Range, TopicReader
from headrace.ops.audit_bounds import Bounds
from headrace.ops.audit_flows import flow_findings
from headrace.ops.audit_lanes import LaneReader
from headrace.ops.audit_ledger import LedgerReader, LedgerView, PartitionRows
from headrace.ops.audit_metrics import metric_findings
from headrace.ops.audit_outboxes import outbox_findings
from headrace.ops.audit_report import (
    AuditReport,
    Fates,
    Finding,
    LaneAudit,
    OutboxAudit,
    PartitionAudit,
    RecountReport,
    shown_ranges,
)
from headrace.ops.claims import Claims
from headrace.ops.pipeline_lanes import LaneNotes
from headrace.ops.recount import Recount, differences
from headrace.ops.recount_flows import FlowRecount
from headrace.ops.recount_lanes import LaneRecount
from headrace.signals import Signals
from headrace.store.connection import Store

Progress = Callable[[int, int], None]  # records read, records to read
_TICK = 5_000
_STORE_SECONDS = 10.0


def audit_source(
    app: str,
    contract: Contract,
    source: Source,
    connections: Connections,
    *,
    bounds: Bounds | None = None,
    metrics: Collection[str] = (),
    flows: Collection[str] | None = None,
    enriched: Mapping[str, Collection[str]] | None = None,
    lane: Sequence[Signals] = (),
    recount: bool = False,
    on_progress: Progress | None = None,
) -> AuditReport:
    """Audit one source. Works while the gate runs: what it has not recorded yet is pending, not missing.

    `metrics` and `flows` are the declared ones: their accounts must reach to the last batch. If `flows` is
    None, those of all flows must that ever took an event. `enriched` are the topics of enrichments by their
    names, and `lane` the signals in the real-time lane: a recount reads their topics.
    Raises DataError where the ledger holds nothing about the source or the range.
    """
    audit = _Audit(app, contract, source, connections, bounds or Bounds(), metrics, flows)
    return audit.report(recount, on_progress, enriched or {}, lane)


class _Audit:
    def __init__(
        self,
        app: str,
        contract: Contract,
        source: Source,
        connections: Connections,
        bounds: Bounds,
        metrics: Collection[str],
        flows: Collection[str] | None,
    ) -> None:
        self.contract, self.source, self.topic = contract, source, contract.topics.raw
        self.query = query_name(app, contract.name)
        self.reader = TopicReader(connections.librdkafka)
        store = Store(connections.store_url, _STORE_SECONDS)
        self.ledger, self.lane = LedgerReader(store, self.query), LaneReader(store, app, contract.name)
        # In this order: a position is committed after the ledger, the ledger after the outputs, and these
        # after the raw records. So each is complete as seen from the one before, also while a gate runs.
        ends = self.reader.ends(self.topic)
        self.ranges = bounds.ranges(self.reader, self.topic, ends)
        self.positions = self.reader.group_positions(self.topic, f"headrace.{self.query}", list(ends))
        self.view = self._looked_up(bounds, metrics, flows)
        self.outputs = {topic: self.reader.ends(topic) for topic in contract.topics.outputs}
        self.ends = self.reader.ends(self.topic)

    def report(
        self,
        recount: bool,
        on_progress: Progress | None,
        enriched: Mapping[str, Collection[str]],
        lane: Sequence[Signals],
    ) -> AuditReport:
        findings: list[Finding] = []
        audits = []
        for partition, span in self.ranges.items():
            holes = list(self._holes(partition, span))
            findings += holes
            findings += self._contradictions(partition)
            audits.append(self._partition(partition, sum(f.count for f in holes)))
        findings += self._wrong_batches()
        findings += metric_findings(self.topic, self.view.metrics)
        findings += flow_findings(self.topic, self.view.flows)
        recounted, outboxes = None, self.view.outboxes
        lanes: tuple[LaneAudit, ...] = ()
        if recount:
            recounted, found, outboxes, lanes = self._recount(on_progress, enriched, lane)
            findings += found
        findings += outbox_findings(outboxes)
        return AuditReport(
            self.contract.name,
            self.query,
            self.view.batches,
            tuple(audits),
            tuple(findings),
            recounted,
            self.view.metrics,
            self.view.flows,
            outboxes,
            lanes,
        )

    def _looked_up(
        self, bounds: Bounds, metrics: Collection[str], flows: Collection[str] | None
    ) -> LedgerView:
        view = self.ledger.view(self.ranges, metrics, flows)
        if view.empty and not self.positions:
            raise DataError(
                f"the ledger holds nothing about {self.query}",
                hint="the gate writes it while it runs: headrace run",
            )
        if not view.rows and not bounds.everything:
            known = ", ".join(f"{p}:{end}" for p, end in sorted(view.next_offsets.items()))
            raise DataError("no batch of the ledger is in this range", hint=f"the ledger ends at {known}")
        return view

    def _next_offset(self, partition: int) -> int:
        """The end that was recorded with the last batch, or the later one that the query has passed."""
        return max(self.view.next_offsets.get(partition, 0), self.positions.get(partition, 0))

    def _partition(self, partition: int, gap: int) -> PartitionAudit:
        rows = self.view.rows.get(partition)
        low, high = self.ends.get(partition, (0, 0))
        after = max(self._next_offset(partition), low, rows.end_offset if rows else 0)
        first, end = (rows.first_offset, rows.end_offset) if rows else (after, after)
        return PartitionAudit(
            partition, first, end, rows.fates if rows else Fates(), gap, max(0, high - after)
        )

    def _holes(self, partition: int, span: Range) -> Iterator[Finding]:
        """Where records lie that no row covers; offsets without records (of transactions) are no hole."""
        rows = self.view.rows.get(partition)
        low = self.ends[partition][0]
        begin, end = max(low, span[0]), min(self._next_offset(partition), span[1])
        for first, after in _uncovered(rows, begin, end):
            kept = range(max(first, low), after)
            offsets = [r.offset for r in self.reader.records(self.topic, {partition: (kept.start, after)})]
            # What has left the log cannot be counted: each of its offsets may have been a record.
            gone = range(first, min(after, low))
            if offsets or gone:
                shown = shown_ranges([*gone, *offsets])
                yield Finding("gap", self.topic, partition, len(gone) + len(offsets), shown)

    def _contradictions(self, partition: int) -> Iterator[Finding]:
        rows = self.view.rows.get(partition)
        if rows is None:
            return
        for before, first, end in rows.breaks:
            if before > first:
                last = min(before, end) - 1
                yield Finding("overlap", self.topic, partition, last - first + 1, ((first, last),))
        for batch, first, end, received in rows.wrong:
            note = (
                f"batch {batch}: received {received} is not the sum of its fates, or not within its offsets"
            )
            yield Finding("identity", self.topic, partition, end - first, ((first, end - 1),), note)

    def _wrong_batches(self) -> Iterator[Finding]:
        for b in self.view.wrong_batches:
            if b.dropped:
                note = f"batch {b.batch_id}: Spark dropped {b.dropped} rows"
                yield Finding("dropped", self.topic, -1, b.dropped, note=note)
            if b.received != b.received_in_ledger:
                note = f"batch {b.batch_id}: received {b.received}, its rows say {b.received_in_ledger}"
                yield Finding("batch", self.topic, -1, abs(b.received - b.received_in_ledger), note=note)
            if b.duplicates != b.duplicates_in_ledger:
                said = f"its rows say {b.duplicates_in_ledger}"
                note = f"batch {b.batch_id}: Spark counted {b.duplicates} duplicates, {said}"
                yield Finding("batch", self.topic, -1, abs(b.duplicates - b.duplicates_in_ledger), note=note)

    def _recount(
        self,
        on_progress: Progress | None,
        enriched: Mapping[str, Collection[str]],
        lane: Sequence[Signals],
    ) -> tuple[RecountReport, list[Finding], tuple[OutboxAudit, ...], tuple[LaneAudit, ...]]:
        starts = {
            p: start
            for p, rows in self.view.rows.items()
            if (start := self.ledger.start_at(p, max(rows.first_offset, self.ends[p][0]), rows.end_offset))
        }
        ranges = {p: (start.offset, self.view.rows[p].end_offset) for p, start in starts.items()}
        recorded = {p: self._next_offset(p) for p in self.ends}
        highs = {p: high for p, (_, high) in self.ends.items()}
        claims = Claims(ranges, recorded, highs, self.contract.topics)
        notes = self.lane.notes() if lane else LaneNotes({}, {})
        in_lane = LaneRecount(self.reader, claims, self.contract, lane, notes)
        spans = [*ranges.values(), *(s for of_topic in self.outputs.values() for s in of_topic.values())]
        step = _Steps(on_progress, in_lane.total + sum(end - first for first, end in spans))
        claims.read(self.reader, self.outputs, step)
        in_lane.read(step)
        clocks = {p: start.clock for p, start in starts.items()}
        recount = Recount(self.contract, claims, clocks, publish=self.source.publish, on_event=in_lane.prove)
        recount.read(self.reader, {p: low for p, (low, _) in self.ends.items()}, step)
        step.finish()
        report = RecountReport(
            recount.fates, claims.published, claims.in_flight, recount.unproven, recount.unjudged
        )
        findings = claims.offenders.findings()
        if not (self.contract.compacted or recount.unjudged):
            findings += self._differences(ranges, recount)
        flows = FlowRecount(self.reader, claims)
        for name, topics in enriched.items():
            waiting = next((f.outcomes.get("pending", 0) for f in self.view.flows if f.flow == name), 0)
            waiting += sum(box.waiting for box in self.view.outboxes if box.topic in topics)
            since = self.ledger.first_offsets(f"enrich.{name}")
            sums = None if self.source.publish else self.ledger.sums
            findings += flows.enriched(self.topic, topics, since, waiting, sums)
        lanes = []
        for signals in lane:
            audit, found = self.lane.audit(in_lane, signals, ranges)
            lanes.append(audit)
            findings += found
        # An enriched event is the same whichever way it came: its topics have been read above.
        apart = {topic for topics in enriched.values() for topic in topics}
        outboxes = flows.outboxes(self.view.outboxes, self.ledger.outboxes, apart)
        return report, findings, outboxes, tuple(lanes)

    def _differences(self, ranges: Mapping[int, Range], recount: Recount) -> Iterator[Finding]:
        for partition, count, note in differences(self.ledger.sums(ranges), recount):
            yield Finding("count", self.topic, partition, count, note=note)


def _uncovered(rows: PartitionRows | None, begin: int, end: int) -> Iterator[Range]:
    """The ranges between begin and end that no row of the ledger covers."""
    if rows is None:
        holes = [(begin, end)]
    else:
        holes = [(begin, rows.first_offset), *((a, b) for a, b, _ in rows.breaks), (rows.end_offset, end)]
    return ((first, after) for first, after in holes if first < after)


class _Steps:
    """Counts records, and tells now and then."""

    def __init__(self, tell: Progress | None, total: int) -> None:
        self._tell, self._total, self._done = tell, total, 0

    def __call__(self) -> None:
        self._done += 1
        if self._tell and self._done % _TICK == 0:
            self._tell(self._done, self._total)

    def finish(self) -> None:
        if self._tell:
            self._tell(self._total, self._total)
