"""What a windowed metric must say, recomputed one event at a time in plain Python.

It shares no code with the metrics and no idea with their implementation: every row keeps all its events and
is measured at the end. Times are microseconds since 1970. A test hands both the same accepted events, in the
same batches, and compares.

Where the rules leave a choice, the oracle chooses:
- sums, means and variances are exact fractions, `distinct` is the exact number, `quantiles` are all values in
  order and `top` is every item with its count: the test knows how far an estimate may be off;
- a row without events has the count 0 and null for every other measure; in a row with events, `distinct`,
  `quantiles` and `top` of no value at all are 0, [] and {};
- a filtered event moves the clock of its partition, as every accepted event does;
- an event that misses a window is one row of the late ledger, however many groupings there are;
- every silence stands for itself: two short ones do not add up to a long one;
- with a trigger, a row is what readers see: what it was when the watermark last passed a multiple of the
  trigger, or when its own state last moved; none before that. Who misses a final row is seen at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, NamedTuple

Kind = Literal[
    "count", "sum", "min", "max", "mean", "variance", "distinct", "quantiles", "top", "first", "last"
]
State = Literal["open", "preliminary", "corrected", "final"]
Reason = Literal["late", "idle_wake"]
Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Event:
    partition: int
    offset: int
    event_id: str
    event_time: int
    log_time: int
    fields: Fields = field(default_factory=dict)


@dataclass(frozen=True)
class MeasureSpec:
    kind: Kind
    value: Callable[[Fields], Any] | None = None  # only a count can do without
    where: Callable[[Fields], bool | None] | None = None
    n: int | None = None  # of `top`; for the test's comparison, the oracle returns all
    probabilities: tuple[float, ...] = ()  # of `quantiles`; likewise

    def __post_init__(self) -> None:
        if self.value is None and self.kind != "count":
            raise ValueError(f"a measure of kind {self.kind} needs a value")


@dataclass(frozen=True)
class MetricSpec:
    size: int
    hop: int
    groupings: tuple[tuple[str, ...], ...]
    measures: Mapping[str, MeasureSpec]
    preliminary_after: int
    final_after: int
    where: Callable[[Fields], bool | None] | None = None
    trigger: int | None = None

    def __post_init__(self) -> None:
        if self.hop <= 0 or self.size <= 0 or self.size % self.hop:
            raise ValueError(f"hop {self.hop} does not divide size {self.size}")


class RowKey(NamedTuple):
    window_start: int
    window_end: int
    grouping: tuple[str, ...]
    dimensions: tuple[Any, ...]


@dataclass(frozen=True)
class Row:
    events: int
    late_events: int
    state: State
    revision: int
    values: dict[str, Any]


class Late(NamedTuple):
    """One event that missed one window."""

    event_id: str
    partition: int
    offset: int
    event_time: int
    window_start: int
    window_end: int
    clock: int
    how_late: int
    reason: Reason


@dataclass
class Counts:
    """What became of the events of one batch: accepted = counted + filtered + late."""

    accepted: int
    counted: int = 0
    filtered: int = 0
    late: int = 0


@dataclass(frozen=True)
class Outcome:
    rows: dict[RowKey, Row]
    late: list[Late]
    counts: list[Counts]  # one per batch
    watermarks: list[int | None]  # after each batch and the silence that followed it


def outcome(
    spec: MetricSpec,
    batches: Sequence[Sequence[Event]],
    *,
    idle_after: int,
    silences: Mapping[int, int] | None = None,
) -> Outcome:
    """The rows, the late ledger and the accounts of a metric after the last batch.

    Events may come in any order inside a batch; offsets of a partition rise from batch to batch. `silences`
    says how long nothing arrived, in wall time, after the batch with that index.
    """
    source = _Source(idle_after)
    rows: dict[RowKey, _Growing] = {}
    ledger: list[Late] = []
    counts: list[Counts] = []
    watermarks: list[int | None] = []
    for index, batch in enumerate(batches):
        counts.append(_merge(spec, batch, source, rows, ledger))
        for silence in (0, (silences or {}).get(index, 0)):
            before = source.watermark
            source.move_watermark()
            source.be_silent(silence)
            for key, row in rows.items():
                _show(spec, key, row, before, source.watermark)
                _age(spec, key, row, source.watermark)
        watermarks.append(source.watermark)
    measured = {key: row.measured(spec.measures) for key, row in rows.items() if row.is_shown}
    return Outcome(measured, ledger, counts, watermarks)


def window_starts(spec: MetricSpec, at: int) -> list[int]:
    """The starts of all windows that contain the moment, earliest first."""
    newest = at - at % spec.hop
    return list(range(newest - spec.size + spec.hop, newest + 1, spec.hop))


@dataclass
class _Source:
    """The clocks of the partitions and the watermark, which moves only between batches."""

    idle_after: int
    clocks: dict[int, int] = field(default_factory=dict)
    log_times: dict[int, int] = field(default_factory=dict)
    watermark: int | None = None

    def see(self, event: Event) -> None:
        at, log_time, partition = event.event_time, event.log_time, event.partition
        self.clocks[partition] = max(at, self.clocks.get(partition, at))
        self.log_times[partition] = max(log_time, self.log_times.get(partition, log_time))

    def move_watermark(self) -> None:
        if not self.clocks:
            return
        newest = max(self.log_times.values())
        live = [p for p, log_time in self.log_times.items() if newest - log_time <= self.idle_after]
        lowest = min(self.clocks[p] for p in live)
        self.watermark = lowest if self.watermark is None else max(self.watermark, lowest)

    def be_silent(self, silence: int) -> None:
        if self.watermark is not None:
            self.watermark += max(0, silence - self.idle_after)


@dataclass
class _Growing:
    """A row with all the events counted into it, and how much of that readers see."""

    counted: list[Event] = field(default_factory=list)
    late_events: int = 0
    state: State = "open"
    revision: int = 0
    is_shown: bool = False
    shown: int = 0
    shown_late: int = 0

    def measured(self, measures: Mapping[str, MeasureSpec]) -> Row:
        events = self.counted[: self.shown]
        values = {name: _value(measure, events) for name, measure in measures.items()}
        return Row(len(events), self.shown_late, self.state, self.revision, values)


def _merge(
    spec: MetricSpec,
    batch: Sequence[Event],
    source: _Source,
    rows: dict[RowKey, _Growing],
    ledger: list[Late],
) -> Counts:
    """Count every event of the batch into its windows or write down that it missed them."""
    counts = Counts(accepted=len(batch))
    for event in sorted(batch, key=lambda e: (e.partition, e.offset)):
        clock_before = source.clocks.get(event.partition)
        source.see(event)
        if spec.where is not None and not spec.where(event.fields):
            counts.filtered += 1
            continue
        got_in = False
        for start in window_starts(spec, event.event_time):
            missed = _missed(spec, event, start, clock_before, source.watermark)
            got_in = got_in or missed is None
            if missed is not None:
                ledger.append(missed)
            for key in _keys(spec, event, start):
                row = rows.setdefault(key, _Growing())
                if missed is not None:
                    row.late_events += 1
                else:
                    assert row.state != "final", f"a final row never changes: {key}"
                    row.counted.append(event)
        counts.counted += got_in
        counts.late += not got_in
    return counts


def _keys(spec: MetricSpec, event: Event, start: int) -> list[RowKey]:
    return [
        RowKey(start, start + spec.size, grouping, tuple(event.fields.get(name) for name in grouping))
        for grouping in spec.groupings
    ]


def _missed(
    spec: MetricSpec, event: Event, start: int, clock_before: int | None, watermark: int | None
) -> Late | None:
    """The ledger row of an event that comes too late for a window, None when it is in time."""
    end = start + spec.size
    closes = end + spec.final_after
    by_clock = clock_before is not None and closes <= clock_before
    by_watermark = watermark is not None and closes <= watermark
    if not by_clock and not by_watermark:
        return None
    clock = max(known for known in (clock_before, watermark) if known is not None)
    return Late(
        event.event_id,
        event.partition,
        event.offset,
        event.event_time,
        window_start=start,
        window_end=end,
        clock=clock,
        how_late=clock - closes,
        reason="late" if by_clock else "idle_wake",
    )


def _show(spec: MetricSpec, key: RowKey, row: _Growing, before: int | None, watermark: int | None) -> None:
    """Let readers see what has been counted, if it is time."""
    if spec.trigger is not None and before is not None and watermark is not None:
        closes = key.window_end + spec.final_after
        passed = before // spec.trigger < watermark // spec.trigger
        moves = [at for at in (key.window_end + spec.preliminary_after, closes) if before < at <= watermark]
        if not passed and not moves and before < closes:
            return
    if len(row.counted) > row.shown and row.state != "open":
        row.state, row.revision = "corrected", row.revision + 1
    elif spec.trigger is not None and (len(row.counted) > row.shown or not row.is_shown):
        row.revision += 1
    row.is_shown, row.shown, row.shown_late = True, len(row.counted), row.late_events


def _age(spec: MetricSpec, key: RowKey, row: _Growing, watermark: int | None) -> None:
    """Publish or close the row when the watermark says so."""
    if watermark is None or row.state == "final" or not row.is_shown:
        return
    if row.state == "open" and watermark >= key.window_end + spec.preliminary_after:
        row.state, row.revision = "preliminary", max(row.revision, 1)
    if watermark >= key.window_end + spec.final_after:
        row.state, row.revision = "final", max(row.revision, 1)


def _value(measure: MeasureSpec, events: Sequence[Event]) -> Any:
    kept = [e for e in events if measure.where is None or measure.where(e.fields)]
    if measure.kind == "count":
        return len(kept)
    assert measure.value is not None
    in_order = sorted(kept, key=lambda e: (e.event_time, e.partition, e.offset))
    values = [value for e in in_order if (value := measure.value(e.fields)) is not None]
    if values or (events and measure.kind in ("distinct", "quantiles", "top")):
        return _OF_VALUES[measure.kind](values)
    return None


def _total(values: list[Any]) -> Fraction:
    return sum((Fraction(value) for value in values), Fraction(0))


def _mean(values: list[Any]) -> Fraction:
    return _total(values) / len(values)


def _variance(values: list[Any]) -> Fraction:
    mean = _mean(values)
    return _mean([(Fraction(value) - mean) ** 2 for value in values])


# Every list of values is in the order of its events.
_OF_VALUES: dict[Kind, Callable[[list[Any]], Any]] = {
    "sum": _total,
    "min": min,
    "max": max,
    "mean": _mean,
    "variance": _variance,
    "distinct": lambda values: len(set(values)),
    "quantiles": sorted,
    "top": lambda values: dict(Counter(values)),
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
}
