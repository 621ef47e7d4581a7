"""What the gates are doing, for a terminal: a table that stays in place, or a line now and then in a pipe."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from headrace.ops.snapshot import SourceNow

PLAIN_SECONDS = 5.0


class LiveView:
    """Shows snapshots as they come; `quiet` shows nothing."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(file=sys.stderr if quiet else sys.stdout)
        self._quiet = quiet
        self._live = Live(console=self._console, refresh_per_second=4) if self._is_terminal else None
        self._began = time.monotonic()
        self._before: dict[str, tuple[float, int]] = {}
        self._rates: dict[str, float] = {}
        self._said, self._said_at = "", 0.0
        self._dashboard = ""

    @property
    def _is_terminal(self) -> bool:
        return self._console.is_terminal and not self._quiet

    def __enter__(self) -> LiveView:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def announce(self, dashboard: str) -> None:
        """Where a browser shows the same, and more."""
        self._dashboard = f"dashboard: {dashboard}"
        if not (self._quiet or self._live):
            print(self._dashboard, flush=True)

    def show(self, doing: str, sources: list[SourceNow]) -> None:
        if self._quiet:
            return
        self._measure(sources)
        if self._live:
            self._live.update(self._picture(doing, sources))
        else:
            self._say(doing, sources)

    def _measure(self, sources: list[SourceNow]) -> None:
        """Rates over the time between two batches, since the ledger moves only with them."""
        now = time.monotonic()
        for source in sources:
            then, count = self._before.get(source.source, (now, source.received))
            if source.received != count or source.source not in self._before:
                self._rates[source.source] = (source.received - count) / max(now - then, 1e-9)
                self._before[source.source] = (now, source.received)
            elif now - then > 5:
                self._rates[source.source] = 0.0

    def _say(self, doing: str, sources: list[SourceNow]) -> None:
        now = time.monotonic()
        if doing == self._said and now - self._said_at < PLAIN_SECONDS:
            return
        self._said, self._said_at = doing, now
        counts = ""
        if sources:
            total = {f: sum(getattr(s, f) for s in sources) for f in ("received", "accepted", "rejected")}
            rest = {f: sum(getattr(s, f) for s in sources) for f in ("late", "duplicate", "lag")}
            counts = ": " + ", ".join(f"{name} {count}" for name, count in {**total, **rest}.items())
        print(f"{now - self._began:5.0f} s  {doing}{counts}", flush=True)

    def _picture(self, doing: str, sources: list[SourceNow]) -> Group:
        seconds = time.monotonic() - self._began
        head = Text.assemble((f" {doing} ", "bold"), (f"{seconds:.0f} s  ", "dim"), (self._dashboard, "cyan"))
        return (
            Group(head, source_table(sources, self._rates), clock_table(sources)) if sources else Group(head)
        )


def source_table(sources: list[SourceNow], rates: dict[str, float] | None = None) -> Table:
    """With `rates`, also how many records each source reads in a second."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("source")
    counts_of = ("received", "accepted", "rejected", "late", "duplicate", "unaccounted", "lag")
    for name in (*(["records/s"] if rates is not None else []), *counts_of):
        table.add_column(name, justify="right")
    table.add_column("batch", justify="right")
    styles = {"accepted": "green", "rejected": "red", "late": "yellow", "duplicate": "cyan"}
    for s in sources:
        counts = [Text(f"{getattr(s, f):,}", style) for f, style in styles.items()]
        leak = Text(f"{s.unaccounted:,}", "bold red" if s.unaccounted else "bold green")
        took = f"{s.batch_seconds:.2f} s" if s.batch_seconds is not None else "-"
        rate = [f"{rates.get(s.source, 0):,.0f}"] if rates is not None else []
        table.add_row(s.source, *rate, f"{s.received:,}", *counts, leak, f"{s.lag:,}", took)
    return table


def clock_table(sources: list[SourceNow]) -> Table:
    most = max((len(s.partitions) for s in sources), default=0)
    table = Table("clock (lag)", *[f"partition {p}" for p in range(most)], box=box.SIMPLE_HEAD)
    for s in sources:
        cells = [
            f"{p.clock:%H:%M:%S} ({p.lag:,})" if p.clock is not None else f"- ({p.lag:,})"
            for p in s.partitions
        ]
        table.add_row(s.source, *cells)
    return table
