"""python -m benchmarks: the gate's speed as ratios within one run, CPU per event, and memory.

Figures of a shared machine are noisy; ratios within one run are what to compare.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.enrich import enrichment
from benchmarks.gate import GateBench, Result
from benchmarks.patterns import five_patterns
from headrace import App, count, sliding, sum_of, tumbling
from headrace.local.services import Services
from headrace.log.read import FETCH
from headrace.metrics import Metric
from headrace.ops.load import load_app
from headrace.settings import Settings
from headrace.spark import build_session
from headrace.windows import Window

TWINS = {
    "gate + 15 minutes, tumbling": tumbling("15 minutes"),
    "gate + 15 minutes, sliding every minute": sliding("15 minutes", every="1 minute"),
}
TURANMART = Path(__file__).parents[1] / "apps" / "turanmart"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="events in the topic (default 1000000)")
    parser.add_argument("--large", type=int, default=0, help="also run the gate on so many events")
    parser.add_argument("--rounds", type=int, default=2, help="measured rounds; the fastest of each counts")
    parser.add_argument("--trigger-seconds", type=float, default=30.0, help="length of the trigger test")
    parser.add_argument("--metrics", action="store_true", help="also with one and ten metrics of TuranMart")
    parser.add_argument("--joins", action="store_true", help="also with a join of few and of most events")
    parser.add_argument("--patterns", action="store_true", help="also with five patterns")
    parser.add_argument("--enrich", action="store_true", help="also with a table of 100,000 rows")
    parser.add_argument("--sessions", action="store_true", help="also with the sessions of TuranMart")
    parser.add_argument("--memory", default="2g", help="memory of the Spark driver")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        with Services(folder, Settings(folder=folder)) as services:
            spark = build_session("benchmarks", memory=options.memory)
            try:
                report = measure(options, GateBench(spark, services, folder, "bench", options.events))
                if options.large:
                    large = GateBench(spark, services, folder, "bench_large", options.large)
                    large.load()
                    report["large"] = shown(large.gate("gate, large", publish=True))
            finally:
                spark.stop()
    print(json.dumps(report, indent=1)) if options.json else show(report)


def measure(options: argparse.Namespace, bench: GateBench) -> dict[str, object]:
    bench.load()
    ways: dict[str, Callable[[str], Result]] = {
        "ceiling, Spark's own fetch settings": lambda n: bench.ceiling(n, {}),
        "ceiling, our fetch settings": lambda n: bench.ceiling(n, FETCH),
        "gate": lambda n: bench.gate(n, publish=True),
        "gate, accepted not published": lambda n: bench.gate(n, publish=False),
    }
    if options.metrics:
        declared = load_app(TURANMART).metrics_of("clickstream")
        ten = declared[:10]
        ways |= {
            "gate + 1 metric": lambda n: bench.gate(n, publish=True, metrics=declared[:1]),
            "gate + 10 metrics": lambda n: bench.gate(n, publish=True, metrics=ten),
            "gate + 10 metrics, not published": lambda n: bench.gate(n, publish=False, metrics=ten),
        }
        for name, window in TWINS.items():
            twin = twin_of(bench.contract.name, window)
            ways[name] = lambda n, twin=twin: bench.gate(n, publish=True, metrics=[twin])  # type: ignore[misc]
    if options.joins:
        few = bench.join("few", "checkout_started", "purchase", on="session_id", within="30 minutes")
        most = bench.join(
            *("most", "product_impression", "product_click"),
            on=["session_id", "product_id"],
            within="1 hour",
            kind="first_match",
            left_unmatched=None,
        )
        ways |= {
            "gate + 1 join of 4 % of the events": lambda n: bench.gate(n, publish=True, joins=[few]),
            "gate + 1 join of 60 % of the events": lambda n: bench.gate(n, publish=True, joins=[most]),
        }
    if options.patterns:
        ways["gate + 5 patterns"] = lambda n: bench.gate(n, publish=True, patterns=five_patterns())
    if options.enrich:
        enriched = [enrichment(bench.folder, bench.contract.name)]
        ways["gate + enrichment"] = lambda n: bench.gate(n, publish=True, enrich=enriched)
        ways["gate + enrichment, only that published"] = lambda n: bench.gate(
            n, publish=False, enrich=enriched
        )
    if options.sessions:
        visits = load_app(TURANMART).sessions_of("clickstream")
        ways["gate + sessions"] = lambda n: bench.gate(n, publish=True, sessions=visits)
    for name, run in ways.items():
        run(name)  # the JVM compiles while it runs: the first round only warms it up
    best: dict[str, Result] = {}
    for _ in range(options.rounds):
        for name, run in ways.items():
            result = run(name)
            if name not in best or result.net < best[name].net:
                best[name] = result
    plain = best["ceiling, Spark's own fetch settings"].net
    tuned = best["ceiling, our fetch settings"].net
    rows = [shown(r) | {"ratio": plain / r.net, "ratio_to_tuned": tuned / r.net} for r in best.values()]
    trigger = bench.trigger(2_000, options.trigger_seconds) if options.trigger_seconds else None
    return {"events": options.events, "runs": rows, "trigger_seconds_at_2000": trigger}


def twin_of(stream: str, window: Window) -> Metric:
    """The same numbers over another window."""
    measures = {"clicks": count("event_type = 'product_click'"), "value": sum_of("price")}
    by = [[], ["region"], ["region", "device_type"]]
    return App("bench").metric("twin", of=stream, window=window, by=by, measures=measures)


def shown(result: Result) -> dict[str, object]:
    return {
        "name": result.name,
        "events": result.events,
        "seconds": result.net,
        "events_per_second": result.events / result.net,
        "cpu_us_per_event": result.cpu_per_event,
        "peak_mb": result.reading.peak_mb,
    }


def show(report: dict[str, object]) -> None:
    table = Table("run", "seconds", "events/s", "ratio", "to tuned", "CPU-µs/event", "peak MB")
    rows = report["runs"]
    assert isinstance(rows, list)
    for r in rows:
        table.add_row(
            *(r["name"], f"{r['seconds']:.2f}", f"{r['events_per_second']:,.0f}", f"{r['ratio']:.2f}"),
            *(f"{r['ratio_to_tuned']:.2f}", f"{r['cpu_us_per_event']:.1f}", f"{r['peak_mb']:,.0f}"),
        )
    Console(width=120).print(table)
    if report["trigger_seconds_at_2000"] is not None:
        print(f"median trigger at 2,000 events/s: {report['trigger_seconds_at_2000']:.2f} s")
    if "large" in report:
        print(f"large: {report['large']}")


if __name__ == "__main__":
    main()
