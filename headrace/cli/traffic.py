"""headrace traffic: send what the app's own traffic model makes, to Kafka or to files."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from headrace.errors import ServiceError, UsageError

if TYPE_CHECKING:
    from headrace.log.produce import Idle, Produced
    from headrace.log.record import Record
    from headrace.testing.traffic import TrafficModel

DEFAULT_SECONDS = 60.0


def traffic(
    app: Annotated[
        Path | None, typer.Argument(help="The app: a folder, or its app.py.", show_default="app.py")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Records per second, over all streams.")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="How long; 0 never stops.", show_default="60, without --events")
    ] = None,
    events: Annotated[int | None, typer.Option(help="How many records.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed and --start make the same bytes.")] = None,
    start: Annotated[str | None, typer.Option(help="Time of the first record.", show_default="now")] = None,
    streams: Annotated[
        str | None,
        typer.Option(help="Streams, by comma; with weights: clickstream=9,orders=1.", show_default="all"),
    ] = None,
    duplicates: Annotated[float | None, typer.Option(help="Share of exact redeliveries.")] = None,
    late: Annotated[
        float | None, typer.Option(help="Share of mobile journeys sent late, in a burst.")
    ] = None,
    malformed: Annotated[float | None, typer.Option(help="Share of records that break the contract.")] = None,
    future: Annotated[float | None, typer.Option(help="Share of records stamped in the future.")] = None,
    hot_key: Annotated[float | None, typer.Option(help="Share of journeys of one single customer.")] = None,
    spike: Annotated[float | None, typer.Option(help="A campaign multiplies the rate; 0 for none.")] = None,
    spike_at: Annotated[float | None, typer.Option(help="Seconds from the start to the spike.")] = None,
    spike_for: Annotated[float | None, typer.Option(help="Seconds that the spike lasts.")] = None,
    idle_partition: Annotated[int | None, typer.Option(help="Send nothing to this partition…")] = None,
    idle_after: Annotated[float, typer.Option(help="…from this second on…")] = 0.0,
    idle_for: Annotated[float, typer.Option(help="…for so many seconds; 0 for the whole run.")] = 0.0,
    fast: Annotated[
        bool, typer.Option("--fast", help="Do not wait: the same records, as quickly as they can be sent.")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(help="JSON lines to this file, folder (a file per stream) or - instead of Kafka."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON document.")] = False,
) -> None:
    """Send the app's simulated traffic: duplicates, late and malformed records included.

    \b
    Examples:
      headrace traffic --rate 2000 --seconds 60
      headrace traffic apps/turanmart --events 100000 --fast --seed 7
      headrace traffic --streams clickstream,payments --duplicates 0.05 --late 0.1
      headrace traffic --spike 5 --spike-at 20 --idle-partition 2
      headrace traffic --streams orders --events 1000 --output orders.jsonl
    """
    from headrace.log.lines import write_lines
    from headrace.testing.traffic import load_traffic

    if idle_partition is None and (idle_after or idle_for):
        raise UsageError("--idle-after and --idle-for need --idle-partition")
    if output is not None and idle_partition is not None:
        raise UsageError("--idle-partition is about Kafka: a file has no partitions")
    place = app_place(app)
    model = load_traffic(place)
    given = {
        "rate": rate,
        "events": events,
        "seconds": _duration(seconds, events),
        "seed": seed,
        "start": _moment(start),
        "streams": _streams(streams, model),
        "duplicates": duplicates,
        "late": late,
        "malformed": malformed,
        "future": future,
        "hot_key": hot_key,
        "spike": spike,
        "spike_at": spike_at,
        "spike_for": spike_for,
    }
    options = model.options(**{name: value for name, value in given.items() if value is not None})
    if options.start is None and (fast or output is not None):
        # Without waiting, simulated time runs ahead of the clock on the wall: let it end now.
        options = model.options(**_as_given(options) | {"start": _so_that_it_ends_now(options)})
    if output is not None:
        written = write_lines(model.records(options), output, list(options.streams))
        _report(written, as_json, to_stderr=output == "-")
        return
    idle = _idle(idle_partition, idle_after, idle_for)
    _report(_send(model.records(options), place, idle, fast, quiet=as_json), as_json)


def app_place(app: Path | None) -> Path:
    """The folder of the app that was named, or that the settings name."""
    from headrace.settings import load

    place = app or Path(load().app)
    if not place.exists():
        raise UsageError(
            f"there is no app at {place}", hint="name a folder with an app.py: headrace traffic APP"
        )
    return place if place.is_dir() else place.parent


def _as_given(options: Any) -> dict[str, Any]:
    return {name: getattr(options, name) for name in options.__dataclass_fields__}


def _send(
    records: Iterator[Record], place: Path, idle: Idle | None, fast: bool, quiet: bool
) -> dict[str, Any]:
    from headrace.contracts import load_contracts
    from headrace.log.produce import on_time, produce

    contracts = load_contracts(place / "contracts")

    def topic_of(stream: str) -> str:
        if stream not in contracts:
            raise UsageError(f"stream '{stream}' has no contract", where=str(place / "contracts"))
        return contracts[stream].topics.raw

    progress = _Progress(sys.stderr if sys.stderr.isatty() and not quiet else None)
    try:
        produce(
            records if fast else on_time(records),
            _kafka(),
            topic_of,
            idle=idle,
            on_progress=progress,
        )
    except KeyboardInterrupt:
        if progress.last is None:
            raise
    finally:
        progress.close()
    return progress.summary()


def _kafka() -> dict[str, object]:
    """The Kafka of a running `headrace up`, or the one that the settings name."""
    from headrace.local.services import Services
    from headrace.settings import load

    if running := Services.running(Path.cwd()):
        return {**running.kafka_options, "bootstrap.servers": running.bootstrap}
    settings = load()
    if settings.kafka_bootstrap:
        return {**settings.librdkafka_options(), "bootstrap.servers": settings.kafka_bootstrap}
    raise ServiceError("no Kafka is running in this folder", hint="start it with: headrace up")


class _Progress:
    """One line that is rewritten on a terminal, nothing in a pipe; it keeps the last count either way."""

    def __init__(self, stream: IO[str] | None) -> None:
        self._stream = stream
        self._began = time.monotonic()
        self.last: Produced | None = None

    def __call__(self, now: Produced) -> None:
        self.last = now
        if self._stream:
            pace = now.delivered / max(0.001, time.monotonic() - self._began)
            self._stream.write(f"\r\x1b[K{now.sent:,} sent, {now.delivered:,} delivered, {pace:,.0f}/s")
            self._stream.flush()

    def close(self) -> None:
        if self._stream and self.last:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def summary(self) -> dict[str, Any]:
        if self.last is None:
            return {"sent": 0, "delivered": 0, "skipped": 0, "seconds": 0.0, "streams": {}}
        kept = ("sent", "delivered", "skipped", "seconds", "streams")
        return {name: value for name, value in asdict(self.last).items() if name in kept}


def _report(summary: dict[str, Any], as_json: bool, to_stderr: bool = False) -> None:
    out = sys.stderr if to_stderr else sys.stdout
    if as_json:
        print(json.dumps(summary), file=out)
        return
    count = summary.get("delivered", summary.get("written"))
    verb = "delivered" if "delivered" in summary else "written"
    each = ", ".join(f"{name} {number:,}" for name, number in summary["streams"].items())
    skipped = f", {summary['skipped']:,} kept from the idle partition" if summary.get("skipped") else ""
    pace = count / max(0.001, summary["seconds"])
    print(
        f"{count:,} records {verb} in {summary['seconds']:.1f} s ({pace:,.0f}/s){skipped}: {each}", file=out
    )


def _duration(seconds: float | None, events: int | None) -> float | None:
    if seconds is None:
        return DEFAULT_SECONDS if events is None else None
    if seconds < 0:
        raise UsageError(f"--seconds cannot be {seconds:g}", hint="0 never stops")
    return seconds or None


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--start '{text}' is not a time", hint="like 2026-07-01T09:00:00Z") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _streams(text: str | None, model: TrafficModel) -> dict[str, float] | None:
    if text is None:
        return None
    usual: dict[str, float] = model.options().streams
    weights = {}
    for part in text.split(","):
        name, _, weight = part.strip().partition("=")
        if name not in usual:
            raise UsageError(f"--streams: the app has no stream '{name}'", hint=f"it has {', '.join(usual)}")
        try:
            weights[name] = float(weight) if weight else usual[name]
        except ValueError as error:
            raise UsageError(f"--streams: '{weight}' is not a weight") from error
    return weights


def _idle(partition: int | None, after: float, seconds: float) -> Idle | None:
    from headrace.log.produce import Idle

    return None if partition is None else Idle(partition, after, seconds or float("inf"))


def _so_that_it_ends_now(options: Any) -> datetime:
    by_count = options.events / options.rate if options.events is not None else float("inf")
    length = min(by_count, options.seconds if options.seconds is not None else float("inf"))
    if length == float("inf"):
        raise UsageError("this would never end", hint="give --events or --seconds")
    return datetime.now(UTC) - timedelta(seconds=length)
