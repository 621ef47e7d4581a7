"""The lab's results: rows and their one spelling in CSV, an exact comparison, and what lateness costs."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Literal, NamedTuple

from headrace.errors import UsageError

COLUMNS = (
    "window_start",
    "window_end",
    "dimension",
    "impressions",
    "clicks",
    "purchases",
    "conversion_rate",
    "late_events_dropped",
    "total_events_seen",
    "max_event_lag_seconds",
)
HEADER = ",".join(COLUMNS)
ALL = "all"
NO_CELL = "(no cell)"
RATE, LAG = Decimal("0.00001"), Decimal("0.01")
MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Row:
    """One window of one dimension. The lag is exact and may be negative; only its spelling is rounded."""

    window_start: datetime
    window_end: datetime
    dimension: str
    impressions: int
    clicks: int
    purchases: int
    late_events_dropped: int
    total_events_seen: int
    max_event_lag: timedelta

    def __post_init__(self) -> None:
        # A time without a zone would be taken as local time, and be wrong on every other machine.
        if self.window_start.tzinfo is None or self.window_end.tzinfo is None:
            raise ValueError(f"a window needs times with a zone, not {self.window_start}")

    @property
    def conversion_rate(self) -> Decimal:
        return _ratio(self.purchases, self.impressions)

    @property
    def max_event_lag_seconds(self) -> Decimal:
        exact = Decimal(self.max_event_lag // MICROSECOND) / 1_000_000
        # Adding zero turns -0.00 into 0.00.
        return exact.quantize(LAG, ROUND_HALF_EVEN) + 0

    def cells(self) -> tuple[str, ...]:
        """The row as the CSV spells it, in the order of its columns."""
        return (
            _written(self.window_start),
            _written(self.window_end),
            self.dimension,
            str(self.impressions),
            str(self.clicks),
            str(self.purchases),
            f"{self.conversion_rate:f}",
            str(self.late_events_dropped),
            str(self.total_events_seen),
            f"{self.max_event_lag_seconds:f}",
        )

    def to_json(self) -> dict[str, str | int | float]:
        cells = dict(zip(COLUMNS, self.cells(), strict=True))
        text, fractions = COLUMNS[:3], ("conversion_rate", "max_event_lag_seconds")
        return {
            name: cell if name in text else float(cell) if name in fractions else int(cell)
            for name, cell in cells.items()
        }


def in_order(rows: Sequence[Row]) -> list[Row]:
    """By window, then by dimension as plain text."""
    return sorted(rows, key=lambda row: (row.window_start, row.window_end, row.dimension))


def csv_text(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(row.cells() for row in in_order(rows))
    return text.getvalue()


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Readers see the old file or the whole new one, never a part."""
    data = csv_text(rows).encode()
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(data)  # a pipe or a terminal cannot be replaced
            return
        file = path.resolve()  # a link stays a link to the new file
        part = file.with_name(f".{file.name}.part-{os.getpid()}")
        try:
            with part.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


@dataclass(frozen=True)
class Difference:
    """One thing in which two results differ; a part that it does not have is empty.

    The line is that of the actual file, but for a missing row that of the expected one.
    """

    kind: Literal["header", "missing", "extra", "cell", "order"]
    line: int
    window: str = ""
    dimension: str = ""
    column: str = ""
    actual: str = ""
    expected: str = ""

    def __str__(self) -> str:
        row = f"window {shown(self.window)}, {shown(self.dimension)}"
        if self.kind == "header":
            return f"line {self.line}: the header is {shown(self.actual)}, expected {shown(self.expected)}"
        if self.kind == "missing":
            return f"missing row: {row} (line {self.line} of the expected file)"
        if self.kind == "extra":
            return f"line {self.line}: extra row: {row}"
        if self.kind == "order":
            return f"line {self.line}: {row} is out of order, expected {self.expected}"
        return (
            f"line {self.line}: {row}: {self.column} is {shown(self.actual)}, expected {shown(self.expected)}"
        )


class _Line(NamedTuple):
    number: int
    cells: tuple[str, ...]

    def cell(self, column: str) -> str:
        place = COLUMNS.index(column)
        return self.cells[place] if place < len(self.cells) else ""

    @property
    def name(self) -> tuple[str, str]:
        return self.cell("window_start"), self.cell("dimension")


_Named = dict[tuple[tuple[str, str], int], _Line]


def compare_csv(actual: Path, expected: Path) -> list[Difference]:
    """Every difference between two results, cell by cell and as text; no difference is an empty list."""
    found, wanted = _lines(actual), _lines(expected)
    head, wanted_head = found[0].cells, wanted[0].cells
    if not head == wanted_head == COLUMNS:
        # Two files may agree on a header that no result has.
        right = COLUMNS if head == wanted_head else wanted_head
        return [Difference("header", found[0].number, actual=",".join(head), expected=",".join(right))]
    ours, theirs = _by_name(found[1:]), _by_name(wanted[1:])
    differences = [d for key, line in theirs.items() for d in _against(ours.get(key), line)]
    differences += [Difference("extra", ours[key].number, *key[0]) for key in ours if key not in theirs]
    return differences or list(_disorder(ours, theirs))


def shown(cell: str) -> str:
    """A cell as a message can print it: what would be invisible is quoted and escaped."""
    return cell if cell and cell.isprintable() and cell.strip() == cell else repr(cell)


@dataclass(frozen=True)
class TradeOff:
    """What one lateness costs and brings, over the rows of the dimension 'all'."""

    lateness_seconds: int
    seen: int
    dropped: int
    kept: Decimal  # of what was seen, from 0 to 1
    windows: int
    complete_windows: int  # nothing dropped
    lost_windows: int  # everything dropped
    mean_rate_error: Decimal
    largest_rate_error: Decimal

    def to_json(self) -> dict[str, int | float]:
        return {n: float(v) if isinstance(v, Decimal) else v for n, v in vars(self).items()}


def trade_off(results: Mapping[int, Sequence[Row]]) -> list[TradeOff]:
    """One entry for each lateness, the smallest first. The largest has the rates to compare with."""
    if not results:
        return []
    best = _rates(results[max(results)])
    return [_trade_off(lateness, results[lateness], best) for lateness in sorted(results)]


def _trade_off(lateness: int, rows: Sequence[Row], best: dict[datetime, Decimal]) -> TradeOff:
    totals = [row for row in rows if row.dimension == ALL]
    seen = sum(row.total_events_seen for row in totals)
    dropped = sum(row.late_events_dropped for row in totals)
    rates, none = _rates(rows), Decimal(0)
    errors = [abs(rates.get(at, none) - best.get(at, none)) for at in rates.keys() | best.keys()]
    mean = sum(errors, none) / len(errors) if errors else none
    return TradeOff(
        lateness_seconds=lateness,
        seen=seen,
        dropped=dropped,
        kept=_ratio(seen - dropped, seen) if seen else Decimal(1),
        windows=len(totals),
        complete_windows=sum(row.late_events_dropped == 0 for row in totals),
        lost_windows=sum(row.late_events_dropped == row.total_events_seen for row in totals),
        mean_rate_error=mean.quantize(RATE, ROUND_HALF_EVEN),
        largest_rate_error=max(errors, default=none).quantize(RATE),
    )


def _rates(rows: Sequence[Row]) -> dict[datetime, Decimal]:
    return {row.window_start: row.conversion_rate for row in rows if row.dimension == ALL}


def _ratio(part: int, whole: int) -> Decimal:
    exact = Decimal(part) / whole if whole else Decimal(0)
    return exact.quantize(RATE, ROUND_HALF_EVEN)


def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def _lines(file: Path) -> list[_Line]:
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            lines = [_Line(reader.line_num, tuple(cells)) for cells in reader if cells]
    except FileNotFoundError as error:
        raise UsageError("there is no such file", where=str(file)) from error
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(file)) from error
    except UnicodeDecodeError as error:
        raise UsageError("is not UTF-8 text", where=str(file)) from error
    except csv.Error as error:
        raise UsageError(f"is not CSV: {error}", where=f"{file}:{reader.line_num}") from error
    if not lines:
        raise UsageError("is empty", where=str(file), hint=f"a result of the lab begins with {HEADER}")
    return lines


def _by_name(lines: Sequence[_Line]) -> _Named:
    """Rows by window and dimension; a number tells rows apart that have both in common."""
    times: Counter[tuple[str, str]] = Counter()
    named: _Named = {}
    for line in lines:
        named[line.name, times[line.name]] = line
        times[line.name] += 1
    return named


def _against(found: _Line | None, wanted: _Line) -> Iterator[Difference]:
    if found is None:
        yield Difference("missing", wanted.number, *wanted.name)
        return
    surplus = max(len(found.cells), len(wanted.cells)) - len(COLUMNS)
    columns = (*COLUMNS, *(f"column {len(COLUMNS) + more}" for more in range(1, surplus + 1)))
    for column, ours, theirs in zip_longest(columns, found.cells, wanted.cells, fillvalue=None):
        if ours != theirs:
            cells = (NO_CELL if cell is None else cell for cell in (ours, theirs))
            yield Difference("cell", found.number, *found.name, str(column), *cells)


def _disorder(ours: _Named, theirs: _Named) -> Iterator[Difference]:
    """The first row that is not where it should be, in results that have the same rows."""
    for mine, other in zip(ours, theirs, strict=True):
        if mine != other:
            expected = f"window {shown(other[0][0])}, {shown(other[0][1])}"
            yield Difference("order", ours[mine].number, *mine[0], expected=expected)
            return
